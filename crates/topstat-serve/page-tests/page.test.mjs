// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page in a real browser, against the mock server: npm ci && npm test. CHROMIUM names the browser; PICTURES a folder for pictures.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { chromium } from "playwright-core";
import { Mock } from "./mock.mjs";

const require = createRequire(import.meta.url);
const PAGE = new URL("../page/", import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
/** The files of the first screen, and all of them, in bytes, uncompressed. */
const MOST_FIRST = 80_000;
const MOST = 160_000;

let browser, mock, base, page, faults;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
});
after(() => browser.close());
beforeEach(async () => {
  mock = new Mock();
  base = await mock.listen();
  faults = [];
});
afterEach(async () => {
  await page?.close();
  await mock.close();
});

/** Opens the page; faults are errors of scripts and of the content security policy. */
async function open(hash = "", options = {}) {
  page = await browser.newPage({ viewport: { width: 1400, height: 900 }, ...options });
  page.on("pageerror", (error) => faults.push(error.stack));
  page.on(
    "console",
    (message) => message.type() === "error" && !/^Failed to load resource/.test(message.text()) && faults.push(message.text()),
  );
  await page.goto(`${base}/${hash}`);
  return page;
}

/** Waits until a function of the page is true; an element that is not there yet makes it false. */
async function until(expression, argument) {
  for (let left = 200; left; left -= 1) {
    const found = await page.evaluate(expression, argument).catch((error) => {
      if (!/of null|of undefined|context was destroyed/.test(error.message)) throw error;
    });
    if (found) return;
    await page.waitForTimeout(100);
  }
  throw new Error(`not so within 20 s: ${expression}`);
}
const isState = (words) => until((words) => document.querySelector("#state b").textContent.startsWith(words), words);
const hasRows = () => page.locator(".data tbody tr").first().waitFor();
const column = async (name) => {
  const names = await page.locator(".data thead th").allTextContents();
  return page.locator(`.data tbody tr > td:nth-child(${names.findIndex((text) => text.startsWith(name)) + 1})`).allTextContents();
};
const clean = () => assert.deepEqual(faults, []);

test("the first screen has the host, the tops, and how far to trust them", async () => {
  await open();
  await isState("LIVE");
  await until(() => document.querySelectorAll(".panel .rows li").length > 30);
  const panels = await page.locator(".panel h2").allTextContents();
  for (const title of ["CPU by process", "Network by port", "Connections", "Disk by process"])
    assert(
      panels.some((text) => text.startsWith(title)),
      title,
    );
  // The server refuses one table, and has none of udp_v6: neither has a panel; the reason is in the line of trust.
  assert.equal(await page.locator(".panel h2", { hasText: "Waiting for a disk" }).isVisible(), false);
  await until(() => /not available: .*delays\/blkio: .*task_delayacct/.test(document.querySelector(".trust + .note").textContent));
  await until(() => /^✓ complete: 16 tables/.test(document.querySelector(".trust").textContent));
  for (const gauge of await page.locator(".gauge .big").allTextContents()) assert.match(gauge, /\d/);
  // Rows and `other` add up to the total: shares of a ranking without idle time are 100%.
  const shares = await page.locator(".panel", { hasText: "Network by process" }).locator(".share").allTextContents();
  const sum = shares.reduce((sum, text) => sum + parseFloat(text.replace("<0.1", "0")), 0);
  assert(Math.abs(sum - 100) < 3, `${shares} add up to ${sum}`);
  // Charts have the minutes before the page was opened, from the history.
  await until(() => [...document.querySelectorAll(".panel .most")].some((most) => most.textContent.endsWith("in 5 min")));
  clean();
});

