// SPDX-License-Identifier: Apache-2.0 OR MIT
// Charts: small ones as SVG, and the large one by uPlot. Series are the largest rows and `other`.
import { clock, isCpu, show, stamp } from "./units.js";

/** The rows that have a colour. */
export const SERIES = 5;
const powers = (base, most, steps = [1]) => Array.from({ length: most }, (_, power) => steps.map((step) => step * base ** power)).flat();
const TENS = powers(10, 21, [1, 2, 5]).map((number) => number / 100);
/** Distances of the lines of an axis, round in the unit's own steps; of other units these are tens. */
const INCREMENTS = {
  bytes: powers(2, 62),
  nanoseconds: [
    ...TENS.filter((ns) => ns < 1e10),
    ...[10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200, ...powers(2, 20, [86400])].map((s) => s * 1e9),
  ],
};
const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Colours of labels: a label keeps its colour as long as it is among the first. */
export class Palette {
  slots = Array(SERIES).fill(null);

  /** Chooses the largest labels of these points; those of `now` weigh more, so that the present top has colours. */
  choose(points, now) {
    const sums = new Map();
    for (const { rows } of points) for (const [label, value] of rows) sums.set(label, (sums.get(label) ?? 0) + value);
    for (const [label, value] of now?.rows ?? []) sums.set(label, (sums.get(label) ?? 0) + value * points.length * 2);
    const first = [...sums]
      .sort((a, b) => b[1] - a[1])
      .slice(0, SERIES)
      .map(([label]) => label);
    this.slots = this.slots.map((label) => (first.includes(label) ? label : null));
    for (const label of first.filter((label) => !this.slots.includes(label))) this.slots[this.slots.indexOf(null)] = label;
  }

  /** The place of a label's colour; that of `other` for all others. */
  of(label) {
    const place = this.slots.indexOf(label);
    return place < 0 ? SERIES : place;
  }
}

/** Sums from the bottom up, of each series and `other`: an array of each series, with null where no reading was. */
export function stack(points, palette, gap) {
  const times = [];
  const sums = Array.from({ length: SERIES + 1 }, () => []);
  let before = null;
  for (const point of points) {
    if (before !== null && point.t - before > gap) {
      times.push(before + 1);
      for (const series of sums) series.push(null);
    }
    before = point.t;
    times.push(point.t);
    let sum = 0;
    palette.slots.forEach((label, place) => {
      sum += (label !== null && point.rows.get(label)) || 0;
      sums[place].push(sum);
    });
    sums[SERIES].push(Math.max(point.total, sum));
  }
  return { times, sums };
}

/** The longest time between two points that belong together: a missing reading leaves a gap. */
export function gapOf(points, least) {
  const steps = points
    .slice(1)
    .map((point, place) => point.t - points[place].t)
    .sort((a, b) => a - b);
  return Math.max(least, 3 * (steps[steps.length >> 1] ?? 0));
}

/** The path of an area between 0 and `values`, in a box of width × height. */
function area(times, values, from, to, most, width, height) {
  let path = "";
  let start = 0;
  let last = 0;
  values.forEach((value, place) => {
    const x = (((times[place] - from) / (to - from)) * width).toFixed(1);
    if (value === null) {
      if (path && !path.endsWith("Z")) path += `L${last} ${height}Z`;
      return;
    }
    const y = (height - (value / most) * height).toFixed(1);
    if (!path || path.endsWith("Z")) {
      start = x;
      path += `M${start} ${height}`;
    }
    path += `L${x} ${y}`;
    last = x;
  });
  return path && !path.endsWith("Z") ? `${path}L${last} ${height}Z` : path;
}

/** A small stacked chart of the last `length` ms. */
export class Spark {
  static WIDTH = 300;
  static HEIGHT = 48;

  constructor(series = SERIES + 1, label = "") {
    this.paths = Array.from({ length: series }, (_, place) => svg("path", { class: `s${series === 1 ? "line" : place}` }));
    this.element = svg("svg", {
      viewBox: `0 0 ${Spark.WIDTH} ${Spark.HEIGHT}`,
      preserveAspectRatio: "none",
      class: "spark",
      role: "img",
    });
    this.element.append(...this.paths.toReversed());
    this.element.setAttribute("aria-label", label);
  }

