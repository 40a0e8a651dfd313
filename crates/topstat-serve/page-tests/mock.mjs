// SPDX-License-Identifier: Apache-2.0 OR MIT
// Serves the page and its API from recorded documents, which it plays again and again:
//   node mock.mjs [PORT]
// `mock.mode` makes it fail in the ways that the page must survive.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync } from "node:zlib";

const PAGE = fileURLToPath(new URL("../page", import.meta.url));
const TYPES = { ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };
/** As the server's own policy, and stricter: a text that becomes markup is an error. */
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
const STEP = 2000;
/** History of this length exists, in ms. */
const KEPT = 2 * 3600e3;

/** The columns of a table, from its documents. */
const columnsOf = (sample, table) => {
  const row = lines.find((line) => line.sample === sample && line.table === table && line.rows?.length)?.rows[0];
  return Object.keys(row?.object ?? {}).map((name) => ({ name, kind: "text", optional: true }));
};

const lines = brotliDecompressSync(readFileSync(new URL("documents.jsonl.br", import.meta.url)))
  .toString()
  .split("\n")
  .map((line) => JSON.parse(line));
const documents = new Map();
const metas = [];
const hosts = [];
for (const line of lines) {
  if (line.rows) {
    const key = `${line.sample}/${line.table}`;
    if (!documents.has(key)) documents.set(key, []);
    documents.get(key).push(line);
  } else if (line.tables) {
    for (const { table, about, type, unit, value_name } of line.tables)
      metas.push({
        sample: line.sample,
        table,
        about: `${line.about}: ${about}`,
        type,
        unit,
        value_name,
        columns: columnsOf(line.sample, table),
      });
  } else hosts.push(line);
}

/** A term of a filter: enough of the language for the tests. */
function term(text) {
  const [, not, key, op, quoted] = /^(!?)(?:([\w]+)(!=|<=|>=|[:=~<>]))?(.*)$/s.exec(text);
  if (/[()&|]/.test(quoted)) return null;
  const value = quoted.replace(/^"(.*)"$/, "$1").replace(/\\(.)/g, "$1");
  const matches = (found) =>
    op === ":" || op === "=" ? String(found) === value : op === ">" ? found > Number(value) : String(found).includes(value);
  return (row) => (key ? matches(key === "value" ? row.value : row.object[key]) : Object.values(row.object).some(matches)) !== Boolean(not);
}
/** The tables that were recorded, and one that this host refuses. */
const listed = metas.filter(({ sample, table }) => documents.has(`${sample}/${table}`) || (sample === "delays" && table === "blkio"));

export class Mock {
  /** hostile: names of objects; empty: tables have no rows; off: no tables; silent: streams send nothing; lossy: losses; uncounted: samples are switched off; broken: each answer is an error. */
  mode = {};
  streams = new Set();

