// SPDX-License-Identifier: Apache-2.0 OR MIT
// The first screen: the host, the tops of the tables that answer most questions, and how far to trust them.
import { Palette, SERIES, Spark, gapOf, inWords, stack } from "./chart.js";
import { h, place, text } from "./dom.js";
import { problems } from "./trust.js";
import { brief, filterOf, human, isCpu, isIdle, names, percent, rate, show, clean } from "./units.js";

/** The time that the small charts show, in ms. */
const LENGTH = 5 * 60e3;
const ROWS = 5;
/** Pressure from here on is marked. */
const HIGH = 0.1;

const GROUPS = [
  ["CPU", [["tasks/cpu", "processes"], ["cgroups/cpu", "control groups"], ["tasks/waits", "waiting for a CPU"]]],
  ["Network", [["net_procs/bps", "processes"], ["net_hosts/bps", "remote hosts"], ["net_ports/bps", "ports"],
    ["tcp_v4/conns_bps", "TCP connections, IPv4"], ["tcp_v6/conns_bps", "TCP connections, IPv6"], ["udp_v4/conns_bps", "UDP sockets, IPv4"],
    ["udp_v6/conns_bps", "UDP sockets, IPv6"]]],
  ["Disk", [["disk_procs/bytes", "processes"], ["disk_cgroups/bytes", "control groups"], ["delays/blkio", "waiting for a disk"],
    ["disk_procs/wait", "time of requests"]]],
];
/** Tables whose rows are in the group of rising errors. */
const ERRORS = ["net_procs/retrans", "net_devs/errors", "net_devs/drops", "snmp_tcp/rate", "snmp_tcpext/rate", "snmp_udp/rate", "snmp_ip/rate"];
const BAD = /drop|err|fail|retrans|loss|lost|overflow|reset|rst|timeout|prune|noport|discard|abort|bad|collaps|full/i;

/** A table with its chart and its largest rows. */
class Panel {
  palette = new Palette();
  rows = new Map();

