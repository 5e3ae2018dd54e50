// A heat map: rows of GPUs or nodes over time, coloured by viridis, which keeps
// its order for the colour-blind and in grey.
const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"].map((h) => [0, 2, 4].map((i) => parseInt(h.slice(i, i + 2), 16)));
function viridis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[i].map((v, k) => Math.round(v + (VIRIDIS[i + 1][k] - v) * (at - i)));
}
const LUT = Array.from({ length: 256 }, (_, i) => viridis(i / 255));

const LEFT = 92, RIGHT = 14;

const tip = el("div", "tip");
tip.hidden = true;
function showTip(event, lines) {
  tip.replaceChildren(...lines.map((t) => el("div", "", t)));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - w - 8) + "px";
  tip.style.top = (event.clientY + h + 24 > innerHeight ? event.clientY - h - 12 : event.clientY + 16) + "px";
}
const hideTip = () => { tip.hidden = true; };

// dragging lets the pointer choose a stretch of time on an element whose inner
// part lies between LEFT and RIGHT.
function dragging(box, click) {
  const mark = el("div", "drag");
  let from = null;
  const time = (e) => {
    const r = box.getBoundingClientRect();
    const share = (e.clientX - r.left - LEFT) / (r.width - LEFT - RIGHT);
    return view.min + Math.min(Math.max(share, 0), 1) * (view.max - view.min);
  };
  box.addEventListener("pointerdown", (e) => {
    if (e.button === 0) from = { x: e.clientX, t: time(e), e };
  });
  addEventListener("pointermove", (e) => {
    if (!from || Math.abs(e.clientX - from.x) < 4) return;
    const r = box.getBoundingClientRect();
    const a = Math.max(Math.min(from.x, e.clientX), r.left + LEFT), b = Math.min(Math.max(from.x, e.clientX), r.right - RIGHT);
    mark.style.left = a - r.left + "px";
    mark.style.width = Math.max(b - a, 0) + "px";
    box.append(mark);
    hideTip();
  });
  addEventListener("pointerup", (e) => {
    if (!from) return;
    mark.remove();
    if (Math.abs(e.clientX - from.x) >= 4) view.set(...[from.t, time(e)].sort((a, b) => a - b));
    else if (box.contains(e.target)) click(e);
    from = null;
  });
  box.addEventListener("dblclick", () => view.reset());
  return time;
}

class HeatMap {
  // rows: [{name, get(): array of numbers or null}]; pick(row) is called on click.
  constructor(parent, grid, pick) {
    this.grid = grid;
    this.box = el("div", "heat");
    this.caption = el("div", "heat-caption");
    this.canvas = el("canvas");
    this.box.append(this.canvas);
    parent.append(this.caption, this.box);
    this.rows = [];
    this.on = -1;
    const time = dragging(this.box, (e) => {
      const row = this.rowAt(e);
      if (row >= 0) pick(row);
    });
    this.box.addEventListener("pointermove", (e) => {
      const row = this.rowAt(e);
      if (row < 0) return hideTip();
      const t = time(e), i = Math.min(Math.max(Math.floor((t - grid.begin) / grid.seconds), 0), grid.buckets - 1);
      showTip(e, [this.rows[row].name, this.metric.name + " " + amount(this.rows[row].get()[i], this.metric.unit), "at " + clock(t, true)]);
    });
    this.box.addEventListener("pointerleave", hideTip);
    view.watch.push(() => this.draw());
  }

  rowAt(e) {
    const r = this.canvas.getBoundingClientRect();
    const row = Math.floor(((e.clientY - r.top) / r.height) * this.rows.length);
    return e.clientX - r.left < LEFT - 84 || row < 0 || row >= this.rows.length ? -1 : row;
  }

  show(title, rows, metric, label) {
    this.rows = rows;
    this.metric = metric;
    const ramp = el("canvas", "ramp");
    ramp.width = 120;
    ramp.height = 1;
    const g = ramp.getContext("2d");
    for (let i = 0; i < 120; i++) {
      g.fillStyle = "rgb(" + viridis(i / 119).join() + ")";
      g.fillRect(i, 0, 1, 1);
    }
    this.caption.replaceChildren(el("b", "", title), el("span", "", "0"), ramp, el("span", "", amount(metric.max, metric.unit)));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  draw() {
    if (!this.rows.length) return;
    const dpr = devicePixelRatio || 1, width = this.box.clientWidth;
    const each = Math.max(Math.min(20, Math.floor(460 / this.rows.length)), 3);
    const height = each * this.rows.length;
    const c = this.canvas, g = c.getContext("2d");
    c.style.width = width + "px";
    c.style.height = height + "px";
    c.width = Math.round(width * dpr);
    c.height = Math.round(height * dpr);
    const x0 = Math.round(LEFT * dpr), columns = Math.max(c.width - x0 - Math.round(RIGHT * dpr), 1);
    const image = g.createImageData(columns, this.rows.length), { begin, seconds, buckets } = this.grid;
    // Each column of pixels shows the mean of the buckets that it covers.
    const from = new Int32Array(columns + 1);
    for (let x = 0; x <= columns; x++) from[x] = Math.floor((view.min + (x / columns) * (view.max - view.min) - begin) / seconds);
    this.rows.forEach((row, y) => {
      const v = row.get();
      for (let x = 0; x < columns; x++) {
        let sum = 0, n = 0;
        for (let i = Math.max(from[x], 0), to = Math.min(Math.max(from[x + 1], from[x] + 1), buckets); i < to; i++) {
          if (v[i] !== null) {
            sum += v[i];
            n++;
          }
        }
        if (!n) continue;
        const rgb = LUT[Math.round(Math.min(sum / n / (this.metric.max || 1), 1) * 255)], at = (y * columns + x) * 4;
        image.data[at] = rgb[0];
        image.data[at + 1] = rgb[1];
        image.data[at + 2] = rgb[2];
        image.data[at + 3] = 255;
      }
    });
    const small = new OffscreenCanvas(columns, this.rows.length);
    small.getContext("2d").putImageData(image, 0, 0);
    g.clearRect(0, 0, c.width, c.height);
    g.fillStyle = color("empty");
    g.fillRect(x0, 0, columns, c.height);
    g.imageSmoothingEnabled = false;
    g.drawImage(small, x0, 0, columns, c.height);
    this.labels(g, dpr, each);
  }

  labels(g, dpr, each) {
    g.font = 12 * dpr + "px system-ui, sans-serif";
    g.textAlign = "right";
    g.textBaseline = "middle";
    const every = Math.ceil(15 / each);
    this.rows.forEach((row, y) => {
      const cut = (y + 0.5) * each < 7 && every > 1; // the top row's would be
      if ((y % every || cut) && y !== this.on) return;
      g.fillStyle = y === this.on ? color("text") : color("muted");
      g.fillText(row.label, (LEFT - 8) * dpr, Math.max((y + 0.5) * each, 7) * dpr, 82 * dpr);
    });
    if (this.on >= 0) {
      g.strokeStyle = color("text");
      g.lineWidth = 2 * dpr;
      g.strokeRect(LEFT * dpr, this.on * each * dpr + dpr, g.canvas.width - (LEFT + RIGHT) * dpr, each * dpr - 2 * dpr);
    }
  }
}
