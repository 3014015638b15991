/**
 * The page in Chromium, with a gateway that simulates sources. Prints a line for each check, and exits with 1 if one
 * has failed. Screenshots are in target/web.
 */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { FakeGateway } from "./fake-gateway.mjs";
import { PICTURES, check, finish, launch, open, until } from "./kit.mjs";
import { HOSTILE, simulate } from "./simulated.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const browser = await launch();
const gateway = await new FakeGateway({ series: simulate({ sources: 50, topics: 1, rate: 10 }) }).start();
const mixed = await new FakeGateway({ series: simulate({ sources: 4, topics: 5, rate: 10 }) }).start();
const address = (it) => `${it.url}#token=${it.token}`;

await listMoves();
await strangersTextIsText();
await statesByContent();
await keyboard();
await sortsAndFilters();
await token();
await reconnects();
await endedSeries();
await commands();
await accessible("light");
await accessible("dark");
await narrow();
await reducedMotion();
await browser.close();
await gateway.stop();
await mixed.stop();
finish();

async function listMoves() {
  const { page, allFaults, context } = await open(browser, address(gateway));
  const totals = await until(page, () => {
    const text = document.getElementById("totals").textContent;
    return text.startsWith("51 sources · 51 series") && text;
  });
  check("50 simulated sources and a hostile one are in the list", totals, await page.textContent("#totals"));
  check("the token is not in the address any more", !page.url().includes("token"), page.url());
  await page.waitForTimeout(1500);
  const look = () =>
    page.evaluate(() =>
      [...document.querySelectorAll(".body .row:not([hidden])")].map((row) => {
        const plots = document.getElementById("plots");
        const canvas = document.createElement("canvas");
        const [width, height] = [plots.width, 28 * devicePixelRatio];
        [canvas.width, canvas.height] = [width, height];
        const top = (row.getBoundingClientRect().top - plots.getBoundingClientRect().top) * devicePixelRatio;
        canvas.getContext("2d").drawImage(plots, 0, top, width, height, 0, 0, width, height);
        return { name: row.firstChild.textContent, plot: canvas.toDataURL(), age: row.querySelector(".age").textContent };
      }),
    );
  const names = new Set();
  let [moved, changed, all] = [0, 0, 0];
  for (const top of [0, 28 * 25, 28 * 60]) {
    await page.evaluate((it) => (document.getElementById("grid").scrollTop = it), top);
    await page.waitForTimeout(300);
    const before = await look();
    await page.waitForTimeout(700);
    const after = await look();
    for (const [index, { name, plot, age }] of after.entries()) {
      names.add(name);
      all += 1;
      moved += plot !== before[index].plot;
      changed += age !== before[index].age;
    }
  }
  check("scrolling reaches all 51 series", names.size === 51, names.size);
  check("all plots move", moved === all, `${moved} of ${all}`);
  check("ages change", changed > all * 0.9, `${changed} of ${all}`);
  const rows = await page.evaluate(() => document.querySelectorAll(".body .row").length);
  check("only the rows in view are in the document", rows < 45, rows);
  check("no error and no breach of the content security policy in the list", (await allFaults()).length === 0, await allFaults());
  await page.evaluate(() => (document.getElementById("grid").scrollTop = 0));
  await page.waitForTimeout(4000);
  await page.screenshot({ path: `${PICTURES}list-light.png` });
  await context.close();
}

async function strangersTextIsText() {
  const { page, allFaults, context } = await open(browser, address(mixed));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  const shown = await page.textContent(".body .row:not([hidden]) >> nth=0");
  check("a name that is markup is shown as text", shown.includes(HOSTILE.source), shown);
  check("controls and bidirectional characters of a name are visible", shown.includes("\\u{202e}evil\\u{7}"), shown);
  await page.click(`.body .row >> text="${HOSTILE.source}"`);
  const state = await until(page, () => document.getElementById("state-text").textContent);
  check("control characters of a state are visible", state.includes("bell \\u{7}, escape \\u{1b}[31m"), state);
  check("bidirectional characters of a state are visible", state.includes("\\u{202e}gnp.exe"), state);
  check("markup in a state is text", state.includes("<script>"), state);
  const injected = await page.evaluate(() => [globalThis.injected, document.querySelectorAll("main img, main script").length]);
  check("nothing of strangers has run, or is an element", injected[0] == null && injected[1] === 1, injected);
  check("no error and no breach in the view of a hostile series", (await allFaults()).length === 0, await allFaults());
  await page.screenshot({ path: `${PICTURES}detail-hostile.png` });
  await context.close();
}

