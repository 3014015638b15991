/**
 * The page in Firefox: `node firefox.mjs URL SOURCES` opens a gateway's page and waits until it shows SOURCES sources.
 * FIREFOX is the path of a browser other than Debian's.
 */

import puppeteer from "puppeteer-core";
import { PICTURES, check, finish } from "./kit.mjs";
import { mkdirSync } from "node:fs";

const [url, sources] = process.argv.slice(2);
mkdirSync(PICTURES, { recursive: true });
const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr",
  headless: true,
});
const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 800 });
const faults = [];
page.on("pageerror", (error) => faults.push(String(error)));
await page.goto(url);

/** Waits until the page's text has this. */
async function reads(selector, wanted) {
  for (let tries = 0; tries < 150; tries++) {
    const text = await page.$eval(selector, (element) => element.textContent).catch(() => "");
    if (text.includes(wanted)) return text;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return page.$eval(selector, (element) => element.textContent).catch(String);
}

const totals = await reads("#totals", `${sources} sources`);
check("Firefox: all sources are in the list", totals.includes(`${sources} sources`), totals);
const ages = () => page.$$eval("[role=row]", (rows) => rows.map((row) => row.textContent).join("\n"));
const before = await ages();
await new Promise((resolve) => setTimeout(resolve, 1000));
const after = await ages();
check("Firefox: ages change", before.length > 100 && before !== after, before.slice(0, 200));
const header = await reads("body", "WebTransport");
check("Firefox: over WebTransport", header.includes("Connected over WebTransport"), header.slice(0, 300));
check("Firefox: no error in the page", faults.length === 0, faults);
await page.screenshot({ path: `${PICTURES}firefox.png` });
await browser.close();
finish();