test("a row of the first screen leads to its table with a filter, and back", async () => {
  await open();
  const row = page.locator(".panel", { hasText: "Network by process" }).locator(".rows a").first();
  const name = await row.locator("b").textContent();
  await row.click();
  await hasRows();
  assert.match(page.url(), /#net_procs\/bps\?filter=pid%3D\d+$/);
  assert.deepEqual(new Set(await column("comm")), new Set([name]));
  await page.goBack();
  await page.locator(".gauges").waitFor();
  await page.goForward();
  await hasRows();
  clean();
});

test("a filter goes to the server, and its fault is shown beside it", async () => {
  await open("#net_procs/bps");
  await hasRows();
  await page.keyboard.press("/");
  await page.keyboard.type("comm:nginx");
  await until(() => [...document.querySelectorAll(".c-comm")].every((cell) => cell.textContent === "nginx"));
  assert.match(page.url(), /filter=comm%3Anginx/);
  assert.match(await page.locator(".count").textContent(), /of \d+ rows match/);
  assert.match(await page.getByText("CSV").getAttribute("href"), /^\/api\/v1\/tables\/net_procs\/bps\?filter=comm%3Anginx&format=csv$/);
  assert.match(await page.locator(".shell code").textContent(), /-f 'comm:nginx'$/);
  await page.locator("#filter").fill("(");
  await until(() => document.querySelector("#fault").textContent.includes("at character 1"));
  assert.equal(await page.locator("#filter").getAttribute("aria-invalid"), "true");
  await page.locator("#filter").fill("");
  await until(() => document.querySelectorAll(".data tbody tr").length > 5);
  clean();
});

test("columns sort, and all of them can be reached", async () => {
  await open("#tcp_v4/conns_bps", { viewport: { width: 400, height: 800 } });
  await hasRows();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert(wide <= 400, `the page is ${wide} wide`);
  await page.locator("th button", { hasText: "comm" }).click();
  await until(() => document.querySelector("th[aria-sort=ascending]"));
  const names = (await column("comm")).map((text) => text.toLowerCase());
  assert.deepEqual(
    names,
    names.toSorted((a, b) => a.localeCompare(b)),
  );
  assert(!(await page.locator(".data thead").textContent()).includes("netns"));
  await page.locator(".expand").first().click();
  const fields = await page.locator(".fields").textContent();
  for (const name of ["sip", "dport", "netns", "cgroup", "rx"]) assert(fields.includes(name), name);
  await page.getByRole("button", { name: /^columns/ }).click();
  await page.getByRole("button", { name: "all", exact: true }).click();
  await until(() => document.querySelector(".data thead").textContent.includes("netns"));
  assert.match(page.url(), /cols=all/);
  clean();
});

test("an instant of the chart shows the table as it was, and keys go through time", async () => {
  await open("#net_procs/bps");
  await hasRows();
  const over = page.locator(".u-over");
  await over.waitFor();
  await until(() => document.querySelectorAll(".legend li").length > 4);
  const box = await over.boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50, { steps: 4 });
  await page.mouse.up();
  await isState("PAST");
  const at = () => Date.parse(new URLSearchParams(page.url().split("?")[1]).get("at"));
  const picked = at();
  assert(Math.abs(Date.now() - picked - 450e3) < 30e3, `the middle of 15 minutes is ${Date.now() - picked} ms ago`);
  const { rows } = await (await page.request.get(`${base}/api/v1/tables/net_procs/bps?at=${new Date(picked).toISOString()}`)).json();
  await until((pid) => document.querySelector(".data .c-pid").textContent === String(pid), rows[0].object.pid);
  await page.mouse.move(5, 5);
  // The legend has the values of the shown document, not those of a point beside it.
  await until(
    () =>
      document.querySelector("[data-s=total] .value").textContent ===
      document.querySelector("tfoot tr:last-child td:nth-child(2)").textContent,
  );
  assert.match(await page.getByText("JSON").getAttribute("href"), /at=/);
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  assert(at() < picked);
  await until(() => document.querySelector(".scroll").getAttribute("aria-busy") === "false");
  const shown = await page.locator(".data tbody").textContent();
  await page.waitForTimeout(5000);
  assert.equal(await page.locator(".data tbody").textContent(), shown, "the past does not change");
  await page.goBack();
  await isState("LIVE");
  await page.goForward();
  await isState("PAST");
  await page.keyboard.press("l");
  await isState("LIVE");
  assert(!page.url().includes("at="));
  clean();
});

test("an address shows the state that it names", async () => {
  const at = new Date(Date.now() - 20 * 60e3).toISOString();
  await open(`#tcp_v4/conns_bps?filter=comm%3Anginx&sort=dport&at=${at}&span=1h&cols=value,comm,dport`);
  await hasRows();
  await isState("PAST");
  assert.equal(await page.locator("#filter").inputValue(), "comm:nginx");
  assert.deepEqual((await page.locator(".data thead th").allTextContents()).slice(0, 3), ["bits/s", "dport", "comm"]);
  const ports = (await column("dport")).map(Number);
  assert.deepEqual(
    ports,
    ports.toSorted((a, b) => a - b),
  );
  clean();
});