  constructor(app, key, title) {
    this.app = app;
    this.key = key;
    this.meta = app.tables.get(key);
    this.spark = new Spark();
    this.total = h("span", { class: "total" });
    this.mark = h("span", { class: "mark", hidden: true }, "▲");
    this.most = h("span", { class: "most" });
    this.list = h("ol", { class: "rows" });
    this.note = h("p", { class: "note" }, "loading …");
    this.element = h("section", { class: "panel", "aria-label": `${title}, ${key}` },
      h("h3", {}, h("a", { href: app.hash({ key }) }, title), " ", h("span", { class: "key" }, clean(key)), this.mark, this.total),
      h("div", { class: "sparks", onclick: (event) => this.#pick(event) }, this.spark.element, this.most),
      this.list, this.note);
  }

  /** A click on the chart leads to the table at that instant. */
  #pick(event) {
    const box = event.currentTarget.getBoundingClientRect();
    const points = this.app.store.of(this.key).points;
    if (!points.length) return;
    const t = points.at(-1).t - (1 - (event.clientX - box.left) / box.width) * LENGTH;
    this.app.go({ key: this.key, at: new Date(Math.max(t, points[0].t)).toISOString() });
  }

  draw() {
    const { points, documents, losses, error } = this.app.store.of(this.key);
    const doc = documents.at(-1);
    if (!doc) {
      text(this.note, error ? clean(error, 400) : "loading …");
      this.element.classList.toggle("empty", true);
      return;
    }
    const now = points.at(-1);
    const shown = points.filter((point) => point.t >= now.t - LENGTH);
    this.palette.choose(shown, now);
    const most = Math.max(...shown.map((point) => point.total));
    this.spark.draw(stack(shown, this.palette, gapOf(shown, 6000)), now.t, LENGTH, most);
    this.spark.element.setAttribute("aria-label", inWords(doc, shown));
    text(this.most, most > 0 ? `max ${show(doc, most)}` : "");
    const busy = isCpu(doc) ? ` of ${Math.round(rate(doc, doc.total) / 1e9) * 100}%` : "";
    text(this.total, show(doc, now.total) + busy);
    const found = problems(doc, losses, ROWS);
    this.mark.hidden = !found.length;
    this.mark.title = found.join(". ");
    const all = doc.rows.filter((row) => row.value > 0 && !isIdle(doc, brief(row.object)));
    const whole = now.total + (isCpu(doc) ? now.idle : 0);
    const elements = all.slice(0, ROWS).map((row) => this.#row(doc, row, whole));
    const other = now.total - all.slice(0, ROWS).reduce((sum, row) => sum + rate(doc, row.value), 0);
    if (other >= 1) elements.push(this.#other(doc, other, whole, doc.objects - Math.min(ROWS, all.length)));
    place(this.list, elements);
    text(this.note, elements.length ? "" : doc.type === "static" ? "nothing yet" : "nothing in the last second");
    this.element.classList.toggle("empty", !elements.length);
  }

  #row(doc, row, whole) {
    const id = brief(row.object);
    const [name, remark] = names(row.object);
    let parts = this.rows.get(id);
    if (!parts) {
      if (this.rows.size > 100) this.rows.clear();
      parts = { name: h("b"), remark: h("span", { class: "remark" }), value: h("span", { class: "value" }), share: h("span", { class: "share" }) };
      parts.link = h("a", { class: "name" }, parts.name, " ", parts.remark);
      parts.element = h("li", {}, parts.link, parts.value, parts.share);
      this.rows.set(id, parts);
    }
    parts.link.href = this.app.hash({ key: this.key, filter: filterOf(row.object) });
    const ended = row.object.closed ? " (ended)" : "";
    parts.link.title = clean(Object.values(row.object).filter((value) => value != null).join(" "), 300) + ended;
    text(parts.name, name + (ended ? " ✕" : ""));
    return this.#fill(parts, remark, show(doc, rate(doc, row.value)), rate(doc, row.value) / whole, this.palette.of(id));
  }

  #other(doc, value, whole, count) {
    this.rest ??= { remark: h("span", { class: "remark" }), value: h("span", { class: "value" }), share: h("span", { class: "share" }) };
    this.rest.element ??= h("li", { class: "other" }, h("span", { class: "name" }, h("b", {}, "other"), " ", this.rest.remark), this.rest.value, this.rest.share);
    return this.#fill(this.rest, count > 0 ? `${count} objects` : "", show(doc, value), value / whole, SERIES);
  }

  #fill(parts, remark, value, share, color) {
    text(parts.remark, remark);
    text(parts.value, value);
    text(parts.share, percent(share));
    parts.element.style.setProperty("--share", `${Math.min(100, share * 100).toFixed(1)}%`);
    parts.element.dataset.s = color;
    return parts.element;
  }
}

/** Errors and drops of all tables that count them, the largest first. */
class Rising {
  rows = [];

  constructor(app, keys) {
    this.app = app;
    this.keys = keys;
    this.list = h("ol", { class: "rows plain" });
    this.note = h("p", { class: "note" }, "loading …");
    this.element = h("section", { class: "panel", "aria-label": "Rising errors and drops" },
      h("h3", {}, h("span", {}, "Errors, drops, retransmits"), " ", h("span", { class: "key" }, "rising now")), this.list, this.note);
  }

  draw() {
    const found = [];
    let read = 0;
    for (const key of this.keys) {
      const doc = this.app.store.last(key);
      read += doc ? 1 : 0;
      for (const row of doc?.rows ?? []) {
        const counter = row.object.counter;
        if (row.value > 0 && (counter === undefined || BAD.test(counter))) found.push({ key, doc, row, value: rate(doc, row.value) });
      }
    }
    found.sort((a, b) => b.value - a.value);
    place(this.list, found.slice(0, 8).map(({ key, doc, row, value }) => {
      const [name, remark] = names(row.object);
      return h("li", {}, h("a", { class: "name", href: this.app.hash({ key, filter: filterOf(row.object) }) },
        h("b", {}, name), " ", h("span", { class: "remark" }, [remark, clean(key)].filter(Boolean).join(" · "))), h("span", { class: "value" }, show(doc, value)));
    }));
    text(this.note, found.length ? "" : read ? `nothing: ${read} tables of errors and drops stand still` : "loading …");
  }
}

