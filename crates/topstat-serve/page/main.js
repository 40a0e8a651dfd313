// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page: its address, its views, its keys, and the state of the connection.
import { Store, Stream, history, host, snapshot, tables } from "./api.js";
import { h, open, text } from "./dom.js";
import { Now } from "./now.js";
import { age, clean, clock, stamp } from "./units.js";

/** The time between two readings, in ms. */
const INTERVAL = 2000;
/** The most readings of the host in memory: five minutes and a little more. */
const READINGS = 200;
const FIELDS = ["filter", "sort", "at", "span", "n", "cols"];
const $ = (id) => document.getElementById(id);

const KEYS = [
  ["?", "these keys"],
  ["g :", "go to a table"],
  ["n", "the first screen"],
  ["/", "filter"],
  ["← →", "a reading back, forth (Shift: ten)"],
  ["l", "back to live"],
  ["[ ]", "table before, next table"],
  ["↑ ↓", "row before, next row; Enter shows all its fields"],
  ["Space", "freeze, go on"],
  ["Esc", "close, leave the filter, back to live"],
];

class App {
  tables = new Map();
  store = new Store();
  stream = new Stream(INTERVAL);
  readings = [];
  hostAt = 0;
  state = {};
  view = null;
  isFrozen = false;
  /** The view of a table, once it is loaded. */
  Table = null;

  async begin() {
    this.#keyboard();
    $("go").onclick = () => this.#jump();
    $("help").onclick = () => this.#help();
    $("freeze").onclick = () => this.#freeze();
    addEventListener("hashchange", () => this.#follow());
    this.stream.addEventListener("snapshot", ({ detail }) => this.#snapshot(detail));
    this.stream.addEventListener("host", ({ detail }) => this.#host(detail));
    this.stream.addEventListener("fault", ({ detail }) => {
      if (typeof detail?.table === "string") this.store.of(detail.table).error = String(detail.error);
    });
    this.stream.addEventListener("state", () => {
      this.#badge();
      if (this.stream.failures > 1) this.#again();
    });
    setInterval(() => this.#tick(), 1000);
    for (;;) {
      try {
        await this.#list();
        break;
      } catch (error) {
        text($("main"), clean(error.message, 400));
        await new Promise((done) => setTimeout(done, 3000));
      }
    }
    host().then(
      (doc) => this.#host(doc),
      () => {},
    );
    this.#follow();
  }

  async #list() {
    this.tables = new Map((await tables()).map((meta) => [`${meta.sample}/${meta.table}`, meta]));
  }

  /** Lists the tables again after the server has refused a stream: one may be off, or new. */
  async #again() {
    const before = [...this.tables.keys()].join();
    await this.#list().catch(() => {});
    if ([...this.tables.keys()].join() === before) return;
    this.view?.end();
    this.view = null;
    this.#follow();
  }

  /** The address of a state: `#tasks/cpu?filter=…`, without a table the first screen. */
  hash({ key, ...rest }) {
    const query = new URLSearchParams(FIELDS.filter((name) => rest[name]).map((name) => [name, rest[name]]));
    return `#${key ? key.split("/").map(encodeURIComponent).join("/") : ""}${query.size ? `?${query}` : ""}`;
  }

  go(state, replace = false) {
    const hash = this.hash(state);
    if (replace) {
      window.history.replaceState(null, "", hash);
      this.#follow();
    } else location.hash = hash;
  }

  #follow() {
    const [path, query] = location.hash.slice(1).split("?");
    const values = new URLSearchParams(query);
    let key = "";
    try {
      key = path.split("/").map(decodeURIComponent).join("/");
    } catch {
      // An address that is cut off leads to the first screen.
    }
    const state = { key: key || null };
    for (const name of FIELDS) state[name] = values.get(name)?.slice(0, 500) || null;
    if (Number.isNaN(Date.parse(state.at))) state.at = null;
    if (!(Number(state.n) >= 1 && Number(state.n) <= 1024)) state.n = null;
    if (key && this.tables.has(key) && !this.Table) {
      // The first screen does without the code of tables.
      import("./table.js").then(({ Table }) => {
        this.Table = Table;
        this.#follow();
      });
      return;
    }
    const isNew = !this.view || state.key !== this.state.key;
    this.state = state;
    if (!isNew) return this.view.apply?.(state);
    this.view?.end();
    if (key && !this.tables.has(key)) {
      this.view = {
        element: h(
          "div",
          {},
          h("h1", {}, "No such table"),
          h("p", { class: "note" }, `This host has no table ${clean(key, 80)}. It may be off, or this version may not have it.`),
          h("a", { href: "#" }, "to the first screen"),
        ),
        keys: [],
        end() {},
        tick() {},
        snapshot() {},
        hostRead() {},
      };
    } else this.view = key ? new this.Table(this, key) : new Now(this);
    $("main").replaceChildren(this.view.element);
    document.title = key ? `${clean(key, 60)} – topstat` : "topstat";
    $("now").setAttribute("aria-current", key ? "false" : "page");
    this.stream.follow(this.view.keys.filter((key) => !this.store.of(key).error));
    for (const key of this.view.keys) this.view.snapshot(key);
    this.view.hostRead();
    this.view.begin?.();
    scrollTo(0, 0);
    this.#tick();
  }

  #snapshot(doc) {
    if (!doc || !Array.isArray(doc.rows)) return;
    const key = `${doc.sample}/${doc.table}`;
    this.store.add(key, doc);
    if (!this.isFrozen) this.view?.snapshot(key);
  }