test("an address that is wrong does no harm", async () => {
  await open("#net_procs/bps?at=yesterday&n=99999&span=2y&sort=none&cols=none");
  await isState("LIVE");
  await hasRows();
  await page.goto(`${base}/#%E0%A4%A`);
  await page.locator(".gauges").waitFor();
  clean();
});

test("the legend has the values under the pointer", async () => {
  await open("#net_procs/bps");
  await hasRows();
  const over = page.locator(".u-over");
  await over.waitFor();
  await page.waitForTimeout(1500);
  const box = await over.boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 60);
  await until(() => /^\d\d:\d\d:\d\d/.test(document.querySelector("[data-s=total] .label").textContent));
  const label = await page.locator("[data-s=total] .label").textContent();
  await page.waitForTimeout(3000);
  assert.match(await page.locator("[data-s=total] .label").textContent(), /^\d\d:\d\d:\d\d/, `${label} stays while the chart goes on`);
  clean();
});

test("a time that was not recorded has its reason, and no history leaves the live chart", async () => {
  mock.mode.unrecorded = true;
  await open(`#net_procs/bps?at=${new Date(Date.now() - 86400e3).toISOString()}`);
  await until(() => [...document.querySelectorAll(".note")].some((note) => note.textContent.includes("nothing was recorded")));
  await page.keyboard.press("Escape");
  await isState("LIVE");
  await hasRows();
  clean();
});

test("a lost connection is shown, figures are marked stale, and it comes back", async () => {
  await open();
  await isState("LIVE");
  mock.drop(true);
  await isState("RECONNECTING");
  await until(() => document.querySelector("#since").textContent.startsWith("last reading"));
  await until(() => document.querySelector(".panel.stale") && document.querySelector(".gauge.stale"));
  await until(() => /all figures are stale$/.test(document.querySelector(".trust").textContent));
  mock.mode.refuse = false;
  await isState("LIVE");
  await until(() => !document.querySelector(".stale"));
  mock.mode.silent = true;
  await isState("STALE");
  clean();
});

test("a server that refuses is named, and the page begins when it answers", async () => {
  mock.mode.broken = true;
  await open();
  await until(() => document.querySelector("main").textContent.includes("topstat daemon"));
  mock.mode.broken = false;
  await page.locator(".gauges").waitFor();
  clean();
});

test("an idle host and a host without tables show what they have", async () => {
  mock.mode.empty = true;
  await open();
  await until(() => document.querySelector(".gauge .big").textContent !== "–");
  await until(() => [...document.querySelectorAll(".panel .note")].filter((note) => note.textContent === "nothing now").length > 5);
  await page.close();
  mock.mode.off = true;
  await open();
  await until(() => document.querySelector("main").textContent.includes("topstat check"));
  await page.close();
  await open("#no/such");
  await until(() => document.querySelector("main").textContent.includes("no table no/such"));
  clean();
});

test("losses are said in words", async () => {
  mock.mode.lossy = true;
  await open("#net_procs/bps");
  await until(() => /pushes found no memory for their object in the last minute/.test(document.querySelector(".trust").textContent));
  assert(await page.locator(".trust.bad").isVisible());
  clean();
});

test("a table that is switched off is not complete", async () => {
  mock.mode.uncounted = true;
  await open("#net_procs/bps");
  await until(() => /^.*switched off, so that nothing is counted \(sample\)/.test(document.querySelector(".trust").textContent));
  assert(await page.locator(".trust.bad").isVisible());
  clean();
});