/** A line of the host: its value, its history and its maximum. */
class Gauge {
  constructor(title, isShare) {
    this.isShare = isShare;
    this.spark = new Spark(1, title);
    this.value = h("span", { class: "big" }, "–");
    this.most = h("span", { class: "most" });
    this.facts = h("dl");
    this.element = h("section", { class: "gauge", "aria-label": title },
      h("h3", {}, title, this.value), h("div", { class: "sparks" }, this.spark.element, this.most), this.facts);
  }

  draw(readings, of, format, facts) {
    const points = readings.map((reading) => [Date.parse(reading.time), of(reading)]).filter(([, value]) => Number.isFinite(value));
    const values = points.map(([, value]) => value);
    const most = Math.max(0, ...values);
    text(this.value, points.length ? format(values.at(-1)) : "–");
    if (points.length) {
      this.spark.draw({ times: points.map(([t]) => t), sums: [values] }, points.at(-1)[0], LENGTH, this.isShare ? 1 : most);
      text(this.most, `max ${format(most)}`);
    }
    place(this.facts, facts.filter(([, value]) => value !== null).map(([name, value, high]) =>
      h("div", { class: high ? "high" : null }, h("dt", {}, name), h("dd", {}, high ? `▲ ${value}` : value))));
  }
}

const known = (value, format) => (Number.isFinite(value) ? format(value) : null);

/** The host's lines. */
class Host {
  cpu = new Gauge("CPU", true);
  memory = new Gauge("Memory", true);
  network = new Gauge("Network", false);
  disk = new Gauge("Disk", false);
  element = h("div", { class: "gauges" }, this.cpu.element, this.memory.element, this.network.element, this.disk.element);

  draw(readings) {
    const now = readings.at(-1);
    if (!now) return;
    const pressure = (part) => ["pressure", known(part?.pressure, percent), part?.pressure >= HIGH];
    const { cpu, memory, network, disk } = now;
    this.cpu.draw(readings, (one) => one.cpu?.busy, percent, [["user", known(cpu?.user, percent)], ["system", known(cpu?.system, percent)],
      ["irq", known(cpu?.irq, percent)], ["steal", known(cpu?.steal, percent), cpu?.steal >= HIGH], pressure(cpu)]);
    const bytes = (value) => human("bytes", value);
    this.memory.draw(readings, (one) => one.memory && 1 - one.memory.available / one.memory.total, percent, [
      ["used", known(memory?.total - memory?.available, bytes)], ["of", known(memory?.total, bytes)],
      ["swap", memory?.swap_total ? bytes(memory.swap_used) : memory ? "none" : null], pressure(memory)]);
    const bits = (value) => `${human("bits", value)}/s`;
    this.network.draw(readings, (one) => one.network && one.network.rx_bps + one.network.tx_bps, bits, [["in", known(network?.rx_bps, bits)],
      ["out", known(network?.tx_bps, bits)], ["retransmits", known(network?.retrans_per_second, (value) => `${human("count", value)}/s`), network?.retrans_per_second >= 1]]);
    const flow = (value) => `${bytes(value)}/s`;
    const busiest = disk?.busiest;
    this.disk.draw(readings, (one) => one.disk && one.disk.read_bytes_per_second + one.disk.write_bytes_per_second, flow, [
      ["read", known(disk?.read_bytes_per_second, flow)], ["write", known(disk?.write_bytes_per_second, flow)],
      [busiest ? `${clean(busiest.device, 12)} busy` : "busy", known(busiest?.busy, percent), busiest?.busy >= 0.9], pressure(disk)]);
  }
}

