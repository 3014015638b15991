/** The library against a gateway with simulated sources, over WebSocket. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { FakeGateway } from "../../test/fake-gateway.mjs";
import { simulate } from "../../test/simulated.mjs";
import { Refused, connect } from "../freshline.js";

globalThis.WebSocket ??= WebSocket; // Node 20 has none.

const gateway = new FakeGateway({ series: simulate({ sources: 3, topics: 5, rate: 50 }) });
before(() => gateway.start());
after(() => gateway.stop());

test("states come with names, payloads and ages", async () => {
  const monitor = await connect(gateway.url, { token: "test-token" });
  assert.equal(monitor.transport, "websocket");
  assert.match(monitor.transportReason, /does not offer WebTransport/);
  const seen = new Map();
  for await (const state of monitor.subscribe("robot-*")) {
    const text = `${state.source}/${state.topic}`;
    if (state.age !== null) seen.set(text, state);
    if (seen.size === 15) break;
  }
  const pose = monitor.latest("robot-01/pose") ?? seen.get("robot-01/pose");
  assert.equal(pose.json().mode, "auto");
  assert.ok(seen.get("robot-01/pose").uncertainty < 50);
  const { age } = seen.get("robot-02/pose");
  assert.ok(age > 1 && age < 5000, `${age}`);
  assert.equal(seen.get("robot-00/cloud").key, "lidar 0");
  assert.equal(seen.get("robot-00/camera").payload[0], 0x89);
  assert.equal(monitor.sources().find((it) => it.name === "robot-01").dscp, 46);
  assert.equal(monitor.link.law, "acp+d");
  monitor.close();
  assert.equal(monitor.status, "closed");
});

test("changes are told once for all states of a datagram", async () => {
  const monitor = await connect(gateway.url, { token: "test-token" });
  monitor.subscribe("*");
  let [changes, states] = [0, 0];
  monitor.on("state", () => (states += 1));
  const off = monitor.on("change", () => (changes += 1));
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.ok(changes > 5 && changes < states, `${changes} changes, ${states} states`);
  off();
  const before = changes;
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(changes, before);
  monitor.close();
});

test("other patterns add series, and end none that still matches", async () => {
  const monitor = await connect(gateway.url, { token: "test-token" });
  const removed = [];
  monitor.on("removed", (series) => removed.push(series.path));
  const first = monitor.subscribe("robot-00/pose");
  await first.next();
  assert.deepEqual([...monitor.series()].map((it) => it.path), ["robot-00/pose"]);
  const second = monitor.subscribe(["robot-01/*", "robot-02/pose"]);
  const seen = new Set();
  for await (const state of second) if (seen.add(`${state.source}/${state.topic}`).size === 6) break;
  assert.ok(!seen.has("robot-00/pose"));
  assert.deepEqual(removed, []);
  monitor.close();
});

test("commands reach the gateway, refusals come back", async () => {
  const monitor = await connect(gateway.url, { token: "test-token" });
  await monitor.command("cmd", "stop");
  await monitor.command("cmd", Uint8Array.from([0, 255]));
  assert.deepEqual(gateway.received, [{ topic: "cmd", text: "stop" }, { topic: "cmd", base64: "AP8=" }]);
  await assert.rejects(monitor.command("other", "x"), /no such topic/);
  monitor.close();
  await assert.rejects(monitor.command("cmd", "x"), /no connection/);
});

test("a wrong token is refused, and not tried again", async () => {
  await assert.rejects(connect(gateway.url, { token: "wrong" }), Refused);
});

test("an address without a gateway is an error", async () => {
  await assert.rejects(connect("http://127.0.0.1:9", { token: "x" }), Error);
});

test("a pin without WebTransport does not fall back to a connection without encryption", async () => {
  const pin = ["00".repeat(32)];
  await assert.rejects(connect(gateway.url, { token: "test-token", pin }), /needs https/);
});

test("it comes back after the gateway restarts, with the same series and a new session", async () => {
  const own = await new FakeGateway({ series: simulate({ sources: 2, topics: 1, rate: 50 }) }).start();
  const monitor = await connect(own.url, { token: "test-token" });
  const events = [];
  for (const event of ["open", "close", "status"]) monitor.on(event, () => events.push(event));
  const states = monitor.subscribe("robot-00/*");
  const first = (await states.next()).value;
  await own.stop();
  await new Promise((resolve) => monitor.on("close", resolve));
  assert.equal(monitor.status, "reconnecting");
  assert.notEqual(monitor.latest("robot-00/pose"), null);
  await own.start();
  await new Promise((resolve) => monitor.on("open", resolve));
  for await (const state of states) {
    assert.equal(state.source, "robot-00");
    assert.equal(state.removed, false);
    if (state.receivedAt > first.receivedAt + 100) break;
  }
  assert.deepEqual(events.filter((it) => it !== "status"), ["close", "open"]);
  monitor.close();
  await own.stop();
});

test("an abort closes the monitor and ends loops", async () => {
  const abort = new AbortController();
  const monitor = await connect(gateway.url, { token: "test-token", signal: abort.signal });
  setTimeout(() => abort.abort(), 50);
  let count = 0;
  for await (const _ of monitor.subscribe("*")) count += 1;
  assert.ok(count > 0);
  assert.equal(monitor.status, "closed");
});
