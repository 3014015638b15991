/**
 * Draws the picture of the dashboard in the documents: `node test/pictures.mjs` writes docs/figures/dashboard.png,
 * of simulated robots.
 */

import { FakeGateway } from "./fake-gateway.mjs";
import { launch, open } from "./kit.mjs";
import { HOSTILE, simulate } from "./simulated.mjs";

const FILE = new URL("../../docs/figures/dashboard.png", import.meta.url).pathname;
/** How long ages are drawn before the picture, ms. */
const WAIT = 12000;

const series = simulate({ sources: 3, topics: 4, rate: 20 }).filter(
  (it) => it.source !== HOSTILE.source && it.kind !== "log" && it.kind !== "status",
);
const gateway = await new FakeGateway({ series }).start();
const browser = await launch();
const { page, context } = await open(browser, `${gateway.url}#token=${gateway.token}`, { width: 1000, height: 420 });
await page.waitForTimeout(WAIT);
await page.screenshot({ path: FILE });
await context.close();
await browser.close();
await gateway.stop();
