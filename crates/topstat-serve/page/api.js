// SPDX-License-Identifier: Apache-2.0 OR MIT
// The server's API: documents, the stream, and the readings that the page keeps in memory.
import { brief, clean, isIdle, names, rate, span } from "./units.js";

const ROOT = "/api/v1";
/** The most readings in memory of each table as points of a chart: half an hour at 2 s. */
const POINTS = 900;
/** Points of the history beside these. */
const RECALLED = 1000;
/** The most whole documents in memory of each table. */
const DOCUMENTS = 150;
/** The rows of a reading that are kept as points of a chart. */
const POINT_ROWS = 12;
/** The most objects whose names are in memory. */
const NAMES = 5000;
/** The longest wait before the stream is opened again, in ms. */
const LONGEST_WAIT = 15000;
/** A reading is stale after this number of intervals without another. */
const STALE_AFTER = 3;

export const pathOf = (key) => key.split("/").map(encodeURIComponent).join("/");

/** The address of a document: `options` has filter, n, at and format. */
export function documentUrl(key, options = {}) {
  const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value));
  return `${ROOT}/tables/${pathOf(key)}${query.size ? `?${query}` : ""}`;
}

/** Reads JSON. Throws an Error with the server's reason, and the status in `status`. */
export async function get(url, signal) {
  let response;
  try {
    response = await fetch(url, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; the page tries again");
  }
  const text = await response.text();
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // The status line says enough.
  }
  if (response.ok && value !== null) return value;
  const why = typeof value?.error === "string" ? value.error : `the server answered ${response.status} ${response.statusText}`;
  throw Object.assign(new Error(why), { status: response.status });
}

export const tables = () => get(`${ROOT}/tables`);
export const snapshot = (key, options, signal) => get(documentUrl(key, options), signal);
export const host = () => get(`${ROOT}/host`);

