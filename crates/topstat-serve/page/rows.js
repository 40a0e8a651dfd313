// SPDX-License-Identifier: Apache-2.0 OR MIT
// The rows of a document as a table: columns that fit, sorted by a column, with all fields of a row on request.
import { SERIES } from "./chart.js";
import { h, place, text } from "./dom.js";
import { brief, clean, exact, filterOf, isCpu, isIdle, percent, rate, show } from "./units.js";

/** Columns in the order in which they get room; others come after these. */
const FIRST = ["comm", "counter", "host", "port", "dev", "device", "dip", "dport", "sport", "cgroup", "sip", "proto", "side", "pid"];
/** The most characters of a text in a cell. */
const WIDEST = 44;
/** Pixels beside a text in a cell, with a narrow page and else; the least width of the share's bar; the width of the last column. */
const BESIDE = [15, 21];
const BAR = 84;
const LAST = 38;
/** Measures texts. */
const pen = document.createElement("canvas").getContext("2d");

const FIGURES = new Set(["rank", "value", "object", "cpus"]);

/** All columns of a document: name, title, kind (number or text), `of` a row to its value for sorting, `show` to its text. */
export function columnsOf(doc, meta) {
  const parts = [...new Set(doc.rows.flatMap((row) => Object.keys(row)))].filter((name) => !FIGURES.has(name));
  const described = Array.isArray(meta.columns)
    ? meta.columns.map((column) => column?.name ?? column).filter((name) => typeof name === "string")
    : [];
  const found = new Set(doc.rows.flatMap((row) => Object.keys(row.object)));
  const fields = doc.rows.length ? [...found] : described.filter((name) => name !== "value" && !FIGURES.has(name));
  const value = (name) => ({
    name,
    kind: "number",
    of: (row) => row[name],
    show: (row) => (row[name] === undefined ? "" : show(doc, rate(doc, row[name]))),
  });
  const whole = rate(doc, doc.total);
  return [
    { name: "rank", title: "#", kind: "number", of: (row) => row.rank, show: (row) => String(row.rank) },
    {
      ...value("value"),
      title: isCpu(doc) ? "cpu%" : (doc.unit === "nanoseconds" ? "time" : clean(doc.unit, 30)) + (doc.type === "static" ? "" : "/s"),
    },
    { name: "share", kind: "number", of: (row) => row.value, show: (row) => percent(rate(doc, row.value) / whole) },
    ...parts.map((name) => ({ ...value(name), part: true })),
    ...fields.map((name) => {
      const isNumber = doc.rows.some((row) => typeof row.object[name] === "number");
      return {
        name,
        kind: isNumber ? "number" : "text",
        field: true,
        of: (row) => row.object[name],
        show: (row) => field(row.object[name]),
      };
    }),
    { name: "cpus", kind: "text", of: (row) => row.cpus.length, show: (row) => row.cpus.join(",") },
  ];
}

const field = (value) => (value === null || value === undefined || value === false ? "" : value === true ? "yes" : clean(value));

/** The columns that fit into `width` pixels, or the chosen ones. */
export function fitting(columns, rows, width, chosen) {
  if (chosen?.[0] === "all") return columns;
  if (chosen?.length) return columns.filter((column) => chosen.includes(column.name));
  pen.font = `600 14px ${getComputedStyle(document.body).fontFamily}`;
  const need = (column) => {
    const texts = [`${column.title ?? column.name} ↓`, ...rows.slice(0, 60).map((row) => column.show(row))];
    const longest = texts.reduce((a, b) => (b.length > a.length ? b : a)).slice(0, WIDEST);
    return Math.max(pen.measureText(longest).width + BESIDE[innerWidth > 640 ? 1 : 0], column.name === "share" ? BAR : 0);
  };
  const order = (column) => {
    if (column.name === "value") return -3;
    if (column.name === "share") return 7.5;
    if (column.name === "rank") return 7.7;
    if (column.part) return 8.5;
    const place = FIRST.indexOf(column.name);
    return column.name === "cpus" ? 99 : place < 0 ? 50 : place;
  };
  let room = width - LAST;
  const kept = new Set();
  for (const column of columns.toSorted((a, b) => order(a) - order(b))) {
    // A column without a text in any row is left out as long as the user does not choose it.
    const empty = column.field && !rows.some((row) => column.show(row));
    const needed = need(column);
    if (empty || (needed > room && kept.size > 1)) continue;
    room -= needed;
    kept.add(column);
  }
  return columns.filter((column) => kept.has(column));
}

/** Rows in the order of `sort`: a column's name, with `-` before it the largest first; without one the order of ranks. */
export function sorted(rows, columns, sort) {
  const column = columns.find(({ name }) => name === sort?.replace(/^-/, ""));
  if (!column) return rows;
  const turn = sort.startsWith("-") ? -1 : 1;
  const isEmpty = (value) => value === null || value === undefined || value === "";
  return rows.toSorted((one, two) => {
    const [a, b] = [column.of(one), column.of(two)];
    if (isEmpty(a) || isEmpty(b)) return Number(isEmpty(a)) - Number(isEmpty(b));
    if (typeof a === "number" && typeof b === "number") return turn * (a - b);
    return turn * String(a).localeCompare(String(b), undefined, { numeric: true });
  });
}

/** The table. `actions` has sort(name) and filter(text). */
export class Rows {
  open = new Set();
  #rows = new Map();
  #columns = "";

