// SPDX-License-Identifier: Apache-2.0 OR MIT
// The first screen: the host, the tops of the tables that answer most questions, and how far to trust them.
import { Palette, SERIES, Spark, gapOf, inWords, stack } from "./chart.js";
import { h, place, text } from "./dom.js";
import { problems } from "./trust.js";
import { age, brief, clean, filterOf, human, isCpu, isIdle, names, percent, rate, show } from "./units.js";

/** The time that the small charts show, in ms. */
const LENGTH = 5 * 60e3;
const ROWS = 5;
/** What is at least shown of it as soon as there are readings. */
const LEAST = 60e3;
/** Pressure from here on is marked. */
const HIGH = 0.1;

/** A title, and the tables that are one ranking there. */
const TOPS = [
  ["CPU by process", ["tasks/cpu"]],
  ["CPU by control group", ["cgroups/cpu"]],
  ["Waiting for a CPU", ["tasks/waits"]],
  ["Network by process", ["net_procs/bps"]],
  ["Network by remote host", ["net_hosts/bps"]],
  ["Network by port", ["net_ports/bps"]],
  ["Connections", ["tcp_v4/conns_bps", "tcp_v6/conns_bps", "udp_v4/conns_bps", "udp_v6/conns_bps"]],
  ["Disk by process", ["disk_procs/bytes"]],
  ["Disk by control group", ["disk_cgroups/bytes"]],
  ["Waiting for a disk", ["delays/blkio"]],
  ["Time of disk requests", ["disk_procs/wait"]],
];
/** Tables whose rows are in the group of rising errors. */
const ERRORS = [
  "net_procs/retrans",
  "net_devs/errors",
  "net_devs/drops",
  "snmp_tcp/rate",
  "snmp_tcpext/rate",
  "snmp_udp/rate",
  "snmp_ip/rate",
];
const BAD = /drop|err|fail|retrans|loss|lost|overflow|reset|rst|timeout|prune|noport|discard|abort|bad|collaps|full/i;

/** The beginning of the time that a small chart shows, and the readings from then on. */
function recent(readings, time) {
  const last = time(readings.at(-1));
  const shown = readings.filter((reading) => time(reading) >= last - LENGTH);
  return [Math.min(time(shown[0]), last - LEAST), shown];
}

/** Points of several tables as those of one: each point of the first table with the nearest ones of the others. */
function merged(lists) {
  const [first, ...others] = lists.filter((points) => points.length).sort((a, b) => b.length - a.length);
  if (!others.length) return first ?? [];
  const places = others.map(() => 0);
  return first.map(({ t, total, idle, rows }) => {
    const sum = { t, total, idle, rows: new Map(rows) };
    others.forEach((points, which) => {
      while (places[which] + 1 < points.length && points[places[which] + 1].t <= t + 1000) places[which] += 1;
      const point = points[places[which]];
      if (Math.abs(point.t - t) > 5000) return;
      sum.total += point.total;
      for (const [label, value] of point.rows) sum.rows.set(label, value);
    });
    return sum;
  });
}

/** A ranking with its chart and its largest rows. */
class Panel {
  palette = new Palette();
  rows = new Map();

