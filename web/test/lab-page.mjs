// Opens the lab's page in Chromium, uses it, and fails on errors, violations of the policy, and findings of axe-core.
//
//     node web/test/lab-page.mjs FOLDER PICTURES
//
// FOLDER has the page, and PICTURES gets screenshots of it in both colour schemes.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { launch } from "./kit.mjs";
import { serve } from "./server.mjs";

const [folder, pictures] = process.argv.slice(2).map((path) => resolve(path));
const axe = createRequire(import.meta.url).resolve("axe-core");

const server = await serve(folder);
const browser = await launch();
mkdirSync(pictures, { recursive: true });

/** Opens the page, and collects its errors. */
async function open(options, hash = "") {
  const context = await browser.newContext({ viewport: { width: 1440, height: 940 }, ...options });
  const page = await context.newPage();
  const troubles = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("requestfailed", (request) => troubles.push(`${request.url()}: ${request.failure().errorText}`));
  page.on("request", (request) => request.url().startsWith(server.address) || troubles.push(`asks for ${request.url()}`));
  await page.goto(server.address + hash);
  await page.waitForFunction(() => window.freshlineLab?.frames > 2);
  return { context, page, troubles };
}

const state = (page) => page.evaluate(() => {
  const { frames, now, settings } = window.freshlineLab;
  return { frames, now, settings };
});

const mean = async (page) => parseFloat((await page.locator("#tiles dd").first().textContent()).replace(",", ""));

async function framesAdvance() {
  const { context, page, troubles } = await open({ colorScheme: "dark" });
  const before = await state(page);
  await page.waitForTimeout(5000);
  const after = await state(page);
  const frames = after.frames - before.frames;
  console.log(`frames per second, default, over 5 s: ${(frames / 5).toFixed(1)}`);
  assert(frames > 0 && after.now > before.now, "the simulation does not advance");
  await page.screenshot({ path: `${pictures}/lab-page-dark.png` });
  await page.locator("#pause").click();
  const paused = await state(page);
  await page.waitForTimeout(300);
  assert.equal((await state(page)).now, paused.now, "it runs while it is paused");
  await context.close();
  assert.deepEqual(troubles, []);
}

async function controlsAct() {
  const { context, page, troubles } = await open({ colorScheme: "light" });
  await page.locator("#speed").selectOption("4");
  // A rate that overloads the bottleneck: the queue fills, and the age reaches seconds.
  await page.locator("#slider-rate").fill("480");
  assert.equal((await state(page)).settings.law, "fixed");
  await page.locator("#skip").click();
  await page.waitForFunction(() => document.getElementById("insight").textContent.includes("more than the bottleneck carries"));
  await page.waitForTimeout(1000);
  const overloaded = await mean(page);
  // A law finds a rate that does not overload it.
  await page.getByRole("radio", { name: "Tenth" }).check();
  assert.equal((await state(page)).settings.law, "tenth");
  await page.locator("#skip").click();
  await page.waitForFunction(() => document.getElementById("insight").textContent.includes("from the acknowledgements alone"));
  await page.waitForTimeout(1000);
  const steered = await mean(page);
  console.log(`mean age: overloaded ${overloaded} ms, with Tenth ${steered} ms`);
  assert(steered < overloaded / 3, "the law does not lower the age");
  assert(page.url().includes("law=tenth"), page.url());
  await page.locator("#sweep").click();
  await page.waitForFunction(() => !document.getElementById("sweep").disabled, null, { timeout: 60_000 });
  await page.locator("#cross").check();
  await page.getByRole("radio", { name: "IFC" }).check();
  await page.locator("#speed").selectOption("0.1");
  await page.locator("#skip").click();
  await page.waitForTimeout(1500);
  assert.equal((await state(page)).settings.queue, "ifc");
  await page.locator("summary").click();
  await page.locator("#run").click();
  await page.waitForFunction(() => document.getElementById("document").textContent.includes("age_mean"));
  await page.locator("summary").click();
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: `${pictures}/lab-page-light.png` });
  await context.close();
  assert.deepEqual(troubles, []);
}

/** With the keyboard alone, on a small screen, and for assistive technology. */
async function everyoneCanUseIt() {
  const { context, page, troubles } = await open({ colorScheme: "dark", viewport: { width: 390, height: 844 } }, "#law=lazy&loss=0.05");
  assert.deepEqual((({ law, loss }) => ({ law, loss }))((await state(page)).settings), { law: "lazy", loss: 0.05 });
  await page.locator("#law input").nth(1).focus();
  await page.keyboard.press("ArrowRight");
  assert.equal((await state(page)).settings.law, "tenth");
  await page.locator("#slider-delay_ms").focus();
  await page.keyboard.press("End");
  assert.equal((await state(page)).settings.delay_ms, 300);
  await page.screenshot({ path: `${pictures}/lab-page-phone.png`, fullPage: true });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "it is wider than the screen");
  await context.close();
  assert.deepEqual(troubles, []);
  for (const colorScheme of ["dark", "light"]) {
    // The policy forbids adding a script to the page, so this context ignores the policy.
    const { context, page } = await open({ colorScheme, bypassCSP: true }, "#law=tenth&cross_traffic=tcp");
    await page.addScriptTag({ path: axe });
    const { violations } = await page.evaluate(() => window.axe.run());
    await context.close();
    const found = violations.flatMap(({ id, nodes }) => nodes.map((node) => `${colorScheme}: ${id}: ${node.html}: ${node.failureSummary}`));
    assert.deepEqual(found, []);
  }
}

/** Invalid settings in an address keep their defaults. */
async function strangeAddresses() {
  const { context, page, troubles } = await open({}, "#law=%3Cscript%3E&rate=1e9&sources=2.6&jitter_ms=90&delay_ms=5&queue=__proto__");
  const { settings } = await state(page);
  assert.deepEqual([settings.law, settings.rate, settings.sources, settings.jitter_ms, settings.queue], ["fixed", 15, 3, 4, "fifo"]);
  await context.close();
  assert.deepEqual(troubles, []);
}

try {
  await framesAdvance();
  await controlsAct();
  await everyoneCanUseIt();
  await strangeAddresses();
  console.log("the page: ok");
} finally {
  await browser.close();
  server.close();
}
