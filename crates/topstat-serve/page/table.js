// SPDX-License-Identifier: Apache-2.0 OR MIT
// A table: its total over time, an instant of it, and its rows.
import { documentUrl, pointOf, snapshot } from "./api.js";
import { Chart, Palette, SERIES, gapOf, inWords, stack } from "./chart.js";
import { h, open, place, text } from "./dom.js";
import { Rows, columnsOf, fitting, sorted } from "./rows.js";
import { sentence } from "./trust.js";
import { clean, isCpu, percent, show, stamp } from "./units.js";

const SPANS = { "5m": 5, "15m": 15, "1h": 60, "6h": 360, "24h": 1440, "7d": 10080 };
/** Points of the chart that the server is asked for. */
const POINTS = 400;
/** Rows that are shown unless the user wants more, and the most. */
const ROWS = 50;
const MOST_ROWS = 1024;
/** The history is read again after this time in ms while the chart is live. */
const AGAIN = 30e3;

const quoted = (value) => `'${value.replaceAll("'", "'\\''")}'`;

export class Table {
  isTable = true;
  palette = new Palette();
  /** The time under the pointer, in ms. */
  hovered = null;
  #abort = null;
  #recalled = 0;
  #window = null;
  #doc = null;
  #error = null;
  #busy = false;