  constructor(app, title, keys) {
    this.app = app;
    this.keys = keys;
    this.spark = new Spark();
    this.total = h("span", { class: "total" });
    this.mark = h("span", { class: "mark", hidden: true }, "▲");
    this.most = h("span", { class: "most" });
    this.list = h("ol", { class: "rows" });
    this.note = h("p", { class: "note" }, "loading …");
    const name = keys.length > 1 ? h("span", {}, title) : h("a", { href: app.hash({ key: keys[0] }) }, title);
    const links = keys.length > 1 ? keys.map((key) => h("a", { href: app.hash({ key }) }, clean(key.split("/")[0]))) : [clean(keys[0])];
    this.element = h(
      "section",
      { class: "panel", "aria-label": title },
      h("h2", {}, name, h("span", { class: "key" }, ...links.flatMap((link) => [link, " "])), this.mark, this.total),
      h("div", { class: "sparks", onclick: (event) => this.#pick(event) }, this.spark.element, this.most),
      this.list,
      this.note,
    );
  }

  /** A click on the chart leads to the table at that instant. */
  #pick(event) {
    const box = event.currentTarget.getBoundingClientRect();
    if (!this.range) return;
    const t = this.range[1] - (1 - (event.clientX - box.left) / box.width) * (this.range[1] - this.range[0]);
    this.app.go({ key: this.keys[0], at: new Date(t).toISOString() });
  }

  draw() {
    const read = this.keys.map((key) => [key, this.app.store.of(key)]).filter(([, { documents }]) => documents.length);
    const reasons = this.keys.map((key) => this.app.store.of(key).error).filter(Boolean);
    this.element.hidden = !read.length && reasons.length === this.keys.length;
    if (!read.length) return;
    const docs = read.map(([key, { documents, losses }]) => [documents.at(-1), key, losses]);
    const [doc] = docs[0];
    const points = merged(read.map(([, { points }]) => points));
    const now = points.at(-1);
    const [from, shown] = recent(points, ({ t }) => t);
    this.range = [from, now.t];
    this.palette.choose(shown, now);
    const most = Math.max(...shown.map((point) => point.total));
    this.spark.draw(stack(shown, this.palette, gapOf(shown, 6000)), now.t, now.t - from, most);
    this.spark.element.setAttribute("aria-label", inWords(doc, shown));
    text(this.most, most > 0 ? `max ${show(doc, most)} in ${age(now.t - from)}` : "");
    const busy = isCpu(doc) ? ` of ${Math.round(rate(doc, doc.total) / 1e9) * 100}%` : "";
    text(this.total, show(doc, now.total) + busy);
    const found = docs.flatMap(([doc, , losses]) => problems(doc, losses, ROWS));
    this.mark.hidden = !found.length;
    this.mark.title = found.join(". ");
    const all = docs.flatMap(([doc, key]) =>
      doc.rows.filter((row) => row.value > 0 && !isIdle(doc, brief(row.object))).map((row) => [key, doc, row, rate(doc, row.value)]),
    );
    all.sort((a, b) => b[3] - a[3]);
    const first = all.slice(0, ROWS);
    const total = docs.reduce((sum, [doc]) => sum + rate(doc, doc.total), 0);
    const idle = isCpu(doc) ? now.idle : 0;
    const other = total - idle - first.reduce((sum, [, , , value]) => sum + value, 0);
    const elements = first.map((one) => this.#row(...one, total));
    if (other >= 1)
      elements.push(
        this.#other(
          doc,
          other,
          total,
          docs.reduce((sum, [doc]) => sum + doc.objects, -first.length),
        ),
      );
    place(this.list, elements);
    text(this.note, elements.length ? "" : "nothing now");
    this.element.classList.toggle("empty", !elements.length);
  }

  #row(key, doc, row, value, whole) {
    const id = brief(row.object);
    const [name, remark] = names(row.object);
    let parts = this.rows.get(id);
    if (!parts) {
      if (this.rows.size > 100) this.rows.clear();
      parts = {
        name: h("b"),
        remark: h("span", { class: "remark" }),
        value: h("span", { class: "value" }),
        share: h("span", { class: "share" }),
      };
      parts.link = h("a", { class: "name" }, parts.name, " ", parts.remark);
      parts.element = h("li", {}, parts.link, parts.value, parts.share);
      this.rows.set(id, parts);
    }
    parts.link.href = this.app.hash({ key, filter: filterOf(row.object) });
    const ended = row.object.closed ? " (ended)" : "";
    parts.link.title =
      clean(
        Object.values(row.object)
          .filter((value) => value != null)
          .join(" "),
        300,
      ) + ended;
    text(parts.name, name + (ended ? " ✕" : ""));
    return this.#fill(parts, remark, show(doc, value), value / whole, this.palette.of(id));
  }