/** The view itself. */
export class Now {
  title = "now";

  constructor(app) {
    this.app = app;
    this.host = new Host();
    this.trust = h("p", { class: "trust" }, "loading …");
    const has = (key) => app.tables.has(key);
    this.panels = new Map();
    const sections = GROUPS.map(([name, tables]) => {
      const panels = tables.filter(([key]) => has(key)).map(([key, title]) => new Panel(app, key, title));
      for (const panel of panels) this.panels.set(panel.key, panel);
      return panels.length && h("section", { class: "group", "aria-label": name }, h("h2", {}, name), h("div", { class: "panels" }, ...panels.map((panel) => panel.element)));
    });
    const errors = ERRORS.filter(has);
    this.rising = errors.length ? new Rising(app, errors) : null;
    this.element = h("div", { class: "now" }, h("h1", { class: "unseen" }, "Now"), this.host.element, this.trust, ...sections.filter(Boolean),
      this.rising && h("section", { class: "group", "aria-label": "Errors" }, h("h2", {}, "Errors"), h("div", { class: "panels wide" }, this.rising.element)),
      this.#all());
    this.keys = [...new Set([...this.panels.keys(), ...errors])];
  }

  #all() {
    const samples = new Map();
    for (const meta of this.app.tables.values()) samples.set(meta.sample, [...(samples.get(meta.sample) ?? []), meta]);
    if (!this.app.tables.size)
      return h("p", { class: "note" }, "This host has no tables. Is the daemon running (systemctl status topstat), and does the kernel allow it (topstat check)?");
    return h("details", { class: "all" }, h("summary", {}, `All ${this.app.tables.size} tables`), h("dl", {}, ...[...samples].flatMap(([sample, metas]) => [
      h("dt", {}, clean(sample)), ...metas.map((meta) => h("dd", {}, h("a", { href: this.app.hash({ key: `${sample}/${meta.table}` }) }, clean(meta.table)), ` ${clean(meta.about)}`))])));
  }

  /** Reads the last minutes from the history, and the reason where a table cannot be read. */
  async begin() {
    const to = Date.now();
    await Promise.allSettled([...this.panels].map(async ([key, panel]) => {
      await this.app.recall(panel.meta, to - LENGTH, to, 150);
      await this.app.why(key);
      panel.draw();
    }));
  }

  snapshot(key) {
    this.panels.get(key)?.draw();
    if (this.rising?.keys.includes(key)) this.rising.draw();
  }

  hostRead() {
    this.host.draw(this.app.readings);
  }

  /** Once a second: staleness and trust. */
  tick() {
    const words = [];
    let complete = 0;
    for (const key of this.keys) {
      const { documents, losses, error } = this.app.store.of(key);
      const stale = this.app.staleFor(key);
      this.panels.get(key)?.element.classList.toggle("stale", stale > 0);
      const doc = documents.at(-1);
      if (error && !doc) words.push(`${key}: not available`);
      if (!doc) continue;
      const found = problems(doc, losses, ROWS);
      if (found.length) words.push(`${key}: ${found.join(", ")}`);
      else complete += 1;
    }
    this.host.element.classList.toggle("stale", this.app.hostIsStale());
    const all = complete === this.keys.length && complete > 0;
    const begun = complete || words.length;
    text(this.trust, all ? `✓ complete: ${complete} tables, rows + other = total in each, nothing lost in the last minute`
      : !this.keys.length ? "no table of this view is on" : !begun ? "loading …"
        : `▲ ${complete} of ${this.keys.length} tables complete${words.length ? ` · ${words.slice(0, 4).map((word) => clean(word, 300)).join(" · ")}` : ""}`);
    this.trust.classList.toggle("good", all);
    this.trust.classList.toggle("bad", !all && Boolean(begun));
  }

  end() {}
}