  constructor(actions) {
    this.actions = actions;
    this.head = h("tr");
    this.body = h("tbody");
    this.foot = h("tfoot");
    this.caption = h("caption", { class: "unseen" });
    this.element = h("table", { class: "data" }, this.caption, h("thead", {}, this.head), this.body, this.foot);
  }

  draw(doc, columns, all, rows, sort, palette, title) {
    text(this.caption, title);
    const signature = columns.map(({ name, title }) => `${name} ${title ?? ""}`).join("|");
    if (signature !== this.#columns) {
      this.#columns = signature;
      this.#rows.clear();
      this.head.replaceChildren(
        ...columns.map((column) => this.#heading(column)),
        h("th", { class: "more" }, h("span", { class: "unseen" }, "all fields")),
      );
    }
    columns.forEach(({ name }, at) => {
      const isSorted = sort?.replace(/^-/, "") === name;
      const cell = this.head.children[at];
      if (isSorted) cell.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const seen = new Set();
    const elements = rows.flatMap((row) => {
      const id = JSON.stringify(row.object);
      seen.add(id);
      const parts = this.#row(id, columns);
      columns.forEach((column, at) => {
        const value = column.show(row);
        const cell = parts.cells[at];
        text(cell.lastChild, value);
        cell.title = column.name === "value" || column.part ? exact(column.of(row)) : value.length > 20 ? value : "";
        cell.classList.toggle("zero", column.part === true && !column.of(row));
        if (column.name === "share") cell.style.setProperty("--share", value === "–" ? "0%" : value.replace("<", ""));
      });
      const label = brief(row.object);
      parts.element.dataset.s = isIdle(doc, label) ? "idle" : (palette?.of(label) ?? SERIES);
      parts.element.classList.toggle("ended", row.object.closed === true);
      const isOpen = this.open.has(id);
      parts.button.setAttribute("aria-expanded", isOpen);
      parts.button.setAttribute("aria-label", `all fields of ${clean(label, 60)}`);
      if (!isOpen) return [parts.element];
      parts.detail.firstChild.colSpan = columns.length + 1;
      this.#fill(parts.detail.firstChild, doc, row, all);
      return [parts.element, parts.detail];
    });
    for (const id of this.#rows.keys()) if (!seen.has(id)) this.#rows.delete(id);
    place(this.body, elements);
    this.#sums(doc, columns, rows);
  }

  #heading({ name, title, kind }) {
    const button = h(
      "button",
      { type: "button", onclick: () => this.actions.sort(name), title: `sort by ${clean(name, 40)}` },
      clean(title ?? name, 40),
    );
    return h("th", { scope: "col", class: kind }, button);
  }

  #row(id, columns) {
    let parts = this.#rows.get(id);
    if (!parts) {
      const cells = columns.map((column) =>
        h("td", { class: `${column.kind} c-${/^\w+$/.test(column.name) ? column.name : "x"}` }, h("span")),
      );
      const toggle = () => {
        if (!this.open.delete(id)) this.open.add(id);
        this.actions.redraw();
      };
      const button = h("button", { type: "button", class: "expand", onclick: toggle }, "⋯");
      parts = {
        cells,
        button,
        element: h("tr", {}, ...cells, h("td", { class: "more" }, button)),
        detail: h("tr", { class: "detail" }, h("td")),
      };
      this.#rows.set(id, parts);
    }
    return parts;
  }

  #fill(cell, doc, row, columns) {
    const filter = (name, value) =>
      h("button", { type: "button", class: "link", onclick: () => this.actions.filter(value), title: "show rows like this only" }, name);
    const values = [["value", `${exact(row.value)} ${clean(doc.unit)} in ${doc.type === "static" ? "all" : `${doc.period_ms} ms`}`]];
    for (const column of columns.filter(({ part }) => part)) values.push([column.name, exact(row[column.name] ?? 0)]);
    const fields = Object.entries(row.object).map(([name, value]) => {
      const shown = value === null ? "–" : clean(value, 400);
      return [name, value === null || typeof value === "boolean" ? shown : filter(shown, filterOf({ [name]: value }))];
    });
    const cpus = [["CPUs", row.cpus.join(", ") || "–"]];
    const items = [...values, ...fields, ...cpus];
    const state = JSON.stringify([row, columns.length]);
    if (cell.dataset.state === state || cell.contains(document.activeElement)) return;
    cell.dataset.state = state;
    cell.replaceChildren(
      h("dl", { class: "fields" }, ...items.map(([name, value]) => h("div", {}, h("dt", {}, clean(name, 40)), h("dd", {}, value)))),
    );
  }

  #sums(doc, columns, rows) {
    const shown = rows.reduce((sum, row) => sum + row.value, 0);
    const whole = doc.total || 1;
    const line = (name, value, note) =>
      h(
        "tr",
        {},
        ...columns.map((column) => {
          if (column.name === "value") return h("td", { class: "number", title: exact(value) }, show(doc, rate(doc, value)));
          if (column.name === "share") return h("td", { class: "number" }, doc.total ? percent(value / whole) : "–");
          return h("td", { class: column.kind });
        }),
        h("td", { class: "more" }),
      );
    const lines = [
      ["other", doc.total - shown],
      ["total", doc.total],
    ].map(([name, value]) => {
      const row = line(name, value);
      const free = columns.findIndex((column) => column.name !== "value" && column.name !== "share" && column.name !== "rank");
      const at = free < 0 ? columns.length : free;
      row.children[at].replaceChildren(h("b", {}, name));
      row.children[at].className = "text";
      return row;
    });
    this.foot.replaceChildren(...lines);
  }
}
