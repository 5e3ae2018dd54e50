// Line charts. They share the view and the cursor.
const NARROW = 52; // room for the labels of small charts

function chart(parent, { title, unit, x, lines, height, left, max, gaps }) {
  const box = el("div", "chart"), caption = el("div", "caption");
  parent.append(box);
  box.append(caption);
  const series = [{}], data = [x], bands = [];
  for (const line of lines) {
    if (line.low) {
      const at = series.length;
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: gaps };
      series.push(edge, { ...edge });
      data.push(line.high, line.low);
      bands.push({ series: [at, at + 1], fill: () => fade(color(line.color), 0.22) });
    }
    series.push({ stroke: () => (line.faint ? fade(color(line.color), 0.45) : color(line.color)), width: line.width || 1.5, dash: line.dash, points: { show: false }, spanGaps: gaps });
    data.push(line.values);
    line.at = series.length - 1;
  }
  const readout = (u) => {
    const i = u && u.cursor.idx;
    const parts = [el("b", "", title + ", " + unit)];
    for (const line of lines) {
      if (!line.name) continue;
      const key = el("span", "key"), dot = el("i", "");
      dot.style.background = color(line.color);
      key.append(dot, el("span", "", line.name + (i === null || i === undefined ? "" : " " + amount(data[line.at][i], unit))));
      parts.push(key);
    }
    if (i !== null && i !== undefined && x[i] !== undefined) parts.push(el("span", "", "at " + clock(x[i], true)));
    caption.replaceChildren(...parts);
  };
  const axis = { stroke: () => color("muted"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const width = () => Math.max(box.clientWidth, 200);
  const u = new uPlot({
    width: width(), height, series, bands, legend: { show: false },
    padding: [6, RIGHT, 0, 0],
    cursor: { sync: { key: "gswarm", scales: ["x", null] }, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
    select: { show: true },
    scales: { x: { time: false, range: () => [view.min, view.max] }, y: { range: (_, lo, hi) => [0, Math.max(max || 0, (hi || 1) * 1.04)] } },
    axes: [
      { ...axis, size: 26, gap: 4, values: (_, at) => at.map((v) => clock(v, at.length > 1 && at[1] - at[0] < 1)), incrs: [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400] },
      { ...axis, size: left, gap: 6, values: (_, at) => at.map((v) => (v >= 1000 ? v.toLocaleString("en") : String(+v.toFixed(2)))), space: 24 },
    ],
    hooks: {
      setCursor: [readout],
      setSelect: [(u) => {
        if (u.select.width < 4) return;
        const a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x");
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        view.set(a, b);
      }],
    },
  }, data, box);
  u.over.addEventListener("dblclick", () => view.reset());
  readout(null);
  const follow = () => u.setScale("x", { min: view.min, max: view.max });
  view.watch.push(follow);
  return {
    redraw() { u.redraw(false, true); readout(null); },
    resize() { u.setSize({ width: width(), height }); },
    gone() {
      view.watch.splice(view.watch.indexOf(follow), 1);
      u.destroy();
      box.remove();
    },
  };
}