test("names of objects are text, bounded, and without control characters", async () => {
  mock.mode.hostile = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>\u202e\u0007${"A".repeat(5000)}`;
  for (const hash of ["", "#net_procs/bps", "#tasks/cpu?filter=A"]) {
    await open(hash);
    await until(() => document.querySelectorAll(".panel .rows li, .data tbody tr").length > 1);
    if (hash) await page.locator(".expand").first().click();
    await page.waitForTimeout(2500);
    assert.equal(await page.evaluate(() => window.owned), undefined);
    assert.equal(await page.locator("main img, main script").count(), 0);
    const longest = await page.evaluate(() =>
      Math.max(...[...document.querySelectorAll("main *")].filter((one) => !one.children.length).map((one) => one.textContent.length)),
    );
    assert(longest <= 400, `a text has ${longest} characters`);
    assert(!/[\u202e\u0007]/.test(await page.locator("main").textContent()));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert(wide <= 1400, `the page is ${wide} wide`);
    await page.close();
  }
  clean();
});

test("keys lead everywhere, and the focus is seen", async () => {
  await open();
  await isState("LIVE");
  await page.keyboard.press("?");
  assert(await page.locator("#keys").isVisible());
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.type("ntprbps");
  await page.keyboard.press("Enter");
  await hasRows();
  assert.match(page.url(), /#net_procs\/bps/);
  const from = page.url();
  await page.keyboard.press("]");
  await until((from) => location.href !== from, from);
  await page.keyboard.press("[");
  await until((from) => location.href === from, from);
  await hasRows();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.locator(".fields").waitFor();
  await page.keyboard.press("ArrowDown");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid");
  await page.keyboard.press(" ");
  await page.keyboard.press("n");
  await page.locator(".gauges").waitFor();
  clean();
});

test("a frozen page stands still", async () => {
  await open("#tasks/cpu");
  await hasRows();
  await page.keyboard.press(" ");
  await isState("FROZEN");
  const shown = await page.locator("main").textContent();
  await page.waitForTimeout(5000);
  assert.equal(await page.locator("main").textContent(), shown);
  await page.keyboard.press(" ");
  await until((shown) => document.querySelector("main").textContent !== shown, shown);
  clean();
});

for (const colorScheme of ["dark", "light"])
  for (const width of [400, 800, 1400])
    test(`axe finds nothing: ${colorScheme}, ${width} px`, async () => {
      const past = new Date(Date.now() - 240e3).toISOString();
      for (const [name, hash] of [
        ["now", ""],
        ["table", "#net_procs/bps"],
        ["past", `#tcp_v4/conns_bps?at=${past}`],
        ["unknown", "#no/such"],
      ]) {
        await open(hash, { viewport: { width, height: 900 }, colorScheme });
        await page.waitForTimeout(3000);
        if (name === "table") await page.locator(".expand").first().click();
        const views = name === "table" ? ["", "?", "g"] : [""];
        for (const key of views) {
          if (key) await page.keyboard.press(key);
          if (process.env.PICTURES && !key)
            await page.screenshot({ path: `${process.env.PICTURES}/${name}-${width}-${colorScheme}.png`, fullPage: true });
          // axe is no part of the page: Playwright runs it beside the page's policy.
          const { violations } = await page.evaluate(`${AXE}; axe.run()`);
          assert.deepEqual(
            violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3)}`),
            [],
            `${name} ${key}`,
          );
          if (key) await page.keyboard.press("Escape");
        }
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert(wide <= width, `${name} is ${wide} wide`);
        await page.close();
      }
      clean();
    });

test("the page is small, paints at once, and names no other host", async () => {
  const files = readdirSync(PAGE).map((name) => [name, statSync(new URL(name, PAGE)).size]);
  const sum = (some) => some.reduce((sum, [, size]) => sum + size, 0);
  for (const [name] of files) {
    const foreign = readFileSync(new URL(name, PAGE), "utf8").match(
      /https?:\/\/(?!www\.w3\.org\/2000\/svg|github\.com\/leeoniya\/uPlot)[^\s"')]+/g,
    );
    assert.equal(foreign, null, name);
  }
  const requests = [];
  page = await browser.newPage();
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(base);
  await page.locator(".gauges").waitFor();
  assert(
    requests.every((url) => url.startsWith(base)),
    requests.join(" "),
  );
  const asked = requests.map((url) => new URL(url).pathname.slice(1) || "index.html");
  const first = sum(files.filter(([name]) => asked.includes(name)));
  assert(first <= MOST_FIRST && sum(files) <= MOST, `the first screen has ${first} bytes, the page ${sum(files)}`);
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(`first paint after ${Math.round(paint)} ms; the first screen has ${first} bytes, the page ${sum(files)}`);
});

test("uPlot is the published one, as a module", () => {
  const published = readFileSync(require.resolve("uplot/dist/uPlot.iife.min.js"), "utf8");
  assert.equal(readFileSync(new URL("uPlot.js", PAGE), "utf8"), `${published}export default uPlot;\n`);
  assert.equal(readFileSync(new URL("uPlot.css", PAGE), "utf8"), readFileSync(require.resolve("uplot/dist/uPlot.min.css"), "utf8"));
  assert.equal(
    readFileSync(new URL("uPlot.LICENSE", PAGE), "utf8"),
    readFileSync(new URL("../LICENSE", `file://${require.resolve("uplot/dist/uPlot.min.css")}`), "utf8"),
  );
});
