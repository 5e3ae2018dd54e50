// The page itself: lanes of phases and findings, the heat map, all GPUs together,
// and one GPU with its host and rank.
const PHASES = { compute: "#7fb2dd", communication: "#f0b45a", memory: "#6cc3a0", transfer: "#8fd0ee", launch: "#d9a3c4", input: "#ea9a6e", serial: "#efe07a", imbalance: "#efe07a", power: "#c9a98a", idle: "#c4cacf", unknown: "#dde1e4" };
const MANY = 48; // GPUs beyond which the heat map has nodes for rows

function lanes(facts, jump) {
  const place = (e, from, to) => {
    const w = view.max - view.min;
    e.style.left = (100 * (from - view.min)) / w + "%";
    e.style.width = Math.max((100 * (to - from)) / w, 0) + "%";
    e.hidden = to < view.min || from > view.max;
  };
  const lane = (name, items, make) => {
    if (!items.length) return;
    const row = el("div", "lane-row"), strip = el("div", "lane");
    row.append(el("span", "lane-name", name), strip);
    $("lanes").append(row);
    const all = items.map((item, i) => {
      const e = make(item, i);
      e.addEventListener("pointermove", (ev) => showTip(ev, item.tip));
      e.addEventListener("pointerleave", hideTip);
      strip.append(e);
      return [e, item];
    });
    const draw = () => all.forEach(([e, item]) => place(e, item.from, item.to));
    view.watch.push(draw);
    draw();
  };
  lane("phases", facts.phases, (p) => {
    const e = el("button", "phase", p.name);
    e.type = "button";
    e.style.background = PHASES[p.kind] || PHASES.unknown;
    e.addEventListener("click", () => view.set(p.from, p.to));
    return e;
  });
  // Findings that overlap get lanes of their own, up to four.
  const rows = [];
  facts.findings.forEach((f) => {
    if (f.to <= f.from) return;
    const row = rows.find((r) => r[r.length - 1].to <= f.from) || (rows.length < 4 ? (rows.push([]), rows[rows.length - 1]) : null);
    if (row) row.push(f);
  });
  rows.forEach((row, i) => lane(i ? "" : "causes", row, (f) => {
    const e = el("button", "mark-finding " + f.severity, f.number);
    e.type = "button";
    e.dataset.finding = f.index;
    e.setAttribute("aria-label", "cause " + f.number + ": " + f.tip[0]);
    e.addEventListener("click", () => jump(f.index));
    return e;
  }));
  const few = facts.marks.length <= 12; // more would cover one another
  lane("marks", facts.marks, (m) => el("span", "mark-text", few ? m.tip[0] : ""));
}

