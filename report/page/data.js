// What the page holds: two blocks of gzip in base64. Nothing in them is ever made
// into HTML: text goes into textContent or onto a canvas.
const $ = (id) => document.getElementById(id);
const el = (tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
};

async function unpack(id) {
  const text = atob($(id).textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  $(id).remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// Curves of one kind (GPUs, hosts or ranks): value(subject, metric, which)
// returns an array, null where nothing was read. Which is 0 for means, 1 for
// the least, 2 for the greatest reading.
class Curves {
  constructor(kind, levels, grid) {
    this.kind = kind;
    this.levels = levels; // all numbers of this kind, quantised
    this.n = grid.buckets;
    this.seconds = grid.seconds;
    this.x = Array.from({ length: this.n }, (_, i) => grid.begin + (i + 0.5) * grid.seconds);
    this.cache = new Map();
  }

  raw(subject, metric, which) {
    const from = ((subject * this.kind.metrics.length + metric) * 3 + which) * this.n;
    return this.levels.subarray(from, from + this.n);
  }

  values(subject, metric, which) {
    const key = (subject * 64 + metric) * 3 + which;
    if (this.cache.has(key)) return this.cache.get(key);
    const { step, none } = this.kind.metrics[metric];
    const mean = this.raw(subject, metric, 0);
    const off = which ? this.raw(subject, metric, which) : mean;
    const out = new Array(this.n);
    for (let i = 0; i < this.n; i++) {
      if (mean[i] === none) out[i] = null;
      else if (which === 1) out[i] = (mean[i] - off[i]) * step;
      else if (which === 2) out[i] = (mean[i] + off[i]) * step;
      else out[i] = mean[i] * step;
    }
    if (this.cache.size > 400) this.cache.clear();
    this.cache.set(key, out);
    return out;
  }

  // Over several subjects, bucket by bucket: mean of the means, and the least
  // and greatest mean.
  together(subjects, metric) {
    const { step, none } = this.kind.metrics[metric];
    const mean = new Array(this.n).fill(null), low = new Array(this.n).fill(null), high = new Array(this.n).fill(null);
    const sum = new Float64Array(this.n), count = new Uint16Array(this.n), least = new Float64Array(this.n).fill(Infinity), most = new Float64Array(this.n);
    for (const s of subjects) {
      const raw = this.raw(s, metric, 0);
      for (let i = 0; i < this.n; i++) {
        const v = raw[i];
        if (v === none) continue;
        sum[i] += v;
        count[i]++;
        if (v < least[i]) least[i] = v;
        if (v > most[i]) most[i] = v;
      }
    }
    for (let i = 0; i < this.n; i++) {
      if (!count[i]) continue;
      mean[i] = (sum[i] / count[i]) * step;
      low[i] = least[i] * step;
      high[i] = most[i] * step;
    }
    return { mean, low, high };
  }

  has(metric) {
    return this.kind.metrics[metric].read;
  }
}

async function load() {
  const [text, bytes] = await Promise.all([unpack("facts"), unpack("curves")]);
  const facts = JSON.parse(new TextDecoder().decode(text));
  let at = 0;
  for (const name of ["gpus", "hosts", "ranks"]) {
    const kind = facts[name];
    const grid = name === "gpus" ? facts.grid : facts.slowGrid;
    const n = kind.subjects.length * kind.metrics.length * 3 * grid.buckets;
    const levels = facts.bits === 16 ? new Uint16Array(bytes, at, n) : new Uint8Array(bytes, at, n);
    at += levels.byteLength;
    kind.curves = new Curves(kind, levels, grid);
  }
  return facts;
}

const pad = (n) => String(n).padStart(2, "0");
// clock writes seconds since the begin: 1:09, 1:02:33, with tenths where asked.
function clock(seconds, fine) {
  const sign = seconds < 0 ? "-" : "";
  let s = Math.abs(seconds);
  if (!fine) s = Math.round(s);
  const h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60);
  const rest = fine ? (s % 60).toFixed(1).padStart(4, "0") : pad(Math.floor(s % 60));
  return sign + (h ? h + ":" + pad(m) : m) + ":" + rest;
}
const utc = (facts, seconds) => new Date(facts.beginMS + seconds * 1000).toISOString().slice(0, 23).replace("T", " ") + " UTC";
function amount(v, unit) {
  if (v === null || v === undefined) return "–";
  const digits = unit === "%" || unit === "W" || unit === "MHz" || unit === "°C" ? 0 : Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2;
  return v.toFixed(digits) + " " + unit;
}
const gpuName = (g) => (g.node ? g.node + " " : "") + "GPU " + g.gpu;
const whoName = (g) => (g.rank === null ? gpuName(g) : "rank " + g.rank + " (" + gpuName(g) + ")");

// color resolves a CSS variable of the page to what a canvas understands.
const probe = document.createElement("i");
document.documentElement.append(probe);
probe.hidden = true;
let colors = {};
function color(name) {
  if (!colors[name]) {
    probe.style.color = "var(--" + name + ")";
    colors[name] = getComputedStyle(probe).color;
  }
  return colors[name];
}
const fade = (rgb, alpha) => rgb.replace(/^rgb\((.*)\)$/, "rgba($1, " + alpha + ")");

// The part of the run that is shown; every picture follows it.
const view = {
  min: 0, max: 1, whole: [0, 1], watch: [],
  set(min, max) {
    const [a, b] = this.whole;
    const least = (b - a) / 5000;
    if (max - min < least) {
      const mid = (min + max) / 2;
      min = mid - least / 2;
      max = mid + least / 2;
    }
    min = Math.max(a, min);
    max = Math.min(b, max);
    if (min === this.min && max === this.max) return;
    this.min = min;
    this.max = max;
    for (const w of this.watch) w();
  },
  reset() { this.set(...this.whole); },
  out() {
    const w = (this.max - this.min) / 2;
    this.set(this.min - w, this.max + w);
  },
};
