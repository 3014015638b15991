/**
 * Ages of the source `robot` in a browser: `node ages.mjs HOST PORT TOKEN PLAIN`, a line of JSON for each transport,
 * and for a plain WebSocket at port PLAIN of the host (`plain.mjs`), whose server writes every state.
 */

import { launch } from "./kit.mjs";

const [host, port, token, plain] = process.argv.slice(2);
const SECONDS = 15;
const origin = `http://${host}:${port}`;
const browser = await launch([`--unsafely-treat-insecure-origin-as-secure=${origin}`]);
const page = await browser.newPage();
await page.goto(origin);
for (const transport of ["webtransport", "websocket", "plain"]) {
  const ages = await page.evaluate(watch, { transport, token, plain, seconds: SECONDS });
  ages.sort((one, other) => one - other);
  const at = (part) => ages[Math.min(ages.length - 1, Math.floor(part * ages.length))];
  const mean = ages.reduce((sum, age) => sum + age, 0) / ages.length;
  console.log(JSON.stringify({ transport, samples: ages.length, mean_ms: mean, p95_ms: at(0.95) }));
}
await browser.close();

/** Samples the age each 7 ms, in the page. */
async function watch({ transport, token, plain, seconds }) {
  const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let age;
  if (transport === "plain") {
    let generated = NaN;
    const socket = new WebSocket(`ws://${location.hostname}:${plain}`);
    socket.onmessage = ({ data }) => (generated = Number(data.slice(0, 16)));
    // Both are programs of one machine, with one clock.
    age = () => Date.now() - generated;
  } else {
    const { connect } = await import("/client/freshline.js");
    const monitor = await connect(location.origin, { token, transport });
    monitor.subscribe("robot");
    age = () => monitor.latest("robot")?.age ?? NaN;
  }
  await rest(4000);
  const ages = [];
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    const now = age();
    if (Number.isFinite(now)) ages.push(now);
    await rest(7);
  }
  return ages;
}