  /** `times` and `sums` are those of `stack`; `most` is the value at the top. */
  draw({ times, sums }, to, length, most) {
    sums.forEach((values, place) => {
      const path = area(times, values, to - length, to, most || 1, Spark.WIDTH, Spark.HEIGHT);
      this.paths[place].setAttribute("d", path);
    });
  }
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The large chart of a table. `pick` is called with the time in ms of an instant that the user chose. */
export class Chart {
  #plot = null;
  #data = null;

  constructor(uPlot, parent, meta, pick, hover) {
    this.uPlot = uPlot;
    this.parent = parent;
    this.meta = meta;
    this.pick = pick;
    this.hover = hover;
    this.at = null;
    this.#make();
    this.resize = new ResizeObserver(() => this.#fit());
    this.resize.observe(parent);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.remake = () => this.#make();
    this.scheme.addEventListener("change", this.remake);
  }

  remove() {
    this.resize.disconnect();
    this.scheme.removeEventListener("change", this.remake);
    this.#plot?.destroy();
  }

  #size() {
    return { width: Math.max(200, this.parent.clientWidth), height: innerWidth < 600 ? 170 : 240 };
  }

  #fit() {
    const { width, height } = this.#size();
    if (this.#plot && (this.#plot.width !== width || this.#plot.height !== height)) this.#plot.setSize({ width, height });
  }

  #make() {
    this.#plot?.destroy();
    const axis = {
      stroke: color("--dim"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const series = Array.from({ length: SERIES + 1 }, (_, place) => ({
      fill: color(`--s${place}`),
      stroke: color(`--s${place}`),
      width: 1,
      points: { show: false },
    }));
    const options = {
      ...this.#size(),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: true }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] } },
      axes: [
        {
          ...axis,
          size: 26,
          gap: 4,
          values: (_, ticks) => ticks.map((t) => clock(t * 1000).slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5)),
          space: 70,
        },
        {
          ...axis,
          size: 82,
          incrs: isCpu(this.meta) ? TENS : (INCREMENTS[this.meta.unit] ?? TENS),
          values: (_, ticks) => ticks.map((value) => show(this.meta, value)),
          space: 36,
        },
      ],
      // Largest first: each series covers the lower part of the one before.
      series: [{}, ...series.toReversed()],
      hooks: {
        draw: [(plot) => this.#mark(plot)],
        setCursor: [(plot) => this.hover(plot.cursor.idx == null ? null : plot.data[0][plot.cursor.idx] * 1000)],
        ready: [(plot) => this.#drag(plot)],
      },
    };
    this.#plot = new this.uPlot(options, this.#data ?? [[], ...series.map(() => [])], this.parent);
  }

  #drag(plot) {
    const choose = (event) => {
      const box = plot.over.getBoundingClientRect();
      const x = Math.min(Math.max(event.clientX - box.left, 0), box.width);
      this.pick(plot.posToVal(x, "x") * 1000);
    };
    plot.over.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      plot.over.setPointerCapture(event.pointerId);
      choose(event);
    });
    plot.over.addEventListener("pointermove", (event) => event.buttons & 1 && choose(event));
  }

  #mark(plot) {
    if (this.at === null) return;
    const x = plot.valToPos(this.at / 1000, "x", true);
    const { left, top, width, height } = plot.bbox;
    if (x < left || x > left + width) return;
    plot.ctx.save();
    plot.ctx.strokeStyle = color("--text");
    plot.ctx.lineWidth = 2 * devicePixelRatio;
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, top);
    plot.ctx.lineTo(x, top + height);
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  draw({ times, sums }, from, to, at) {
    this.at = at;
    this.#data = [times.map((t) => t / 1000), ...sums.toReversed()];
    this.#plot.batch(() => {
      this.#plot.setData(this.#data, false);
      this.#plot.setScale("x", { min: from / 1000, max: to / 1000 });
      const seen = this.#data[1].filter((value, place) => value !== null && times[place] >= from && times[place] <= to);
      this.#plot.setScale("y", { min: 0, max: Math.max(0, ...seen) });
    });
  }
}

/** The words for a chart, for those who do not see it. */
export const inWords = (meta, points) =>
  points.length
    ? `Total from ${stamp(points[0].t)} to ${stamp(points.at(-1).t)}: now ${show(meta, points.at(-1).total)}, at most ` +
      `${show(meta, Math.max(...points.map((point) => point.total)))}`
    : "No readings yet";