  #host(doc) {
    if (!doc) return;
    this.hostAt = performance.now();
    this.readings.push(doc);
    if (this.readings.length > READINGS) this.readings.shift();
    if (this.isFrozen) return;
    this.view?.hostRead();
    const load = Array.isArray(doc.load) ? `load ${doc.load.map((value) => Number(value).toFixed(1)).join(" ")}` : "";
    text($("load"), load);
  }

  /** Reads points of the past into memory; true if there were some. A failure is no error of the view: the chart is shorter. */
  async recall(meta, from, to, points) {
    const key = `${meta.sample}/${meta.table}`;
    try {
      const found = await history(meta, from, to, points);
      this.store.recall(key, found, from, to);
      return found.length > 0;
    } catch {
      return false;
    }
  }

  /** Reads a table that has no reading yet, so that it is shown at once, and keeps the reason if it cannot be read. */
  async why(key) {
    const kept = this.store.of(key);
    if (kept.documents.length) return;
    try {
      this.store.add(key, await snapshot(key, {}));
      kept.error = null;
    } catch (error) {
      kept.error = error.message;
    }
  }

  /** How long a table has had no reading, in ms; 0 if its last one is fresh. */
  staleFor(key) {
    const { at } = this.store.of(key);
    const since = performance.now() - at;
    return at && since > 3 * INTERVAL + 500 ? since : 0;
  }

  hostIsStale() {
    return this.hostAt > 0 && performance.now() - this.hostAt > 3 * INTERVAL + 500;
  }

  #tick() {
    text($("clock"), stamp(Date.now()));
    this.#badge();
    if (!this.isFrozen) this.view?.tick();
  }

  #badge() {
    const { state, last, isStale } = this.stream;
    const isPast = Boolean(this.state.at && this.state.key);
    const since = last ? age(performance.now() - last) : "";
    const [name, words] = this.isFrozen
      ? ["frozen", "FROZEN"]
      : isPast
        ? ["past", `PAST ${clock(Date.parse(this.state.at))}`]
        : state === "live" && !isStale
          ? ["live", "LIVE"]
          : state === "live"
            ? ["stale", "STALE"]
            : [
                state === "reconnecting" || last ? "stale" : "wait",
                state === "paused" ? "PAUSED" : last || state === "reconnecting" ? "RECONNECTING" : "CONNECTING",
              ];
    $("state").dataset.state = name;
    text($("state").lastElementChild, words);
    text($("since"), name === "stale" && since ? `last reading ${since} ago` : "");
  }

  #freeze() {
    this.isFrozen = !this.isFrozen;
    $("freeze").setAttribute("aria-pressed", this.isFrozen);
    if (!this.isFrozen) {
      for (const key of this.view.keys) this.view.snapshot(key);
      this.view.hostRead();
    }
    this.#tick();
  }

  #help() {
    const dialog = $("keys");
    dialog.replaceChildren(
      h("h2", {}, "Keys"),
      h(
        "dl",
        { class: "keys" },
        ...KEYS.map(([key, what]) => h("div", {}, h("dt", {}, ...key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what))),
      ),
      h("h2", {}, "Filter"),
      h(
        "p",
        {},
        "Terms with spaces between, all of which must match: ",
        h("code", {}, "comm:nginx"),
        ", ",
        h("code", {}, "port:443"),
        ", ",
        h("code", {}, "value>1M"),
        ", ",
        h("code", {}, "cgroup:/system.slice"),
        ", ",
        h("code", {}, "!ip:10.0.0.0/8"),
        ", or a text that is looked for in all columns.",
      ),
      h("form", { method: "dialog" }, h("button", {}, "close")),
    );
    open(dialog);
  }

  /** The dialog that leads to a table by some letters of its name. */
  #jump() {
    const dialog = $("jump");
    const list = h("ul", { class: "found" });
    const input = h("input", {
      type: "search",
      "aria-label": "name of a table",
      placeholder: "name of a table",
      autocomplete: "off",
      spellcheck: "false",
    });
    const leave = (event, key) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      // The link of a closed dialog leads nowhere.
      event.preventDefault();
      dialog.close();
      this.go({ key });
    };
    const show = () => {
      const letters = [...input.value.toLowerCase().replace(/\s/g, "")];
      const score = (key) => {
        let at = -1;
        let gaps = 0;
        for (const letter of letters) {
          const next = key.indexOf(letter, at + 1);
          if (next < 0) return null;
          gaps += next - at - 1;
          at = next;
        }
        return gaps;
      };
      const found = [...this.tables.values()]
        .map((meta) => [`${meta.sample}/${meta.table}`, meta])
        .map(([key, meta]) => [score(key.toLowerCase()), key, meta])
        .filter(([gaps]) => gaps !== null);
      found.sort((a, b) => a[0] - b[0]);
      list.replaceChildren(
        ...found
          .slice(0, 100)
          .map(([, key, meta]) =>
            h(
              "li",
              {},
              h(
                "a",
                { href: this.hash({ key }), onclick: (event) => leave(event, key) },
                h("b", {}, clean(key)),
                " ",
                h("span", {}, clean(meta.about)),
              ),
            ),
          ),
      );
    };
    input.oninput = show;
    const links = () => [...list.querySelectorAll("a")];
    dialog.onkeydown = (event) => {
      const at = links().indexOf(document.activeElement);
      if (event.key === "Enter" && document.activeElement === input) links()[0]?.click();
      else if (event.key === "ArrowDown") links()[at + 1]?.focus();
      else if (event.key === "ArrowUp") (at > 0 ? links()[at - 1] : input).focus();
      else return;
      event.preventDefault();
    };
    dialog.replaceChildren(h("h2", { class: "unseen" }, "Go to a table"), input, list);
    show();
    open(dialog);
  }

  #keyboard() {
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const { target } = event;
      if (target.matches("input, select, textarea")) return;
      const table = this.view?.isTable ? this.view : null;
      const step = event.shiftKey ? 10 : 1;
      const actions = {
        "?": () => this.#help(),
        g: () => this.#jump(),
        ":": () => this.#jump(),
        n: () => this.go({}),
        " ": target.matches("button, a, summary") ? null : () => this.#freeze(),
        "/": table ? () => table.filter.focus() : () => this.#jump(),
        ArrowLeft: table && (() => table.step(-step)),
        ArrowRight: table && (() => table.step(step)),
        l: table && (() => table.toLive()),
        Escape: table && (() => table.toLive()),
        "[": table && (() => document.querySelector(".beside a:first-child").click()),
        "]": table && (() => document.querySelector(".beside a:last-child").click()),
        ArrowDown: () => this.#row(1),
        ArrowUp: () => this.#row(-1),
      };
      const action = actions[event.key];
      if (!action || action() === false) return;
      event.preventDefault();
    });
  }

  /** Moves the focus between rows; false if there are none. */
  #row(step) {
    const rows = [...document.querySelectorAll(".expand, .rows a")];
    const at = rows.indexOf(document.activeElement);
    if (!rows.length || (at < 0 && !this.view.isTable)) return false;
    rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
    return true;
  }
}

new App().begin();
