/**
 * The page under load: 1,000 sources with 20 states per second each, in Chromium. Prints states per second, dropped
 * frames and the size of the heap after a collection; ends with 1 if the heap grows, or frames are dropped.
 *
 *     node test/load.mjs [--seconds 20] [--sources 1000] [--rate 20]
 *
 * A frame counts as dropped if the next one is late by the duration of a frame. The gateway runs in a process
 * of its own. With other programs on the machine (a load average above its number of processors), rates and frames
 * are printed, but not checked.
 */

import { spawn } from "node:child_process";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { PICTURES, check, finish, launch, open, until } from "./kit.mjs";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "20" },
    sources: { type: "string", default: "1000" },
    rate: { type: "string", default: "20" },
  },
});
const [seconds, sources, rate] = [values.seconds, values.sources, values.rate].map(Number);
/** The maximum growth of the heap after it has settled, in bytes. */
const MAX_GROWTH = 3e6;
const MAX_DROPPED = 0.05;
/** The time after which histories and percentiles have their full size, s. */
const SETTLE = 15;

const gateway = spawn(process.execPath, [
  new URL("fake-gateway.mjs", import.meta.url).pathname,
  ...["--port", "0", "--sources", values.sources, "--topics", "1", "--rate", values.rate, "--plain"],
]);
process.on("exit", () => gateway.kill());
gateway.stderr.pipe(process.stderr);
const address = await new Promise((resolve, reject) => {
  gateway.stdout.once("data", (data) => resolve(String(data).trim()));
  gateway.once("exit", (code) => reject(new Error(`the gateway ended with ${code}`)));
});

/** Whether other programs need the processors: rates and frames are then not meaningful. */
const load = loadavg()[0];
const isBusy = load > cpus().length;

const browser = await launch(["--js-flags=--expose-gc", "--enable-precise-memory-info"]);
const { page, allFaults } = await open(browser, address);
const system = await browser.newBrowserCDPSession();
const cdp = await page.context().newCDPSession(page);
const count = String(sources).replace(/\B(?=(\d{3})+$)/g, ",");
const totals = await until(page, (it) => document.getElementById("totals").textContent.includes(`${it} series`) && "all", count, 20_000);
check(`the list has all ${count} series`, totals === "all", await page.textContent("#totals"));
await page.waitForTimeout(SETTLE * 1000);

const heaps = [await heap()];
const rounds = Math.max(Math.round(seconds / 20), 1);
const all = { frames: 0, dropped: 0, states: 0, time: 0, longest: 0, cpu: 0 };
for (let round = 0; round < rounds; round++) {
  const before = await processorTime();
  const one = await measure((seconds * 1000) / rounds);
  all.cpu += (await processorTime()) - before;
  for (const key of ["frames", "dropped", "states", "time"]) all[key] += one[key];
  all.longest = Math.max(all.longest, one.longest);
  heaps.push(await heap());
}
const share = all.dropped / (all.frames + all.dropped);
const megabytes = heaps.map((it) => (it / 1e6).toFixed(1));
console.log(`       ${Math.round((all.states / all.time) * 1000)} states/s, ${((all.frames / all.time) * 1000).toFixed(1)} frames/s`);
console.log(`       ${(100 * share).toFixed(1)} % of frames dropped, the longest took ${Math.round(all.longest)} ms`);
console.log(`       heap after collections, MB: ${megabytes.join(" ")}`);
console.log(`       processor time of the page's process: ${((100 * all.cpu) / all.time).toFixed(0)} % of one core`);
if (isBusy) {
  console.log(`skipped rates and frames: the load average was ${load.toFixed(1)} on ${cpus().length} processors`);
} else {
  check(`at least 90 % of ${sources * rate} states per second come`, (all.states / all.time) * 1000 > 0.9 * sources * rate);
  check(`at most ${100 * MAX_DROPPED} % of frames are dropped`, share <= MAX_DROPPED, share);
}
check("the page's process needs less than one core", all.cpu < all.time, all);
check(`the heap grows by at most ${MAX_GROWTH / 1e6} MB in ${seconds} s`, heaps.at(-1) - heaps[0] < MAX_GROWTH, megabytes);
await page.evaluate(() => (document.getElementById("grid").scrollTop = 28 * 500));
await page.waitForTimeout(800);
await page.screenshot({ path: `${PICTURES}load.png` });
const rows = await page.evaluate(() => document.querySelectorAll(".body .row").length);
check("only the rows in view are in the document", rows < 45, rows);
check("the console has no error", (await allFaults()).length === 0, await allFaults());
await browser.close();
finish();

/** The bytes of the heap, and of the arrays outside it, after a collection. */
async function heap() {
  await cdp.send("HeapProfiler.collectGarbage");
  const { usedSize, backingStorageSize = 0 } = await cdp.send("Runtime.getHeapUsage");
  return usedSize + backingStorageSize;
}

/** Processor time of all renderers so far, ms: the page's is the only one that is busy. */
async function processorTime() {
  const { processInfo } = await system.send("SystemInfo.getProcessInfo");
  return 1000 * processInfo.filter((it) => it.type === "renderer").reduce((sum, it) => sum + it.cpuTime, 0);
}

/** Counts frames and states for some ms; the list shows its first rows. */
async function measure(duration) {
  const states = () =>
    page.evaluate(async () => {
      const { page } = await import("/monitor/main.js");
      return [...page.rows.bySeries.keys()].reduce((sum, series) => sum + series.count, 0);
    });
  const before = await states();
  const one = await page.evaluate(countFrames, duration);
  return { ...one, states: (await states()) - before };
}

/** In the page: the numbers of drawn and of dropped frames in some ms. */
async function countFrames(ms) {
  const stamps = [];
  const from = performance.now();
  while (performance.now() - from < ms) stamps.push(await new Promise(requestAnimationFrame));
  const gaps = stamps.slice(1).map((it, at) => it - stamps[at]);
  const dropped = gaps.reduce((sum, it) => sum + Math.max(Math.round((it * 60) / 1000) - 1, 0), 0);
  return { frames: gaps.length, dropped, time: performance.now() - from, longest: Math.max(...gaps) };
}