  constructor(app, key) {
    this.app = app;
    this.key = key;
    this.meta = app.tables.get(key);
    this.keys = [key];
    this.rows = new Rows({ sort: (name) => this.#sort(name), filter: (term) => this.#narrow(term), redraw: () => this.#drawRows() });
    this.#build();
  }

  #build() {
    const { app, key } = this;
    const keys = [...app.tables.keys()];
    const beside = (step) => keys[(keys.indexOf(key) + step + keys.length) % keys.length];
    this.filter = h("input", {
      type: "search",
      id: "filter",
      placeholder: "comm:nginx port:443 value>1M !ip:10.0.0.0/8",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "filter",
      "aria-describedby": "fault",
      maxlength: 500,
      oninput: () => this.#type(),
      onkeydown: (event) => event.key === "Escape" && this.filter.blur(),
    });
    this.fault = h("p", { id: "fault", class: "fault", role: "alert" });
    this.span = h(
      "select",
      { "aria-label": "time in the chart", onchange: () => app.go({ ...app.state, span: this.span.value }) },
      ...Object.keys(SPANS).map((name) => h("option", { value: name }, name)),
    );
    this.before = h(
      "button",
      { type: "button", onclick: () => this.step(-1), title: "the reading before (←)", "aria-label": "the reading before" },
      "◀",
    );
    this.after = h(
      "button",
      { type: "button", onclick: () => this.step(1), title: "the next reading (→)", "aria-label": "the next reading" },
      "▶",
    );
    this.when = h("span", { class: "when" });
    this.live = h("button", { type: "button", class: "live", onclick: () => this.toLive(), title: "back to live (l)" }, "live");
    this.json = h("a", { target: "_blank", rel: "noopener" }, "JSON");
    this.csv = h("a", { download: `${key.replace(/\W/g, "_")}.csv` }, "CSV");
    this.chosen = h("button", { type: "button", onclick: () => this.#choose() }, "columns");
    this.plot = h("div", { class: "plot", role: "img" });
    this.legend = h("ul", { class: "legend" });
    this.trust = h("p", { class: "trust" });
    this.note = h("p", { class: "note" }, "loading …");
    this.more = h("button", { type: "button", hidden: true, onclick: () => app.go({ ...app.state, n: String(MOST_ROWS) }) });
    this.command = h("code");
    this.scroll = h("div", { class: "scroll" }, this.rows.element);
    this.element = h(
      "div",
      { class: "table" },
      h(
        "div",
        { class: "heading" },
        h("h1", {}, clean(key)),
        h("span", { class: "about" }, clean(this.meta.about)),
        h(
          "span",
          { class: "beside" },
          h("a", { href: app.hash({ key: beside(-1) }), title: `${clean(beside(-1))} ([)`, "aria-label": "table before" }, "‹"),
          h("a", { href: app.hash({ key: beside(1) }), title: `${clean(beside(1))} (])`, "aria-label": "next table" }, "›"),
        ),
      ),
      h(
        "div",
        { class: "tools" },
        h("div", { class: "field" }, this.filter, h("kbd", {}, "/")),
        h("div", { class: "time" }, this.before, this.when, this.after, this.live),
        this.span,
      ),
      this.fault,
      this.plot,
      this.legend,
      this.trust,
      h("div", { class: "tools under" }, (this.count = h("span", { class: "count" })), this.chosen, this.json, this.csv),
      this.scroll,
      this.note,
      this.more,
      h("p", { class: "shell" }, "in a shell: ", this.command),
    );
    this.resize = new ResizeObserver(() => this.#drawRows());
    this.resize.observe(this.scroll);
  }

  async begin() {
    this.apply(this.app.state);
    if (!document.getElementById("uplot")) document.head.append(h("link", { id: "uplot", rel: "stylesheet", href: "uPlot.css" }));
    const { default: uPlot } = await import("./uPlot.js");
    if (this.ended) return;
    this.chart = new Chart(
      uPlot,
      this.plot,
      { ...this.meta, ...this.#kind() },
      (t) => this.pick(t),
      (t) => this.#hover((this.hovered = t)),
    );
    this.#drawChart();
  }

  end() {
    this.ended = true;
    this.#abort?.abort();
    this.resize.disconnect();
    this.chart?.remove();
  }

  #kind() {
    const last = this.app.store.last(this.key);
    return last ? { unit: last.unit, type: last.type, period_ms: last.period_ms } : {};
  }

  get at() {
    const at = Date.parse(this.app.state.at ?? "");
    return Number.isNaN(at) ? null : at;
  }

  get #length() {
    return (SPANS[this.app.state.span] ?? SPANS["15m"]) * 60e3;
  }

  /** Follows a changed address. */
  apply(state) {
    if (document.activeElement !== this.filter) this.filter.value = state.filter ?? "";
    this.span.value = state.span in SPANS ? state.span : "15m";
    const at = this.at;
    const to = at === null ? Date.now() : Math.min(Date.now(), at + this.#length / 2);
    const kept =
      at !== null && this.#window && at >= this.#window[0] && at <= this.#window[1] && this.#window[1] - this.#window[0] === this.#length;
    if (at === null) this.#window = null;
    else if (!kept) this.#window = [to - this.#length, to];
    text(this.when, at === null ? "live" : stamp(at));
    this.live.hidden = at === null;
    this.element.classList.toggle("past", at !== null);
    const options = { filter: state.filter, n: state.n, at: state.at };
    this.json.href = documentUrl(this.key, options);
    this.csv.href = documentUrl(this.key, { ...options, format: "csv" });
    text(
      this.command,
      [
        "topstat top",
        clean(this.key),
        state.filter && `-f ${quoted(clean(state.filter, 500))}`,
        at !== null && `--at ${quoted(new Date(at).toISOString())}`,
        state.n && `-n ${clean(state.n, 5)}`,
      ]
        .filter(Boolean)
        .join(" "),
    );
    this.#recall(true);
    this.#read();
    this.#drawChart();
  }

  /** Reads the document of the shown instant, or the filtered one, if memory does not have it. */
  async #read() {
    const { state, store } = this.app;
    const at = this.at;
    const kept = at === null ? store.last(this.key) : store.at(this.key, at);
    if (!state.filter && kept) {
      this.#abort?.abort();
      this.scroll.setAttribute("aria-busy", false);
      return this.#show(kept);
    }
    if (at === null && this.#busy && this.#busy === state.filter) return;
    this.#abort?.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.#busy = state.filter ?? "";
    this.scroll.setAttribute("aria-busy", at !== null);
    try {
      const doc = await snapshot(this.key, { filter: state.filter, n: state.n, at: state.at }, signal);
      if (!signal.aborted) this.#show(doc);
    } catch (error) {
      if (signal.aborted) return;
      this.#error = error;
      if (!state.filter || at !== null) this.#doc = null;
      this.#drawRows();
    } finally {
      if (this.#abort?.signal === signal) {
        this.#busy = false;
        this.scroll.setAttribute("aria-busy", false);
      }
    }
  }

  #show(doc) {
    this.#error = null;
    this.#doc = doc;
    this.app.store.learn(doc);
    this.#drawChart();
    this.#drawRows();
  }

  async #recall(now) {
    const [from, to] = this.#window ?? [Date.now() - this.#length, Date.now()];
    if (!now && Date.now() - this.#recalled < AGAIN) return;
    this.#recalled = Date.now();
    const meta = { ...this.meta, ...this.#kind() };
    if (await this.app.recall(meta, from, to, POINTS)) this.#drawChart();
  }

  snapshot(key) {
    if (key !== this.key || this.app.isFrozen) return;
    if (this.at === null) {
      this.#read();
      if (this.#length > 20 * 60e3) this.#recall(false);
    }
    this.#drawChart();
  }

  hostRead() {}

  tick() {
    if (this.at === null) this.#drawTrust();
  }

  #points() {
    const [from, to] = this.#range();
    return this.app.store.of(this.key).points.filter((point) => point.t >= from - 60e3 && point.t <= to);
  }

  #range() {
    const last = this.app.store.of(this.key).points.at(-1)?.t ?? Date.now();
    return this.#window ?? [last - this.#length, last];
  }

  #drawChart() {
    if (!this.chart) return;
    const points = this.#points();
    const [from, to] = this.#range();
    this.chart.meta = { ...this.meta, ...this.#kind() };
    this.palette.choose(points, this.#shownPoint(points));
    this.chart.draw(stack(points, this.palette, gapOf(points, 6000)), from, to, this.at);
    this.plot.setAttribute("aria-label", inWords(this.chart.meta, points));
    this.plot.classList.toggle("nothing", !points.length);
    this.#hover(this.hovered);
  }

  /** The shown document as a point; points of the history are farther apart than documents. */
  #shownPoint(points) {
    const at = this.at;
    if (at === null) return points.at(-1);
    return this.#doc && !this.#doc.filter ? pointOf(this.#doc, this.#doc) : points.findLast((point) => point.t <= at + 1);
  }

  /** The legend has the values at the instant under the pointer, or else at the shown one. */
  #hover(t) {
    const points = this.#points();
    const point = t === null ? this.#shownPoint(points) : points.findLast((point) => point.t <= t + 1);
    const meta = { ...this.meta, ...this.#kind() };
    const sum = this.palette.slots.reduce((sum, label) => sum + (point?.rows.get(label) ?? 0), 0);
    const entries = this.palette.slots
      .map((label, slot) => [slot, label, point?.rows.get(label) ?? 0])
      .filter(([, label]) => label !== null);
    if (point) entries.push([SERIES, "other", Math.max(0, point.total - sum)]);
    const whole = (point?.total ?? 0) + (point?.idle ?? 0);
    this.entries ??= new Map();
    place(this.legend, [
      ...entries.map(([slot, label, value]) => this.#entry(slot, this.app.store.name(label), show(meta, value), percent(value / whole))),
      ...(point ? [this.#entry("total", t === null ? (isCpu(meta) ? "busy" : "total") : stamp(point.t), show(meta, point.total), "")] : []),
    ]);
  }

  #entry(slot, label, value, share) {
    let parts = this.entries.get(slot);
    if (!parts) {
      parts = { label: h("span", { class: "label" }), value: h("span", { class: "value" }) };
      parts.element = h("li", { "data-s": slot }, parts.label, " ", parts.value);
      this.entries.set(slot, parts);
    }
    text(parts.label, label);
    parts.label.title = label;
    text(parts.value, share ? `${value} · ${share}` : value);
    return parts.element;
  }

  #drawTrust() {
    if (!this.#doc) return text(this.trust, "");
    const stale = this.at === null ? this.app.staleFor(this.key) : 0;
    const losses =
      this.at === null
        ? this.app.store.of(this.key).losses
        : Object.entries(this.#doc.lost_now)
            .filter(([, count]) => count)
            .map(([cause, count]) => [0, cause, count]);
    const [good, words] = sentence(this.#doc, losses, stale);
    const taken = this.at === null ? "" : `As of ${stamp(Date.parse(this.#doc.time))}. `;
    text(this.trust, `${good ? "✓" : "▲"} ${taken}${words}`);
    this.trust.classList.toggle("good", good);
    this.trust.classList.toggle("bad", !good);
    this.element.classList.toggle("stale", stale > 0);
  }

  #drawRows() {
    const { state } = this.app;
    const fault = this.#error && state.filter && this.#error.status === 400;
    text(this.fault, fault ? `${clean(this.#error.message, 300)}` : "");
    this.filter.setAttribute("aria-invalid", Boolean(fault));
    const doc = this.#doc;
    this.scroll.hidden = !doc;
    if (!doc) {
      text(this.note, this.#error ? clean(this.#error.message, 400) : "loading …");
      text(this.count, "");
      text(this.trust, "");
      return;
    }
    text(
      this.note,
      this.#error && !fault
        ? clean(this.#error.message, 300)
        : doc.rows.length
          ? ""
          : doc.filter
            ? "no row matches the filter"
            : "nothing was counted in this time",
    );
    const columns = columnsOf(doc, this.meta);
    this.columns = columns.map(({ name }) => name);
    const most = Number(state.n) || ROWS;
    const rows = sorted(doc.rows, columns, state.sort).slice(0, most);
    const shown = fitting(columns, rows, this.scroll.clientWidth, state.cols?.split(","));
    this.rows.draw(doc, shown, columns, rows, state.sort, this.palette, `Rows of ${clean(this.key)}`);
    this.shown = shown.map(({ name }) => name);
    const hidden = columns.length - shown.length;
    text(this.chosen, hidden ? `columns (${hidden} more)` : "columns");
    const matched = doc.filter ? `${doc.filter.matched} of ${doc.filter.of} rows match` : `${rows.length} rows`;
    text(this.count, `${matched}, ${doc.objects} objects`);
    this.more.hidden = rows.length >= doc.rows.length && !(rows.length === most && most < MOST_ROWS && doc.rows.length > most);
    text(this.more, `show all ${doc.rows.length} rows`);
    this.#drawTrust();
  }

  #sort(name) {
    const down = ["value", "share"].includes(name) || this.#doc?.rows.some((row) => typeof row[name] === "number" && name !== "rank");
    const [first, second] = down ? [`-${name}`, name] : [name, `-${name}`];
    const { sort } = this.app.state;
    this.app.go({ ...this.app.state, sort: sort === first ? second : sort === second ? null : first });
  }

  #narrow(term) {
    const { filter } = this.app.state;
    this.app.go({ ...this.app.state, filter: filter ? `${filter} ${term}` : term });
    this.filter.value = this.app.state.filter;
  }

  #type() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      const first = !this.app.state.filter;
      this.app.go({ ...this.app.state, filter: this.filter.value.trim() || null }, !first);
    }, 300);
  }

  /** Shows the table as it was at `t`, in ms. The first step into the past can be undone by the browser's "back". */
  pick(t) {
    const last = this.app.store.of(this.key).points.at(-1)?.t ?? Date.now();
    if (t > last) return this.toLive();
    // The chart stands still from here on.
    this.#window ??= this.#range();
    this.app.go({ ...this.app.state, at: new Date(t).toISOString() }, this.at !== null);
  }

  step(count) {
    const points = this.#points();
    if (!points.length) return;
    const at = this.at ?? Infinity;
    const now = points.findLastIndex((point) => point.t <= at);
    const next = points[Math.max(0, now + count)];
    if (!next || (count > 0 && next === points.at(-1) && !this.#window)) return this.toLive();
    if (now + count >= points.length) return this.toLive();
    this.pick(next.t);
  }

  toLive() {
    if (this.at !== null) this.app.go({ ...this.app.state, at: null });
  }

  /** The dialog of columns. */
  #choose() {
    const dialog = document.getElementById("choice");
    const list = (this.columns ?? []).map((name) =>
      h("label", {}, h("input", { type: "checkbox", value: name, checked: this.shown.includes(name) }), ` ${clean(name, 40)}`),
    );
    const apply = (value) => {
      dialog.close();
      this.app.go({ ...this.app.state, cols: value });
    };
    dialog.replaceChildren(
      h("h2", {}, "Columns"),
      h("div", { class: "checks" }, ...list),
      h(
        "div",
        { class: "buttons" },
        h(
          "button",
          {
            type: "button",
            onclick: () =>
              apply(
                list
                  .map((label) => label.firstChild)
                  .filter((box) => box.checked)
                  .map((box) => box.value)
                  .join(",") || null,
              ),
          },
          "show these",
        ),
        h("button", { type: "button", onclick: () => apply("all") }, "all"),
        h("button", { type: "button", onclick: () => apply(null) }, "what fits"),
      ),
    );
    open(dialog);
  }
}
