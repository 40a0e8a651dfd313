// SPDX-License-Identifier: Apache-2.0 OR MIT
// Records documents of this host for the mock server, as root and under a load:
//   [RENAME='REGEXP=TEXT'] node record.mjs /path/to/topstat [seconds [interval [rows]]]
// RENAME replaces names of this host that the repository must not have.
// Writes documents.jsonl.br: one document of `topstat ls`, of `topstat top` or of /api/v1/host in each line.
import { spawn, execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants } from "node:zlib";
import { createInterface } from "node:readline";

const [topstat, seconds = 60, interval = 2, rows = 12] = process.argv.slice(2);
const TABLES = `tasks/cpu tasks/waits tasks/switches tasks/cpu_total cgroups/cpu net_procs/bps net_procs/retrans net_cgroups/bps
  net_hosts/bps net_ports/bps tcp_v4/conns_bps tcp_v6/conns_bps tcp_v4/conns_bytes tcp_v4/conns_retrans udp_v4/conns_bps
  disk_procs/bytes disk_procs/wait disk_cgroups/bytes snmp_tcp/rate snmp_tcpext/rate net_devs/bytes net_devs/drops
  delays/blkio`.split(/\s+/);

const read = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
};
const number = (text, pattern) => Number(pattern.exec(text)?.[1] ?? NaN);
const pressure = (part) => {
  const share = number(read(`/proc/pressure/${part}`), /some avg10=([\d.]+)/);
  return Number.isNaN(share) ? null : share / 100;
};

/** The kernel's running counters, from which two readings make a document of /api/v1/host. */
function counters() {
  const cpus = [...read("/proc/stat").matchAll(/^cpu(\d*) +(.*)$/gm)].map(([, , all]) => all.split(" ").map(Number));
  const links = [...read("/proc/net/dev").matchAll(/^ *(\w+): *(.*)$/gm)].filter(([, name]) => name !== "lo");
  const bytes = links.map(([, , all]) => all.trim().split(/ +/).map(Number));
  const tcp =
    read("/proc/net/snmp")
      .match(/^Tcp: \d.*$/m)?.[0]
      .split(" ")
      .map(Number) ?? [];
  const disks = [...read("/proc/diskstats").matchAll(/^ *\d+ +0 +((?:vd|sd|nvme)\w+) (.*)$/gm)];
  return {
    at: Date.now(),
    cpus,
    rx: bytes.reduce((sum, all) => sum + all[0], 0),
    tx: bytes.reduce((sum, all) => sum + all[8], 0),
    retrans: tcp[12],
    disks: disks.map(([, device, all]) => ({ device, all: all.split(" ").map(Number) })),
  };
}

function host(before, now) {
  const elapsed = (now.at - before.at) / 1000;
  const cpu = (place) => {
    const spent = now.cpus[place].map((ticks, column) => ticks - before.cpus[place][column]);
    const sum = spent.slice(0, 8).reduce((a, b) => a + b, 0) || 1;
    const [user, nice, system, idle, iowait, irq, softirq, steal] = spent.map((ticks) => ticks / sum);
    return { busy: 1 - idle - iowait, user: user + nice, system, irq: irq + softirq, steal };
  };
  const memory = read("/proc/meminfo");
  const kib = (name) => number(memory, new RegExp(`^${name}: +(\\d+)`, "m")) * 1024;
  const disks = now.disks.map(({ device, all }, place) => {
    const spent = all.map((count, column) => count - before.disks[place].all[column]);
    return { device, read: (spent[2] * 512) / elapsed, write: (spent[6] * 512) / elapsed, busy: spent[9] / 1000 / elapsed };
  });
  const busiest = disks.reduce((a, b) => (b.busy > (a?.busy ?? -1) ? b : a), null);
  const sum = (part) => disks.reduce((total, disk) => total + disk[part], 0);
  return {
    time: new Date(now.at).toISOString(),
    cpu: { ...cpu(0), pressure: pressure("cpu"), cpus: now.cpus.slice(1).map((_, place) => cpu(place + 1).busy) },
    memory: {
      total: kib("MemTotal"),
      available: kib("MemAvailable"),
      swap_total: kib("SwapTotal"),
      swap_used: kib("SwapTotal") - kib("SwapFree"),
      pressure: pressure("memory"),
    },
    network: {
      rx_bps: ((now.rx - before.rx) * 8) / elapsed,
      tx_bps: ((now.tx - before.tx) * 8) / elapsed,
      retrans_per_second: (now.retrans - before.retrans) / elapsed,
    },
    disk: {
      read_bytes_per_second: sum("read"),
      write_bytes_per_second: sum("write"),
      busiest: busiest && { device: busiest.device, busy: busiest.busy },
      pressure: pressure("io"),
    },
    load: read("/proc/loadavg").split(" ").slice(0, 3).map(Number),
  };
}

const lines = execFileSync(topstat, ["ls", "-o", "json"], { encoding: "utf8" }).trim().split("\n");
const [pattern, name] = process.env.RENAME?.split("=") ?? [];
const count = Math.ceil(seconds / interval);
let before = counters();
const timer = setInterval(() => {
  const now = counters();
  lines.push(JSON.stringify(host(before, now)));
  before = now;
}, interval * 1000);
const readings = TABLES.map(
  (table) =>
    new Promise((done) => {
      const child = spawn(topstat, ["top", table, interval, count, "-n", rows, "-o", "json"].map(String));
      createInterface({ input: child.stdout })
        .on("line", (line) => lines.push(line))
        .on("close", done);
      child.stderr.on("data", (text) => process.stderr.write(`${table}: ${text}`));
    }),
);
await Promise.all(readings);
clearInterval(timer);
const target = new URL("documents.jsonl.br", import.meta.url);
const text = lines.join("\n").replaceAll(new RegExp(pattern ?? "$^", "g"), name ?? "");
const params = { [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_QUALITY]: 11 };
writeFileSync(target, brotliCompressSync(text, { params }));
console.error(`${lines.length} documents, ${readFileSync(target).length} bytes`);
