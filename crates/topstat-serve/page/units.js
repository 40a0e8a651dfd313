// SPDX-License-Identifier: Apache-2.0 OR MIT
// Values, times and texts for people. Each text of a document passes `clean` before it is shown.

const STEPS = { "": 1000, bit: 1000, B: 1024 };
const SI = ["", "k", "M", "G", "T", "P", "E"];
const IEC = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const TIMES = [
  [86400e9, "d"],
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
const NAMES = { packets: "", bits: "bit", bytes: "B", segments: "", count: "", nanoseconds: "ns" };
/** The most characters of a text that are shown in one place. */
const LONGEST = 120;

/** Three significant digits, and all digits before the point. */
export function digits(number) {
  if (Number.isInteger(number) && number < 1000) return String(number);
  return number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
}

/** A value in a table's unit: `4.50 Gbit`, `12.3 ms`, `990`. */
export function human(unit, value) {
  if (!Number.isFinite(value)) return "–";
  const name = NAMES[unit] ?? "";
  if (name === "ns") {
    const [size, step] = TIMES.find(([size]) => value >= size * 0.9995) ?? [1, "ns"];
    return `${digits(value / size)} ${value ? step : "s"}`;
  }
  let step = 0;
  while (value >= STEPS[name] * 0.9995 && step < SI.length - 1) {
    value /= STEPS[name];
    step += 1;
  }
  if (value > 0 && value < 0.005) return `<0.01 ${name}`.trim();
  return `${digits(value)} ${(name === "B" ? IEC : SI)[step]}${name}`.trim();
}

/** Whether the values of a table are time on CPUs: they are shown as per cent of one CPU. */
export const isCpu = (meta) => meta.unit === "nanoseconds" && meta.table === "cpu" && /^(tasks|cgroups)$/.test(meta.sample);

/** The time in ms that the values of a document cover; 0 for running totals. */
export const span = (doc) => (doc.type === "static" ? 0 : doc.elapsed_ms || doc.period_ms || 1000);

/** A value of a document per second, or a running total. */
export const rate = (doc, value) => (doc.type === "static" ? value : (value * 1000) / span(doc));

/** A value per second for people; `meta` has sample, table, unit and type. */
export function show(meta, perSecond) {
  if (isCpu(meta)) return `${percent(perSecond / 1e9)}`;
  return human(meta.unit, perSecond) + (meta.type === "static" ? "" : "/s");
}

/** A share for people: `53.0%`. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const number = share * 100;
  if (number === 0) return "0%";
  if (number > 0 && number < 0.05) return "<0.1%";
  return `${number < 9.95 ? number.toFixed(1) : Math.round(number)}%`;
}

/** A whole number with thin spaces between thousands; inexact ones are marked. */
export function exact(number) {
  const text = String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return Number.isSafeInteger(number) ? text : `≈${text}`;
}

/** A text of a document with neither control characters nor marks that turn the direction, and not too long. */
export function clean(value, longest = LONGEST) {
  const text = String(value ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
  return text.length > longest ? `${[...text.slice(0, longest)].slice(0, -1).join("")}…` : text;
}

const two = (number) => String(number).padStart(2, "0");
const offsetOf = (date) => {
  const minutes = -date.getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
};

/** A time in ms as local time: `03:12:07`. */
export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A time in ms as local time with its date unless it is today, and its offset. */
export function stamp(ms) {
  const date = new Date(ms);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const today = new Date().toDateString() === date.toDateString();
  return `${today ? "" : `${day} `}${clock(ms)} ${offsetOf(date)}`;
}

/** How long ago: `12 s`, `5 min`. */
export const age = (ms) => (ms < 90e3 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60e3)} min`);

/** The last parts of a control group's path that a person needs: `nginx`, `pod7f3c/9a41d0c7e2b8`. */
export function group(path) {
  const parts = String(path).split("/").filter(Boolean);
  if (!parts.length) return "/";
  const last = parts.at(-1).replace(/\.(service|scope|slice)$/, "");
  const container = /(?:^|-)([0-9a-f]{12})[0-9a-f]*$/.exec(last);
  const pod = /pod[0-9a-f_-]+/.exec(parts.at(-2) ?? "");
  const name = container?.[1] ?? last;
  return pod ? `${pod[0].slice(0, 11)}/${name}` : name;
}

const end = (address, port) => (String(address).includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/**
 * An object as [name, remark]: `["443/tcp", "nginx · server"]`. Both are clean.
 */
export function names(object) {
  const { sip, sport, dip, dport, pid, comm, cgroup, device, host, port, proto, side, netns, in_flight, closed, ...rest } = object;
  let name = "";
  const remarks = [];
  if (sport != null) {
    const ends = dport ? `${end(sip, sport)} → ${end(dip, dport)}` : end(sip, sport);
    name = comm ?? ends;
    if (comm != null) remarks.push(ends);
  } else if (port != null) {
    name = `${port}${proto ? `/${proto}` : ""}`;
    remarks.push(comm, side);
  } else if (host != null) {
    name = host;
  } else if (comm != null || pid != null) {
    name = comm ?? `pid ${pid}`;
    if (cgroup != null) remarks.push(group(cgroup));
  } else if (cgroup != null) {
    name = group(cgroup);
    const above = String(cgroup).replace(/[^/]*$/, "");
    if (above.length > 1 && name !== cgroup) remarks.push(above);
  } else {
    name =
      Object.values(rest)
        .filter((value) => value != null && value !== false)
        .slice(0, 3)
        .join(" ") ||
      (device ?? "none");
  }
  if (device != null && name !== device) remarks.push(device);
  return [clean(name), clean(remarks.filter((text) => text != null && text !== "").join(" · "))];
}

/**
 * The description of an object in a line, as the history's labels have it: its values, without marks, the number of a network
 * namespace and requests in flight. A port follows its address.
 */
export function brief(object) {
  let text = "";
  for (const [name, value] of Object.entries(object)) {
    if (value === null || typeof value === "boolean" || name === "netns" || name === "in_flight") continue;
    if (text) text += /^[sd]port$/.test(name) ? ":" : " ";
    text += value;
  }
  return text;
}

/** Whether a label is the idle time of the CPUs. */
export const isIdle = (meta, label) => isCpu(meta) && (label === "0 idle" || label === "");

/** The filter that finds an object again. */
export function filterOf(object) {
  const quote = (value) => (typeof value === "number" ? value : `"${String(value).replace(/[\\"]/g, "\\$&")}"`);
  const columns = Object.entries(object).filter(([name, value]) => value != null && typeof value !== "boolean" && name !== "in_flight");
  const chosen = columns.filter(([name]) => name === "pid" && object.sport == null);
  const named = chosen.length ? chosen : columns.filter(([name]) => object.sport == null || /^[sd](ip|port)$/.test(name));
  return named.map(([name, value]) => `${name}=${quote(value)}`).join(" ");
}