  listen(port = 0) {
    this.server = createServer((request, response) => this.#answer(request, response));
    return new Promise((done) => this.server.listen(port, "127.0.0.1", () => done(`http://127.0.0.1:${this.server.address().port}`)));
  }

  /** Ends all streams; with `refuse` new ones get an error until it is false. */
  drop(refuse) {
    this.mode.refuse = refuse;
    for (const stream of this.streams) stream.destroy();
  }

  async close() {
    this.drop(true);
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  document(key, t) {
    const all = documents.get(key);
    if (!all) return null;
    const place = Math.floor(t / STEP);
    const doc = structuredClone(all[place % all.length]);
    doc.time = new Date(place * STEP).toISOString();
    if (this.mode.empty) Object.assign(doc, { rows: [], total: 0, other: 0, proven: 0, objects: 0 });
    if (this.mode.uncounted) doc.off = ["sample"];
    if (this.mode.lossy) Object.assign(doc.lost_now, { no_memory: 7, contended: 3 });
    if (this.mode.hostile)
      for (const row of doc.rows.slice(0, 3))
        for (const [name, value] of Object.entries(row.object)) if (typeof value === "string") row.object[name] = this.mode.hostile;
    return doc;
  }

  #filtered(doc, text) {
    const of = doc.rows.length;
    const terms = (text.match(/(?:[^\s"]|"(?:[^"\\]|\\.)*")+/g) ?? []).map(term);
    if (terms.includes(null)) return null;
    doc.rows = doc.rows.filter((row) => terms.every((matches) => matches(row)));
    doc.other = doc.total - doc.rows.reduce((sum, row) => sum + row.value, 0);
    doc.filter = { text, matched: doc.rows.length, of };
    return doc;
  }

  #host(t) {
    return { ...hosts[Math.floor(t / STEP) % hosts.length], time: new Date(t).toISOString() };
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://mock");
    const send = (status, value, type = "application/json") => {
      response.writeHead(status, {
        "content-type": type,
        "content-security-policy": CSP,
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
      });
      response.end(type === "application/json" ? JSON.stringify(value) : value);
    };
    const path = url.pathname.split("/").map(decodeURIComponent);
    if (path[1] !== "api") return this.#file(url.pathname, send);
    if (this.mode.broken) return send(503, { error: "the daemon is not running: start it with 'topstat daemon'" });
    const [what, sample, table] = path.slice(3);
    const key = `${sample}/${table}`;
    const query = url.searchParams;
    if (what === "tables" && !sample) return send(200, this.mode.off ? [] : listed);
    if (what === "host") return send(200, this.#host(Date.now()));
    if (what === "stream") return this.#stream(query.getAll("table"), request, response);
    if (!listed.some((meta) => `${meta.sample}/${meta.table}` === key)) return send(404, { error: `there is no table ${key}` });
    if (what === "history") return this.#history(key, query, send);
    const at = query.has("at") ? Date.parse(query.get("at")) : Date.now();
    if (at < Date.now() - KEPT) return send(404, { error: "nothing was recorded at that time: records are kept for two hours" });
    let doc = this.document(key, at);
    if (!doc)
      return send(503, {
        error: `cannot read ${key}: the kernel's delay accounting is off; switch it on with 'sysctl -w kernel.task_delayacct=1'`,
      });
    if (query.has("filter")) doc = this.#filtered(doc, query.get("filter"));
    if (!doc) return send(400, { error: "at character 1: ( means nothing here; put it in quotes" });
    if (query.get("format") === "csv")
      return send(200, `rank,value\n${doc.rows.map((row) => `${row.rank},${row.value}`).join("\n")}\n`, "text/csv");
    return send(200, doc);
  }

  #history(key, query, send) {
    if (this.mode.unrecorded || !documents.has(key)) return send(404, { error: `no history of ${key}: 'topstat record' keeps one` });
    const from = Math.max(Date.parse(query.get("from")), Date.now() - KEPT);
    const to = Math.min(Date.parse(query.get("to")), Date.now());
    const step = Math.max(STEP, Math.ceil((to - from) / Number(query.get("points")) / STEP) * STEP);
    const points = [];
    for (let t = from; t <= to; t += step) {
      const { time, total, rows, other } = this.document(key, t);
      points.push({ time, total, other, rows: rows.slice(0, 10).map(({ object, value }) => ({ label: label(object), value })) });
    }
    const [{ type, unit, period_ms }] = documents.get(key);
    send(200, { sample: key.split("/")[0], table: key.split("/")[1], type, unit, period_ms, points, gaps: [], whole: true });
  }

  #stream(keys, request, response) {
    // As the server does: a table that cannot be read is an error of the whole request.
    if (this.mode.refuse || !keys.every((key) => documents.has(key))) return response.writeHead(503).end();
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    this.streams.add(response);
    const tick = () => {
      if (this.mode.silent) return;
      const now = Date.now();
      response.write(`event: host\ndata: ${JSON.stringify(this.#host(now))}\n\n`);
      for (const key of keys) {
        const doc = this.document(key, now);
        if (doc) response.write(`event: snapshot\ndata: ${JSON.stringify(doc)}\n\n`);
      }
    };
    tick();
    const timer = setInterval(tick, STEP);
    response.on("close", () => {
      clearInterval(timer);
      this.streams.delete(response);
    });
  }

  #file(path, send) {
    const name = normalize(path === "/" ? "/index.html" : path);
    try {
      send(200, readFileSync(join(PAGE, name)), TYPES[extname(name)] ?? "text/plain");
    } catch {
      send(404, { error: `there is no file ${name}` });
    }
  }
}

/** An object in a line, as the server's labels have it. */
const label = (object) =>
  Object.entries(object)
    .filter(([name, value]) => value !== null && typeof value !== "boolean" && name !== "netns" && name !== "in_flight")
    .reduce((text, [name, value]) => `${text}${text && (/^[sd]port$/.test(name) ? ":" : " ")}${value}`, "");

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(await new Mock().listen(Number(process.argv[2] ?? 8080)));
