/**
 * The page at a real gateway, over WebTransport and WebSocket. FRESHLINE is the program (default: freshline); if it
 * was built without the page, the files of this folder are served instead.
 */

import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { HEADERS, TYPES } from "./fake-gateway.mjs";
import { PICTURES, check, finish, launch, open, until } from "./kit.mjs";

const PROGRAM = process.env.FRESHLINE ?? "freshline";
const ROOT = new URL("..", import.meta.url);
const SOURCES = 5;
const children = [];

process.on("exit", () => children.forEach((it) => it.kill()));

/** Starts the program, and returns the first match in its output. */
function start(args, wanted) {
  const child = spawn(PROGRAM, args);
  children.push(child);
  return new Promise((resolve, reject) => {
    let printed = "";
    const onData = (data) => {
      printed += data;
      const match = wanted.exec(printed);
      if (match !== null) resolve({ child, match });
    };
    child.stdout.on("data", onData);
    child.stderr.on("data", onData);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${PROGRAM} ${args.join(" ")} ended with ${code}: ${printed}`)));
  });
}

const UDP = 17_000 + Math.floor(Math.random() * 10_000);
const WEB = UDP + 1;
const MONITOR = ["monitor", `udp://127.0.0.1:${UDP}`, "--web", `127.0.0.1:${WEB}`, "--web-command", "cmd"];
let monitor = await start(MONITOR, /http:\/\/\S+#token=\S+/);
const token = monitor.match[0].split("#token=")[1];

for (let at = 0; at < SOURCES; at++) {
  const sample = `printf '{"frame":%s,"mode":"auto"}' $(date +%s%N)`;
  const args = ["source", `udp://127.0.0.1:${UDP}`, "--name", `robot-${at}`, "--topic", `pose,max-rate=20,sample=${sample}`];
  const child = spawn(PROGRAM, [...args, "--topic", "blob,max-rate=2,size=20000", "--every", "60s"]);
  children.push(child);
}

const isBuiltIn = (await fetch(`http://127.0.0.1:${WEB}/monitor/main.js`)).ok;
// Chromium treats files that a test serves as those of another network.
const browser = await launch(isBuiltIn ? [] : ["--disable-features=LocalNetworkAccessChecks"]);
for (const transport of ["WebTransport", "WebSocket"]) await shows(transport);
await restarts();
await browser.close();
finish();

/** A page at the gateway; without WebTransport to test WebSocket. */
async function pageAt(transport) {
  const opened = await open(browser, "about:blank");
  const { page } = opened;
  if (transport === "WebSocket") await page.addInitScript(() => delete globalThis.WebTransport);
  if (!isBuiltIn) await page.route(/127\.0\.0\.1:\d+\/(monitor\/|client\/|$)/, fulfill);
  await page.addInitScript(() => {
    globalThis.poses = async () => {
      const { page } = await import("/monitor/main.js");
      const now = performance.now();
      const rows = [...page.rows.bySeries.values()].filter((row) => row.series.topic === "pose");
      return rows.map((row) => [row.mean(now), row.rate(now), row.series.uncertainty]);
    };
  });
  await page.goto(monitor.match[0]);
  return opened;
}

/** Waits until the text of an element contains `wanted`, or until a time limit. */
function shown(page, selector, wanted) {
  return until(page, ([at, text]) => document.querySelector(at).textContent.includes(text), [selector, wanted]);
}

/** Selects the only series that matches a search, and returns the text on its state, after it contains `wanted`. */
async function stateOf(page, search, wanted) {
  await page.fill("#search", search);
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length === 1);
  await page.click(".body .row:not([hidden]) >> nth=0");
  await shown(page, "#state-kind", wanted);
  return page.textContent("#state-kind");
}

async function fulfill(route) {
  const { pathname } = new URL(route.request().url());
  const file = pathname === "/" ? "monitor/index.html" : pathname.slice(1);
  const body = await readFile(new URL(file, ROOT));
  await route.fulfill({ body, headers: { ...HEADERS, "Content-Type": TYPES[file.split(".").pop()] } });
}

async function shows(transport) {
  const { page, context, allFaults } = await pageAt(transport);
  const totals = await until(page, (it) => {
    const text = document.getElementById("totals").textContent;
    return text.startsWith(`${it} sources · ${2 * it} series`) && text;
  }, SOURCES, 20_000);
  check(`${transport}: all series of real sources are in the list`, totals, await page.textContent("#totals"));
  await shown(page, "#status-text", `Connected over ${transport}`);
  const status = await page.textContent("#status-text");
  check(`${transport}: it is the transport in use`, status === `Connected over ${transport}`, [status, await page.textContent("#link-summary")]);
  // On a busy machine the mean age is high at first.
  const areFresh = await until(page, async (count) => (await globalThis.poses())
    .filter(([mean, rate]) => mean > 0 && mean < 1000 && rate > 1).length === count, SOURCES, 20_000);
  const poses = await page.evaluate(() => globalThis.poses());
  check(`${transport}: states come, with ages`, areFresh, poses);
  const errors = poses.map((it) => it[2]);
  check(`${transport}: the uncertainty of ages on one host is a few ms`, errors.length === SOURCES && errors.every((it) => it < 100), errors);
  const kind = await stateOf(page, "robot-3 pose", "JSON");
  check(`${transport}: a state is shown`, kind.startsWith("JSON"), kind);
  const long = await stateOf(page, "robot-3 blob", "20.0 kB");
  check(`${transport}: a state in parts is shown`, long.includes("20.0 kB"), long);
  await page.click("#link-toggle");
  await shown(page, "#link-fields", "Lawacp+d");
  const link = await page.textContent("#link-fields");
  check(`${transport}: the law of the link is shown`, link.includes("Lawacp+d"), link);
  await page.fill("#command-text", "stop");
  await page.keyboard.press("Enter");
  const answer = await until(page, () => {
    const text = document.getElementById("command-result").textContent;
    return text.length > 2 && text;
  });
  check(`${transport}: the gateway takes a command`, answer?.includes("taken"), answer);
  await page.fill("#search", "");
  await page.waitForTimeout(3000);
  await page.screenshot({ path: `${PICTURES}gateway-${transport.toLowerCase()}.png` });
  check(`${transport}: no error and no breach`, (await allFaults()).length === 0, await allFaults());
  await context.close();
}

async function restarts() {
  const { page, context } = await pageAt("WebTransport");
  await until(page, () => document.getElementById("status").dataset.status === "open");
  monitor.child.removeAllListeners("exit");
  const ended = new Promise((resolve) => monitor.child.once("exit", resolve));
  monitor.child.kill();
  await ended;
  const lost = await until(page, () => document.getElementById("status").dataset.status === "reconnecting" && "yes", null, 15_000);
  check("the page shows that the gateway has gone", lost === "yes", await page.textContent("#status-text"));
  const { writeFileSync } = await import("node:fs");
  const file = `${PICTURES}token`;
  writeFileSync(file, `${token}\n`);
  monitor = await start([...MONITOR, "--web-token-file", file], /listening|http:/i);
  const back = await until(page, () => document.getElementById("status").dataset.status === "open" && "yes", null, 15_000);
  check("it comes back with the gateway", back === "yes", await page.textContent("#status-text"));
  const fresh = await until(page, () => {
    const texts = [...document.querySelectorAll(".body .row:not([hidden]) .age")].map((it) => it.textContent);
    return texts.length === 10 && texts.filter((it) => it.endsWith(" ms")).length >= 5 && "yes";
  }, null, 15_000);
  check("and the series are fresh again", fresh === "yes", await page.textContent("#totals"));
  await context.close();
}