async function statesByContent() {
  const { page, allFaults, context } = await open(browser, address(mixed));
  const show = async (topic) => {
    await page.fill("#search", `robot-02 ${topic}`);
    await until(page, (it) => document.querySelector(".body .row:not([hidden])")?.children[1].textContent === it, topic);
    await page.click(".body .row:not([hidden]) >> nth=0");
    await page.waitForTimeout(900);
    return [await page.textContent("#state-kind"), await page.textContent("#state-text")];
  };
  const [jsonKind, json] = await show("pose");
  check("JSON is indented", jsonKind.startsWith("JSON") && json.includes('\n  "position": [\n    '), [jsonKind, json]);
  await page.screenshot({ path: `${PICTURES}detail-light.png` });
  const [textKind, text] = await show("battery");
  check("UTF-8 is shown as text", textKind.startsWith("text") && /^\d+\.\d %$/.test(text), [textKind, text]);
  const [hexKind, hex] = await show("cloud");
  check("other bytes are shown as a dump", hexKind.startsWith("binary") && /^000000 {2}([0-9a-f]{2} ){8}/.test(hex), [hexKind, hex]);
  check("a key is in the title", (await page.textContent("#detail-title")).endsWith("cloud / lidar 2"));
  const [imageKind] = await show("camera");
  const image = await page.evaluate(() => {
    const it = document.getElementById("state-image");
    return [it.naturalWidth, it.naturalHeight, it.hidden, it.src.slice(0, 5)];
  });
  check("a PNG is shown as a picture", JSON.stringify(image) === '[48,32,false,"blob:"]', [imageKind, image]);
  await page.screenshot({ path: `${PICTURES}detail-picture.png` });
  const figures = await page.textContent("#detail-figures");
  check("age, mean, 95th percentile and rate have units", /Age now\d+.* m?s.*Mean\d+.*m?s.*p95\d+.*m?s.*Rate\d.*\/s/.test(figures), figures);
  const source = await page.textContent("#source-fields");
  check("the source's counters are shown", source.includes("192.0.2.") && source.includes("Missing"), source);
  await page.waitForFunction(() => !document.getElementById("law-section").hidden, undefined, { timeout: 5000 });
  const law = await page.textContent("#law-section");
  check("the source's law is shown", /Lawtenthsteering.*80\.5 \/s.*Backlog, mean2\.40/.test(law), law);
  check("its paths are shown, with their names as text", law.includes("wlan0192.0.2.7:3774live50 %") && law.includes("<b>wwan0\\u{202e}"), law);
  check("no error and no breach while states are shown", (await allFaults()).length === 0, await allFaults());
  await context.close();
}

async function keyboard() {
  const { page, context } = await open(browser, address(mixed));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  await page.keyboard.press("/");
  check("/ goes to the search", (await page.evaluate(() => document.activeElement.id)) === "search");
  await page.keyboard.type("robot-01");
  await page.keyboard.press("ArrowDown");
  check("the arrow down leads from the search to the list", (await page.evaluate(() => document.activeElement.id)) === "grid");
  for (let count = 0; count < 2; count++) await page.keyboard.press("ArrowDown");
  const active = await page.evaluate(() => {
    const id = document.getElementById("grid").getAttribute("aria-activedescendant");
    return document.getElementById(id)?.textContent;
  });
  check("arrows move the active row", active?.startsWith("robot-01camera"), active);
  await page.keyboard.press("Enter");
  const open1 = await page.evaluate(() => [document.getElementById("detail").hidden, document.activeElement.id]);
  check("Enter opens the view of the row, which gets the focus", open1[0] === false && open1[1] === "detail-title", open1);
  const selected = await page.evaluate(() => document.querySelector('[aria-selected="true"]')?.textContent);
  check("the row of the view is marked as selected", selected?.startsWith("robot-01camera"), selected);
  await page.keyboard.press("Escape");
  const closed = await page.evaluate(() => [document.getElementById("detail").hidden, document.activeElement.id]);
  check("Escape closes it, and the list has the focus again", closed[0] === true && closed[1] === "grid", closed);
  await page.keyboard.press("End");
  const last = await page.evaluate(() => {
    const grid = document.getElementById("grid");
    const row = document.getElementById(grid.getAttribute("aria-activedescendant"));
    return [row.ariaRowIndex, grid.ariaRowCount];
  });
  check("End goes to the last row", last[0] === last[1], last);
  await page.keyboard.press("/");
  await page.keyboard.press("Escape");
  check("Escape clears the search", (await page.inputValue("#search")) === "");
  const order = [];
  await page.click("h1");
  for (let count = 0; count < 16; count++) {
    await page.keyboard.press("Tab");
    order.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent.slice(0, 20)));
  }
  const wanted = ["search", "stale-only", "limit", "theme", "grid", "Source", "Silence", "link-toggle"];
  check("Tab reaches all controls", wanted.every((it) => order.includes(it)), order);
  await context.close();
}

