// SPDX-License-Identifier: Apache-2.0 OR MIT
// How far to trust a table, in words.
import { age, clean, exact } from "./units.js";

const IN_TOTAL = "their amounts are in the total, not in a row";
const NOT_ORDERED = "their amounts are counted, the order may be late";
const NOT_COUNTED = "their amounts are in no total";
const CAUSES = {
  contended: ["pushes were not ordered, since another one was being ordered", NOT_ORDERED],
  crowded: ["pushes were not ordered, since a chain was full", NOT_ORDERED],
  no_memory: ["pushes found no memory for their object", IN_TOTAL],
  full: ["pushes found no place for their object", IN_TOTAL],
  unmatched: ["pushes have an unknown owner", IN_TOTAL],
  opaque: ["packets were wrapped by IPsec", NOT_COUNTED],
  skipped: ["events were skipped by the kernel", NOT_COUNTED],
  unseen: ["connections could not be read at their end", NOT_COUNTED],
  impossible: ["waits were longer than possible", NOT_COUNTED],
  beyond: ["namespaces or devices are beyond the limit", NOT_COUNTED],
  unreadable: ["arrays could not be read", NOT_COUNTED],
  unknown: ["counters are unknown", NOT_COUNTED],
};

/** What is wrong with a document: sentences; none if it is complete. `losses` are those of the last minute. */
export function problems(doc, losses = [], shown = doc.rows.length) {
  const sums = new Map();
  for (const [, cause, count] of losses) sums.set(cause, (sums.get(cause) ?? 0) + count);
  const found = [...sums].map(([cause, count]) => {
    const [what, where] = CAUSES[cause] ?? [`events are lost (${clean(cause, 30)})`, "see the glossary"];
    return `${exact(count)} ${what} in the last minute; ${where}`;
  });
  if (doc.off?.length) found.push(`switched off, so that nothing is counted (${doc.off.map((what) => clean(what, 20)).join(", ")})`);
  const rows = Math.min(shown, doc.rows.length);
  if (!doc.filter && doc.proven < rows) {
    const first = doc.proven ? `only the first ${doc.proven} of ${rows} rows are` : "no row is";
    const why = doc.delay_ms ? `objects are ordered at most once in ${doc.delay_ms} ms` : "an object without a row may be as large";
    found.push(`${first} certainly the top: ${why}`);
  }
  if (doc.stale_cpus?.length) found.push(`CPU ${doc.stale_cpus.slice(0, 16).join(", ")} did not answer; its rows are as of its last push`);
  return found;
}

/** One sentence on a table. */
export function sentence(doc, losses, stale, shown) {
  const found = problems(doc, losses, shown);
  if (stale) found.unshift(`stale: no reading for ${age(stale)}`);
  if (found.length) return [false, `${found.join(". ")}.`];
  return [true, "Complete: rows + other = total, nothing was lost in the last minute."];
}