function start(facts) {
  const gpus = facts.gpus.subjects, curves = facts.gpus.curves, host = facts.hosts.subjects;
  const metrics = (gpus.length ? facts.gpus : facts.hosts).metrics;
  const nodes = [...new Set(gpus.map((g) => g.node))];
  const ofNode = new Map(nodes.map((n) => [n, gpus.flatMap((g, i) => (g.node === n ? [i] : []))]));
  const state = { metric: Math.max(metrics.findIndex((m) => m.read), 0), gpu: null, node: null, lit: [], fold: "mean" };
  const length = facts.grid.buckets * facts.grid.seconds;
  view.whole = [facts.grid.begin, facts.grid.begin + length];
  [view.min, view.max] = view.whole;
  let together = null, drill = [];
  const short = (g) => (nodes.length > 1 ? g.node + ":" + g.gpu : "GPU " + g.gpu);

  const gpuRows = (list) => list.map((i) => ({ name: whoName(gpus[i]), label: short(gpus[i]), get: () => curves.values(i, state.metric, 0) }));
  const byNode = gpus.length > MANY && nodes.length > 1;
  const nodeFolds = new Map();
  const nodeRows = () => nodes.map((n) => ({
    name: n + ": " + $("fold").selectedOptions[0].textContent + " of " + ofNode.get(n).length + " GPUs", label: n,
    get: () => {
      const key = n + "\u0000" + state.metric;
      if (!nodeFolds.has(key)) nodeFolds.set(key, curves.together(ofNode.get(n), state.metric));
      return nodeFolds.get(key)[state.fold];
    },
  }));
  // Without GPUs the rows are the hosts.
  const hostHeat = !gpus.length && host.length ? new HeatMap($("heat"), facts.slowGrid, (row) => {
    state.node = host[row].node;
    drawHeat();
    drawDrill();
  }) : null;
  const heat = gpus.length ? new HeatMap($("heat"), facts.grid, (row) => (byNode ? openNode(nodes[row]) : openGPU(row))) : null;
  const inner = byNode ? new HeatMap($("node"), facts.grid, (row) => openGPU(ofNode.get(state.node)[row])) : null;

  function drawHeat() {
    const m = metrics[state.metric];
    if (hostHeat) {
      hostHeat.on = host.findIndex((h) => h.node === state.node);
      hostHeat.show(m.name + ", by node", host.map((h, i) => ({ name: h.node, label: h.node, get: () => facts.hosts.curves.values(i, state.metric, 0) })), m, m.name + " over time, a row for each node");
    }
    if (!heat) return;
    heat.on = byNode ? nodes.indexOf(state.node) : state.gpu === null ? -1 : state.gpu;
    heat.show(m.name + (byNode ? ", by node" : ", by GPU"), byNode ? nodeRows() : gpuRows(gpus.map((_, i) => i)), m, m.name + " over time, a row for each " + (byNode ? "node" : "GPU"));
    if (!inner) return;
    $("node").hidden = state.node === null;
    if (state.node === null) return;
    const list = ofNode.get(state.node);
    inner.on = list.indexOf(state.gpu);
    inner.show(state.node + ": " + list.length + " GPUs", gpuRows(list), m, m.name + " over time, a row for each GPU of " + state.node);
  }

  function drawTogether() {
    if (!gpus.length) return;
    if (together) together.gone();
    const m = metrics[state.metric], lines = [];
    const all = gpus.map((_, i) => i).filter((i) => !gpus[i].spare);
    const lit = [...new Set([...(state.gpu === null ? [] : [state.gpu]), ...state.lit])].slice(0, 3);
    const few = all.length <= 16;
    if (few) {
      const rest = all.filter((i) => !lit.includes(i));
      rest.forEach((i, k) => lines.push({ name: k ? "" : lit.length ? "the others" : "each GPU", values: curves.values(i, state.metric, 0), color: "third", faint: true, width: 1 }));
    } else {
      const t = curves.together(all, state.metric);
      lines.push({ name: "mean; band: lowest to highest GPU", values: t.mean, low: t.low, high: t.high, color: "third" });
    }
    ["accent", "second", "good"].forEach((c, k) => {
      if (k < lit.length) lines.push({ name: whoName(gpus[lit[k]]), values: curves.values(lit[k], state.metric, 0), color: c, width: 2 });
    });
    together = chart($("together"), { title: m.name, unit: m.unit, x: curves.x, lines, height: 190, left: LEFT, max: m.unit === "%" ? 100 : 0 });
  }

  function drawDrill() {
    drill.forEach((c) => c.gone());
    drill = [];
    const box = $("drill");
    const hostOnly = !gpus.length;
    box.hidden = hostOnly ? state.node === null : state.gpu === null;
    if (box.hidden) return;
    const g = hostOnly ? null : gpus[state.gpu];
    const node = hostOnly ? state.node : g.node;
    const head = el("div", "head"), grid = el("div", "grid");
    head.append(el("h3", "", hostOnly ? node || "" : whoName(g)));
    if (g) {
      head.append(el("span", "uuid", [g.name, g.uuid, "node " + g.node].filter(Boolean).join(" · ")));
      const close = el("button", "", "close");
      close.type = "button";
      close.addEventListener("click", () => openGPU(null));
      head.append(close);
    }
    box.replaceChildren(head, grid);
    const add = (title, unit, c, parts, max, gaps) => {
      const lines = parts.filter(([, s, m]) => c.has(m) && s >= 0).map(([name, s, m, col, plain]) => ({
        name, values: c.values(s, m, 0), color: col, low: plain ? undefined : c.values(s, m, 1), high: plain ? undefined : c.values(s, m, 2),
      }));
      if (lines.length) drill.push(chart(grid, { title, unit, x: c.x, lines, height: 132, left: NARROW, max, gaps }));
    };
    const at = (kind, column) => kind.metrics.findIndex((m) => m.column === column);
    if (g) {
      const s = state.gpu, m = (column) => at(facts.gpus, column);
      const one = (title, unit, column, max) => add(title, unit, curves, [["", s, m(column), "accent"]].filter((p) => p[2] >= 0), max);
      const some = (title, unit, list, max) => add(title, unit, curves, list.map(([n, c, col]) => [n, s, m(c), col, true]).filter((p) => p[2] >= 0), max);
      some("Activity", "%", [["SM active", "sm_active_pct", "accent"], ["tensor cores", "tensor_pct", "second"], ["“GPU utilisation”", "util_gpu_pct", "third"]], 100);
      one("Memory bandwidth", "%", "dram_pct", 100);
      one("Power", "W", "power_now_mw");
      one("SM clock", "MHz", "clock_sm_mhz");
      one("Temperature", "°C", "temp_c");
      one("Memory used", "GB", "mem_used_bytes");
      some("Links", "GB/s", [["NVLink, sent", "nvlink_tx_mib_s", "accent"], ["PCIe, both ways", "pcie_rx_mib_s", "second"]]);
    }
    const h = host.findIndex((x) => x.node === node), k = g ? facts.ranks.subjects.findIndex((x) => x.rank === g.rank && g.rank !== null) : -1;
    add("CPUs of " + node, "%", facts.hosts.curves, [["", h, at(facts.hosts, "cpu"), "accent"]], 100, true);
    add("Memory of " + node, "GB", facts.hosts.curves, [["", h, at(facts.hosts, "mem_available_bytes"), "accent"]], 0, true);
    if (k >= 0) {
      add("Cores of rank " + g.rank, "cores", facts.ranks.curves, [["", k, at(facts.ranks, "cores"), "accent"]], 1, true);
      add("Rank " + g.rank + " waited for a core", "%", facts.ranks.curves, [["", k, at(facts.ranks, "run_delay_ns"), "accent"]], 10, true);
    }
  }

  function openNode(node) {
    state.node = state.node === node ? null : node;
    drawHeat();
  }
  function openGPU(i) {
    state.gpu = i;
    if (i !== null && byNode) state.node = gpus[i].node;
    $("gpu").value = i === null ? "" : String(i);
    document.querySelectorAll("#gpus tr.on").forEach((r) => r.classList.remove("on"));
    if (i !== null) document.querySelector('#gpus tr[data-gpu="' + i + '"]')?.classList.add("on");
    drawHeat();
    drawTogether();
    drawDrill();
  }
  function jump(index) {
    const f = facts.findings[index];
    const margin = Math.max((f.to - f.from) * 0.12, 1);
    state.lit = f.gpus;
    document.querySelectorAll(".mark-finding").forEach((e) => e.classList.toggle("on", Number(e.dataset.finding) === index));
    const m = metrics.findIndex((x) => x.read && f.columns.includes(x.column));
    if (m >= 0) $("metric").value = String((state.metric = m));
    if (f.to > f.from) view.set(f.from - margin, f.to + margin);
    openGPU(f.gpus.length ? f.gpus[0] : state.gpu);
    $("timeline").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
  }

  metrics.forEach((m, i) => {
    if (m.read) $("metric").append(new Option(m.name + ", " + m.unit, i));
  });
  $("which").hidden = !gpus.length;
  if (!gpus.length) {
    $("metric").parentElement.hidden = !host.length;
    $("hint").textContent = "Drag over any picture to zoom, double-click for the whole run. Click a row of the heat map for one node.";
    if (host.length) state.node = host[0].node;
  }
  $("metric").addEventListener("change", (e) => {
    state.metric = Number(e.target.value);
    drawHeat();
    drawTogether();
  });
  $("folding").hidden = !byNode;
  $("fold").addEventListener("change", (e) => {
    state.fold = e.target.value;
    drawHeat();
  });
  const choose = $("gpu");
  choose.append(new Option(gpus.length === 1 ? "–" : "all", ""));
  gpus.forEach((g, i) => choose.append(new Option(whoName(g), i)));
  choose.addEventListener("change", () => openGPU(choose.value === "" ? null : Number(choose.value)));
  $("out").addEventListener("click", () => view.out());
  $("all").addEventListener("click", () => view.reset());
  document.querySelectorAll(".jump").forEach((b) => b.addEventListener("click", () => jump(Number(b.dataset.finding))));
  document.querySelectorAll("#gpus tbody tr").forEach((row) => row.addEventListener("click", () => {
    openGPU(Number(row.dataset.gpu));
    $("timeline").scrollIntoView({ block: "start" });
  }));
  lanes(facts, jump);
  const status = () => {
    const whole = view.min === view.whole[0] && view.max === view.whole[1];
    $("range").textContent = whole ? "whole run, " + clock(view.max - view.min) : clock(view.min, true) + " to " + clock(view.max, true) + " from " + utc(facts, view.min);
    $("out").disabled = $("all").disabled = whole;
  };
  view.watch.push(status);
  status();
  state.lit = facts.lit;
  drawHeat();
  drawTogether();
  drawDrill();

  const repaint = () => {
    colors = {};
    drawHeat();
    if (together) together.redraw();
    drill.forEach((c) => c.redraw());
  };
  const resize = () => {
    drawHeat();
    if (together) together.resize();
    drill.forEach((c) => c.resize());
  };
  let wait = 0;
  addEventListener("resize", () => {
    clearTimeout(wait);
    wait = setTimeout(resize, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  const root = document.documentElement;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    repaint();
  });
  let screen;
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
    screen = root.dataset.theme;
    root.dataset.theme = "light";
    root.classList.add("paper");
    repaint();
    resize();
  });
  addEventListener("afterprint", () => {
    if (screen) root.dataset.theme = screen;
    else delete root.dataset.theme;
    root.classList.remove("paper");
    repaint();
    resize();
  });
}

// A click on a head sorts a table by that column, again the other way round.
function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((th, col) => th.addEventListener("click", () => {
    const down = th.getAttribute("aria-sort") !== "descending";
    [...table.tHead.rows[0].cells].forEach((o) => o.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[col].dataset.v === undefined ? row.cells[col].textContent : Number(row.cells[col].dataset.v);
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true })) * (down ? -1 : 1);
    });
    body.append(...rows);
  }));
}

document.body.append(tip);
document.querySelectorAll("table.sortable").forEach(sortable);
load().then(start).then(() => document.documentElement.setAttribute("data-ready", "")).catch((e) => {
  $("broken").textContent = "The curves cannot be shown: " + e.message + ". A current Firefox, Chrome or Safari shows them.";
  $("broken").hidden = false;
  console.error(e);
});