async function sortsAndFilters() {
  const own = await new FakeGateway({ series: simulate({ sources: 6, topics: 2, rate: 10, plain: true }) }).start();
  const { page, context } = await open(browser, address(own));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length >= 12);
  own.silence("robot-03");
  await page.waitForTimeout(1700);
  const first = () => page.textContent(".body .row:not([hidden]) >> nth=0");
  await page.click(".head-age button");
  await page.waitForTimeout(300);
  const sort = await page.getAttribute(".head-age", "aria-sort");
  const places = () =>
    page.evaluate(() =>
      [...document.querySelectorAll(".body .row:not([hidden])")]
        .sort((one, other) => Number(one.ariaRowIndex) - Number(other.ariaRowIndex))
        .map((row) => row.firstChild.textContent),
    );
  check("a click orders by age, the oldest first", sort === "descending" && (await places())[0] === "robot-03", [sort, await places()]);
  await page.click(".head-age button");
  check("another one reverses", (await page.getAttribute(".head-age", "aria-sort")) === "ascending" && (await places()).at(-1) === "robot-03", await places());
  await page.check("#stale-only");
  await page.waitForTimeout(1300);
  check("the filter shows only stale series", (await places()).join() === "robot-03,robot-03", await places());
  const stale = await page.textContent("#totals");
  check("the number of stale series is shown", stale.includes("2 shown · 2 stale"), stale);
  await page.screenshot({ path: `${PICTURES}stale.png` });
  await page.uncheck("#stale-only");
  await page.fill("#search", "no such name");
  check("an empty list says why", (await until(page, () => document.getElementById("empty").textContent.includes("No series matches") && "yes")) === "yes", await first().catch(() => ""));
  await context.close();
  await own.stop();
}

async function token() {
  const { page, context } = await open(browser, gateway.url);
  const asked = await until(page, () => !document.getElementById("token").hidden);
  check("without a token the page asks for one", asked);
  check("the form has the focus", (await page.evaluate(() => document.activeElement.id)) === "token-input");
  await page.screenshot({ path: `${PICTURES}token.png` });
  await page.fill("#token-input", "wrong");
  await page.keyboard.press("Enter");
  const reason = await until(page, () => {
    const text = document.getElementById("token-reason").textContent;
    return !document.getElementById("token").hidden && text.includes("does not accept") && text;
  });
  check("a wrong token is asked for again, with the reason", reason, await page.textContent("#token-reason"));
  await page.fill("#token-input", `${gateway.url}#token=${gateway.token}`);
  await page.keyboard.press("Enter");
  const connected = () => document.getElementById("status").dataset.status === "open";
  check("the printed address serves as a token", await until(page, connected));
  await page.reload();
  check("the token is kept for the session of the tab", await until(page, connected));
  await context.close();
}

async function reconnects() {
  const own = await new FakeGateway({ series: simulate({ sources: 8, topics: 5, rate: 10 }) }).start();
  const { page, context, faults } = await open(browser, address(own));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  await page.waitForTimeout(1000);
  const status = () => page.textContent("#status-text");
  check("the status names the transport", (await status()) === "Connected over WebSocket", await status());
  const summary = await page.textContent("#link-summary");
  check("the link says why it is used", summary.includes("WebSocket (the gateway does not offer WebTransport)"), summary);
  await own.stop();
  check("a lost connection is shown", (await until(page, () => document.getElementById("status-text").textContent.startsWith("Reconnecting") && "yes")) === "yes", await status());
  const ages = () => page.evaluate(() => [...document.querySelectorAll(".body .row:not([hidden]) .age")].map((it) => it.textContent));
  await page.waitForTimeout(2500);
  const old = await ages();
  check("ages go on growing meanwhile", old.length > 20 && old.every((it) => /^\d(\.\d)? s$/.test(it)), old);
  await page.screenshot({ path: `${PICTURES}reconnecting.png` });
  await own.start();
  const back = await until(page, () => document.getElementById("status").dataset.status === "open" && "yes");
  check("the page comes back after the gateway restarts", back === "yes", await status());
  await page.waitForTimeout(1500);
  const young = await ages();
  check("ages are those of new states again", young.filter((it) => it.endsWith(" ms")).length > young.length * 0.9, young);
  const count = await page.textContent("#totals");
  check("no series is twice", count.startsWith("9 sources · 42 series"), count);
  const others = faults.filter((it) => !/ERR_|WebSocket connection/.test(it));
  check("but for failed connections, the console has no error", others.length === 0, others);
  await context.close();
  await own.stop();
}