  #other(doc, value, whole, count) {
    this.rest ??= {
      remark: h("span", { class: "remark" }),
      value: h("span", { class: "value" }),
      share: h("span", { class: "share" }),
    };
    this.rest.element ??= h(
      "li",
      { class: "other" },
      h("span", { class: "name" }, h("b", {}, "other"), " ", this.rest.remark),
      this.rest.value,
      this.rest.share,
    );
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
    this.element = h(
      "section",
      { class: "panel", "aria-label": "Rising errors and drops" },
      h("h2", {}, h("span", {}, "Errors, drops, retransmits"), h("span", { class: "key" }, "rising now")),
      this.list,
      this.note,
    );
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
    place(
      this.list,
      found.slice(0, 8).map(({ key, doc, row, value }) => {
        const [name, remark] = names(row.object);
        return h(
          "li",
          {},
          h(
            "a",
            { class: "name", href: this.app.hash({ key, filter: filterOf(row.object) }) },
            h("b", {}, name),
            " ",
            h("span", { class: "remark" }, [remark, clean(key)].filter(Boolean).join(" · ")),
          ),
          h("span", { class: "value" }, show(doc, value)),
        );
      }),
    );
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
    this.element = h(
      "section",
      { class: "gauge", "aria-label": title },
      h("h2", {}, title, this.value),
      h("div", { class: "sparks" }, this.spark.element, this.most),
      this.facts,
    );
  }

  draw(readings, of, format, facts) {
    const points = readings.map((reading) => [Date.parse(reading.time), of(reading)]).filter(([, value]) => Number.isFinite(value));
    text(this.value, points.length ? format(points.at(-1)[1]) : "–");
    if (points.length) {
      const [from, shown] = recent(points, ([t]) => t);
      const values = shown.map(([, value]) => value);
      const most = Math.max(...values);
      const to = shown.at(-1)[0];
      this.spark.draw({ times: shown.map(([t]) => t), sums: [values] }, to, to - from, this.isShare ? 1 : most);
      text(this.most, `max ${format(most)}`);
    }
    place(
      this.facts,
      facts
        .filter(([, value]) => value !== null)
        .map(([name, value, high]) =>
          h("div", { class: high ? "high" : null }, h("dt", {}, name), h("dd", {}, high ? `▲ ${value}` : value)),
        ),
    );
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
    this.cpu.draw(readings, (one) => one.cpu?.busy, percent, [
      ["user", known(cpu?.user, percent)],
      ["system", known(cpu?.system, percent)],
      ["irq", known(cpu?.irq, percent)],
      ["steal", known(cpu?.steal, percent), cpu?.steal >= HIGH],
      pressure(cpu),
    ]);
    const bytes = (value) => human("bytes", value);
    this.memory.draw(readings, (one) => one.memory && 1 - one.memory.available / one.memory.total, percent, [
      ["used", known(memory?.total - memory?.available, bytes)],
      ["of", known(memory?.total, bytes)],
      ["swap", memory?.swap_total ? bytes(memory.swap_used) : memory ? "none" : null],
      pressure(memory),
    ]);
    const bits = (value) => `${human("bits", value)}/s`;
    this.network.draw(readings, (one) => one.network && one.network.rx_bps + one.network.tx_bps, bits, [
      ["in", known(network?.rx_bps, bits)],
      ["out", known(network?.tx_bps, bits)],
      ["retransmits", known(network?.retrans_per_second, (value) => `${human("count", value)}/s`), network?.retrans_per_second >= 1],
    ]);
    const flow = (value) => `${bytes(value)}/s`;
    const busiest = disk?.busiest;
    this.disk.draw(readings, (one) => one.disk && one.disk.read_bytes_per_second + one.disk.write_bytes_per_second, flow, [
      ["read", known(disk?.read_bytes_per_second, flow)],
      ["write", known(disk?.write_bytes_per_second, flow)],
      [busiest ? `${clean(busiest.device, 12)} busy` : "busy", known(busiest?.busy, percent), busiest?.busy >= 0.9],
      pressure(disk),
    ]);
  }
}

/** The view itself. */
export class Now {
  #changed = new Set();
  #frame = null;

  constructor(app) {
    this.app = app;
    this.host = new Host();
    this.trust = h("p", { class: "trust" }, "loading …");
    this.missing = h("p", { class: "note" });
    const has = (key) => app.tables.has(key);
    this.panels = new Map();
    const panels = TOPS.map(([title, keys]) => [title, keys.filter(has)])
      .filter(([, keys]) => keys.length)
      .map(([title, keys]) => new Panel(app, title, keys));
    for (const panel of panels) for (const key of panel.keys) this.panels.set(key, panel);
    const errors = ERRORS.filter(has);
    this.rising = errors.length ? new Rising(app, errors) : null;
    this.element = h(
      "div",
      { class: "now" },
      h("h1", { class: "unseen" }, "Now"),
      this.host.element,
      this.trust,
      this.missing,
      h("div", { class: "panels" }, ...panels.map(({ element }) => element), ...(this.rising ? [this.rising.element] : [])),
      this.#all(),
    );
    this.keys = [...new Set([...this.panels.keys(), ...errors])];
  }

