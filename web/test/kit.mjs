/** Shared parts of browser tests: the browser, checks that print a line each, and pages that record every error. */

import { existsSync, mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

/** The folder of screenshots. */
export const PICTURES = new URL("../../target/web/", import.meta.url).pathname;

let failed = 0;
let passed = 0;

/**
 * Prints whether a claim holds.
 * @param {string} what  the claim, a sentence
 * @param {unknown} holds
 * @param {unknown} [found]  printed if it does not hold
 */
export function check(what, holds, found = "") {
  if (holds) passed += 1;
  else failed += 1;
  console.log(`${holds ? "ok    " : "FAILED"} ${what}${holds || found === "" ? "" : `: ${JSON.stringify(found)}`}`);
}

/** Ends the process; the exit code is 1 if a check has failed. */
export function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}

const BROWSERS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Starts Chromium, or the browser that CHROMIUM names. */
export function launch(args = []) {
  mkdirSync(PICTURES, { recursive: true });
  const executablePath = BROWSERS.find((path) => path && existsSync(path));
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", ...args] });
}

/** A page that records console errors, exceptions and violations of its content security policy. */
export async function open(browser, url, { scheme = "light", width = 1440, height = 900, motion = "no-preference" } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    reducedMotion: motion,
  });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(error.message));
  await page.addInitScript(() => {
    globalThis.breaches = [];
    document.addEventListener("securitypolicyviolation", (event) => globalThis.breaches.push(event.violatedDirective));
  });
  await page.goto(url);
  const allFaults = async () => [...faults, ...(await page.evaluate(() => globalThis.breaches))];
  return { page, context, faults, allFaults };
}

/** Waits until a function of the page returns a true value; returns the last value after a time limit. */
export async function until(page, what, argument, timeout = 10_000) {
  try {
    return await (await page.waitForFunction(what, argument, { timeout, polling: 100 })).jsonValue();
  } catch {
    return page.evaluate(what, argument);
  }
}