async function endedSeries() {
  const own = await new FakeGateway({ series: simulate({ sources: 3, topics: 2, rate: 20, plain: true }) }).start();
  const { page, context } = await open(browser, address(own));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length === 6);
  await page.click(".body .row:not([hidden]) >> nth=0");
  await page.waitForTimeout(400);
  own.removeSource("robot-00");
  const left = await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length === 4 && "4");
  check("series that end leave the list", left === "4", await page.textContent("#totals"));
  const note = await until(page, () => {
    const text = document.getElementById("detail-figures").textContent;
    return text.includes("has ended") && text;
  });
  check("the view of a series says that it has ended", note, await page.textContent("#detail-figures"));
  await context.close();
  await own.stop();
}

async function commands() {
  const { page, context, allFaults } = await open(browser, address(mixed));
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  await page.click("#link-toggle");
  await page.waitForTimeout(400);
  const link = await page.textContent("#link-fields");
  check("the panel shows the law, its rate, round trip and backlog", /acp\+d.*Rate100 updates\/s.*Smoothed RTT\d.*Backlog1\.20/.test(link), link);
  await page.fill("#command-text", "stop <now>");
  await page.keyboard.press("Enter");
  const answer = await until(page, () => {
    const text = document.getElementById("command-result").textContent;
    return text.includes("taken") && text;
  });
  check("a command reaches the gateway", answer && mixed.received.at(-1)?.text === "stop <now>", mixed.received);
  await page.screenshot({ path: `${PICTURES}link.png` });
  check("no error and no breach with the panel", (await allFaults()).length === 0, await allFaults());
  await context.close();
}

async function accessible(scheme) {
  const { page, context } = await open(browser, address(mixed), { scheme });
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  await page.waitForTimeout(3000);
  await page.screenshot({ path: `${PICTURES}list-${scheme}.png` });
  await axe(page, `list, ${scheme}`);
  await page.focus("#grid");
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.waitForTimeout(2500);
  await page.screenshot({ path: `${PICTURES}detail-${scheme}.png` });
  await axe(page, `detail view, ${scheme}`);
  await page.click("#link-toggle");
  await page.waitForTimeout(300);
  await axe(page, `panel of the link, ${scheme}`);
  await context.close();
  const { page: form, context: other } = await open(browser, mixed.url, { scheme });
  await until(form, () => !document.getElementById("token").hidden);
  await axe(form, `form for the token, ${scheme}`);
  await other.close();
}

async function axe(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const text = (it) => `${it.id} (${it.impact}): ${it.nodes[0]?.html.slice(0, 100)} ${it.nodes[0]?.failureSummary?.slice(0, 200)}`;
  check(`axe finds no serious or critical fault: ${what}`, grave.length === 0, grave.map(text));
  for (const it of violations) if (!grave.includes(it)) console.log(`       axe: ${text(it)}`);
}

async function narrow() {
  const { page, context } = await open(browser, address(mixed), { width: 400, height: 780 });
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 15);
  await page.waitForTimeout(2500);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  check("a narrow page does not scroll sideways", !overflow);
  await page.screenshot({ path: `${PICTURES}narrow.png` });
  await page.click(".body .row:not([hidden]) >> nth=3");
  await page.waitForTimeout(1500);
  await page.screenshot({ path: `${PICTURES}narrow-detail.png` });
  await context.close();
}

async function reducedMotion() {
  const { page, context } = await open(browser, address(mixed), { motion: "reduce" });
  await until(page, () => document.querySelectorAll(".body .row:not([hidden])").length > 20);
  const pictures = await page.evaluate(async () => {
    const seen = new Set();
    const canvas = document.getElementById("plots");
    const until = performance.now() + 3000;
    while (performance.now() < until) {
      await new Promise(requestAnimationFrame);
      seen.add(canvas.toDataURL());
    }
    return seen.size;
  });
  check("with reduced motion, plots change twice a second", pictures >= 4 && pictures <= 9, pictures);
  await context.close();
}