  #all() {
    const samples = new Map();
    for (const meta of this.app.tables.values()) samples.set(meta.sample, [...(samples.get(meta.sample) ?? []), meta]);
    if (!this.app.tables.size)
      return h(
        "p",
        { class: "note" },
        "This host has no tables. Is the daemon running (systemctl status topstat), and does the kernel allow it (topstat check)?",
      );
    return h(
      "details",
      { class: "all" },
      h("summary", {}, `All ${this.app.tables.size} tables`),
      h(
        "dl",
        {},
        ...[...samples].flatMap(([sample, metas]) => [
          h("dt", {}, clean(sample)),
          ...metas.map((meta) =>
            h("dd", {}, h("a", { href: this.app.hash({ key: `${sample}/${meta.table}` }) }, clean(meta.table)), ` ${clean(meta.about)}`),
          ),
        ]),
      ),
    );
  }

  /** Reads the last minutes from the history, and the reason where a table cannot be read. */
  async begin() {
    const to = Date.now();
    await Promise.allSettled(
      this.keys.map(async (key) => {
        const panel = this.panels.get(key);
        if (panel) await this.app.recall(this.app.tables.get(key), to - LENGTH, to, 150);
        await this.app.why(key);
        this.snapshot(key);
      }),
    );
    // A table that cannot be read would make the server refuse the stream.
    if (!this.ended) this.app.stream.follow(this.keys.filter((key) => !this.app.store.of(key).error));
  }

  /** Readings of several tables come together: each panel is drawn once for them. */
  snapshot(key) {
    const drawn = [this.panels.get(key), this.rising?.keys.includes(key) ? this.rising : null].filter(Boolean);
    for (const one of drawn) this.#changed.add(one);
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      for (const one of this.#changed) one.draw();
      this.#changed.clear();
    });
  }

  hostRead() {
    this.host.draw(this.app.readings);
  }

  /** Once a second: staleness and trust. */
  tick() {
    const [wrong, missing] = [[], []];
    let complete = 0;
    let oldest = 0;
    for (const key of this.keys) {
      const { documents, losses, error } = this.app.store.of(key);
      const stale = this.app.staleFor(key);
      this.panels.get(key)?.element.classList.toggle("stale", stale > 0);
      oldest = Math.max(oldest, stale);
      const doc = documents.at(-1);
      if (!doc && error) missing.push(error.includes(key) ? error : `${key}: ${error}`);
      if (!doc) continue;
      const found = problems(doc, losses, ROWS);
      if (stale) found.unshift(`no reading for ${age(stale)}`);
      if (found.length) wrong.push(`${key}: ${found.join(", ")}`);
      else complete += 1;
    }
    for (const gauge of this.host.element.children) gauge.classList.toggle("stale", this.app.hostIsStale());
    if (oldest && !complete) wrong.splice(0, Infinity, `no table was read for ${age(oldest)}: all figures are stale`);
    const list = (words) =>
      words
        .slice(0, 4)
        .map((word) => clean(word, 300))
        .join(" · ") + (words.length > 4 ? ` · and ${words.length - 4} more` : "");
    const good = complete > 0 && !wrong.length;
    text(
      this.trust,
      good
        ? `✓ complete: ${complete} tables, rows + other = total in each, nothing lost in the last minute`
        : oldest && !complete
          ? `▲ ${wrong[0]}`
          : wrong.length
            ? `▲ ${complete} of ${complete + wrong.length} tables complete · ${list(wrong)}`
            : this.keys.length
              ? "loading …"
              : "no table of this view is on",
    );
    text(this.missing, missing.length ? `not available: ${list(missing)}` : "");
    this.trust.classList.toggle("good", good);
    this.trust.classList.toggle("bad", wrong.length > 0);
  }

  end() {
    this.ended = true;
  }
}