/** Points of a table between two times in ms; an empty list where no history is kept. */
export async function history(meta, from, to, points, signal) {
  const query = new URLSearchParams({ from: new Date(from).toISOString(), to: new Date(to).toISOString(), points });
  try {
    const found = await get(`${ROOT}/history/${pathOf(`${meta.sample}/${meta.table}`)}?${query}`, signal);
    const facts = { ...meta, type: found.type ?? meta.type, period_ms: found.period_ms || meta.period_ms };
    return found.points.map((point) => pointOf(facts, point, (row) => String(row.label)));
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

/** A reading as a point of a chart, in values per second; the idle time of CPUs is in `idle`, not in `total`. */
export function pointOf(meta, doc, label = (row) => brief(row.object)) {
  const scale = rate({ type: meta.type, period_ms: meta.period_ms, ...doc }, 1);
  const point = { t: Date.parse(doc.time), total: doc.total * scale, idle: 0, rows: new Map() };
  for (const row of doc.rows.slice(0, POINT_ROWS)) {
    const name = label(row);
    if (isIdle(meta, name)) point.idle += row.value * scale;
    else point.rows.set(name, (point.rows.get(name) ?? 0) + row.value * scale);
  }
  point.total -= point.idle;
  return point;
}

/** What is in memory of each table, by its path. */
export class Store {
  #tables = new Map();
  #names = new Map();

  of(key) {
    if (!this.#tables.has(key)) this.#tables.set(key, { points: [], documents: [], losses: [], at: 0 });
    return this.#tables.get(key);
  }

  /** An object's name for people and its remark, by its label; the label itself if the object was not read. */
  name(label) {
    const [name, remark] = this.#names.get(label) ?? [clean(label, 80), ""];
    return remark ? `${name} ${remark}` : name;
  }

  /** Keeps the names of a document's first objects. */
  learn(doc) {
    if (this.#names.size > NAMES) this.#names.clear();
    for (const { object } of doc.rows.slice(0, POINT_ROWS)) this.#names.set(brief(object), names(object));
  }

  add(key, doc) {
    const kept = this.of(key);
    kept.error = null;
    this.learn(doc);
    const point = pointOf(doc, doc);
    if (kept.documents.length && point.t <= Date.parse(kept.documents.at(-1).time)) return;
    kept.points = kept.points.filter(({ t }) => t < point.t);
    kept.at = performance.now();
    kept.points.push(point);
    kept.documents.push(doc);
    const lost = Object.entries(doc.lost_now ?? {}).filter(([, count]) => count > 0);
    kept.losses = kept.losses.filter(([t]) => t > point.t - 60e3).concat(lost.map(([cause, count]) => [point.t, cause, count]));
    if (kept.points.length > POINTS + RECALLED) kept.points.shift();
    if (kept.documents.length > DOCUMENTS) kept.documents.shift();
  }

  /** Puts points of the history, which are those between two times in ms, beside those that were read live. */
  recall(key, points, from, to) {
    const kept = this.of(key);
    const first = kept.documents.length ? Date.parse(kept.documents[0].time) : Infinity;
    const live = kept.points.findIndex((point) => !point.recalled);
    const seen = live < 0 ? Infinity : Math.min(first, kept.points[live].t);
    for (const point of points) point.recalled = true;
    kept.points = kept.points
      .filter((point) => !point.recalled || point.t < from || point.t > to)
      .concat(points.filter((point) => point.t < seen))
      .sort((a, b) => a.t - b.t);
  }

  last(key) {
    return this.of(key).documents.at(-1) ?? null;
  }

  /** The document in memory that was the present one at `t`, in ms, or null. */
  at(key, t) {
    const doc = this.of(key).documents.findLast((doc) => Date.parse(doc.time) <= t);
    return doc && t - Date.parse(doc.time) <= 2 * Math.max(span(doc), 2500) ? doc : null;
  }
}

/**
 * The stream of snapshots. It opens itself again after a failure, sooner first, then each 15 s; it closes while the page is
 * hidden. Events: `snapshot`, `host` and `fault` with `detail`, and `state`.
 */
export class Stream extends EventTarget {
  state = "connecting";
  /** When the last event came, by performance.now(). */
  last = 0;
  #source = null;
  #timer = 0;
  failures = 0;
  #url = "";

  constructor(interval) {
    super();
    this.interval = interval;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close("paused") : this.#open()));
    addEventListener("online", () => this.#open());
    setInterval(() => this.#watch(), 1000);
  }

  /** Follows these tables from now on. */
  follow(keys) {
    const query = new URLSearchParams([...keys.map((key) => ["table", key]), ["interval", `${this.interval / 1000}s`]]);
    const url = `${ROOT}/stream?${query}`;
    if (url === this.#url) return;
    this.#url = url;
    this.failures = 0;
    this.#open();
  }

  get isStale() {
    return performance.now() - this.last > STALE_AFTER * this.interval;
  }

  #set(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #close(state) {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#set(state);
  }

  #open() {
    this.#close(this.failures ? "reconnecting" : "connecting");
    if (!this.#url || document.hidden) return;
    const source = new EventSource(this.#url);
    this.#source = source;
    this.opened = performance.now();
    for (const type of ["snapshot", "host", "fault"])
      source.addEventListener(type, (event) => {
        let detail;
        try {
          detail = JSON.parse(event.data);
        } catch {
          return;
        }
        this.failures = 0;
        this.last = performance.now();
        this.#set("live");
        this.dispatchEvent(new CustomEvent(type, { detail }));
      });
    source.onerror = () => this.#retry();
  }

  #retry() {
    this.#close("reconnecting");
    const wait = Math.min(LONGEST_WAIT, 500 * 2 ** this.failures) * (0.75 + Math.random() / 2);
    this.failures += 1;
    this.#timer = setTimeout(() => this.#open(), wait);
  }

  /** A connection that is open and silent is opened anew: the other end may be gone without a word. */
  #watch() {
    const since = Math.max(this.last, this.opened ?? 0);
    if (this.#source && performance.now() - since > Math.max(10000, 5 * this.interval)) this.#retry();
  }
}
