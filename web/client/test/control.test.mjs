/** Control messages, endpoint descriptions, and lines of a stream: hostile or not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Control, MAX_MESSAGE } from "../control.js";
import { parseEndpoint, parseHash } from "../endpoint.js";
import { Lines } from "../transport.js";

const bytes = (it) => new TextEncoder().encode(it);

test("answers settle the requests with their number, once", async () => {
  const sent = [];
  const control = new Control((text) => sent.push(JSON.parse(text)));
  const [first, second] = [control.request({ subscribe: ["*"] }), control.request({ command: {} })];
  assert.deepEqual(sent.map(({ id }) => id), [1, 2]);
  control.onText('{"id":2,"ok":false,"error":"no"}');
  control.onText('{"id":1,"ok":true,"series":42,"more":[]}');
  control.onText('{"id":1,"ok":false,"error":"late"}');
  assert.deepEqual(await first, { series: 42 });
  await assert.rejects(second, /^Error: no$/);
});

test("other messages are ignored, whatever they are", async () => {
  const control = new Control(() => {});
  const request = control.request({});
  for (const text of ["", "null", "[]", "1", '{"id":null}', '{"id":7,"ok":true}', '{"id":{}}', "{", `"${"x".repeat(MAX_MESSAGE)}"`]) {
    control.onText(text);
  }
  assert.equal(control.pending.size, 1);
  control.onText('{"id":1,"ok":"yes","error":{}}');
  await assert.rejects(request, /refuses/);
});

test("requests are bounded in length and number, and end with the connection", async () => {
  const control = new Control(() => {});
  await assert.rejects(control.request({ text: "x".repeat(MAX_MESSAGE) }), /longer than/);
  const pending = Array.from({ length: 32 }, () => control.request({}));
  await assert.rejects(control.request({}), /has not answered 32/);
  control.close();
  for (const one of pending) await assert.rejects(one, /has ended/);
});

test("an endpoint is read, and nothing else is one", () => {
  const hash = "ab".repeat(32);
  const good = { version: "0.1.0", webtransport: { port: 8080, path: "/f", hashes: [hash] }, websocket: "/ws", commands: ["cmd"] };
  const read = parseEndpoint(JSON.stringify({ ...good, more: 1 }));
  assert.equal(read.webtransport.hashes[0].length, 32);
  assert.equal(read.webtransport.hashes[0][31], 0xab);
  assert.equal(parseEndpoint(JSON.stringify({ ...good, webtransport: null })).webtransport, null);
  const bad = [
    { websocket: "//other.example/" + "x".repeat(300) },
    { websocket: "ws://other.example" },
    { websocket: 1 },
    { version: 1 },
    { commands: [1] },
    { commands: "cmd" },
    { webtransport: { port: 0, path: "/f", hashes: [] } },
    { webtransport: { port: 8080.5, path: "/f", hashes: [] } },
    { webtransport: { port: 8080, path: "f", hashes: [] } },
    { webtransport: { port: 8080, path: "/f", hashes: ["ab"] } },
    { webtransport: { port: 8080, path: "/f" } },
    { webtransport: 5 },
  ];
  for (const change of bad) assert.equal(parseEndpoint(JSON.stringify({ ...good, ...change })), null, JSON.stringify(change));
  for (const text of ["", "null", "[]", "5", "{"]) assert.equal(parseEndpoint(text), null, text);
});

test("a hash has 64 hexadecimal digits", () => {
  assert.deepEqual([...parseHash(`${"0".repeat(62)}fF`)].at(-1), 255);
  for (const text of ["", "0".repeat(63), "0".repeat(65), `${"0".repeat(63)}g`]) assert.equal(parseHash(text), null);
});

test("lines are cut wherever the stream is, and may not be too long", () => {
  const lines = [];
  const it = new Lines((line) => lines.push(line));
  const stream = bytes('{"a":"ä"}\n\n{"b":1}\n{"c"');
  for (const byte of stream) it.add(Uint8Array.of(byte));
  assert.deepEqual(lines, ['{"a":"ä"}', "", '{"b":1}']);
  assert.throws(() => it.add(bytes("x".repeat(MAX_MESSAGE + 1))), /too long/);
});
