/** Parts of the page that need no browser: texts, payloads, ages. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AgeTimes, Sawtooth } from "../ages.js";
import { contentOf, hexDump, indent } from "../payload.js";
import { formatMs, formatNumber, formatShare, visible } from "../text.js";

const bytes = (it) => new TextEncoder().encode(it);

test("control, invisible and bidirectional characters become visible", () => {
  assert.equal(visible("a\u0000b\u001b[31m"), "a\\u{0}b\\u{1b}[31m");
  assert.equal(visible("\u202egnp.exe\u2066\u200b\ufeff\u00ad"), "\\u{202e}gnp.exe\\u{2066}\\u{200b}\\u{feff}\\u{ad}");
  assert.equal(visible("\ud800x\u{e0041}"), "\\u{d800}x\\u{e0041}");
  assert.equal(visible("Zürich 東京 🤖 a/b"), "Zürich 東京 🤖 a/b");
});

test("numbers are short, and unknown ones a dash", () => {
  const times = [0, 4.24, 12.3, 999.4, 1234, 61_000, 200_000, 7_300_000].map(formatMs);
  assert.deepEqual(times, ["0.0 ms", "4.2 ms", "12 ms", "999 ms", "1.2 s", "61 s", "3 min", "2 h"]);
  assert.deepEqual([null, undefined, NaN, Infinity].map(formatMs), ["–", "–", "–", "–"]);
  assert.deepEqual([0, 1.234, 12.34, 1234.5, null].map(formatNumber), ["0", "1.23", "12.3", "1,235", "–"]);
  assert.deepEqual([0, 0.012, 0.5, null].map(formatShare), ["0 %", "1.2 %", "50 %", "–"]);
});

test("the type of a state is detected from its bytes", () => {
  assert.deepEqual(contentOf(Uint8Array.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1])), { kind: "image", type: "image/png" });
  assert.equal(contentOf(bytes("RIFF....WEBPVP8 ")).type, "image/webp");
  assert.equal(contentOf(bytes("GIF89a")).type, "image/gif");
  assert.equal(contentOf(Uint8Array.from([0xff, 0xd8, 0xff, 0xe0])).type, "image/jpeg");
  assert.equal(contentOf(bytes('{"a":1}')).kind, "json");
  assert.equal(contentOf(bytes("{not json}")).kind, "text");
  assert.equal(contentOf(bytes("12.5 V \u001b[1m")).kind, "text");
  assert.equal(contentOf(Uint8Array.from([0xff, 0xfe, 0])).kind, "hex");
  assert.equal(contentOf(Uint8Array.from([1, 2, 3, 4, 65])).kind, "hex");
  assert.equal(contentOf(new Uint8Array(0)).kind, "text");
  const long = contentOf(bytes("ä".repeat(100_000)));
  assert.deepEqual([long.kind, long.isCut], ["text", true]);
});

test("JSON is indented, and its numbers stay as they are written", () => {
  const json = '{"a":1.0,"big":12345678901234567890,"list":[1,{"b":"x,{\\"y"}],"none":{},"empty":[ ]}';
  const wanted = `{
  "a": 1.0,
  "big": 12345678901234567890,
  "list": [
    1,
    {
      "b": "x,{\\"y"
    }
  ],
  "none": {},
  "empty": []
}`;
  assert.equal(indent(json), wanted);
  // Nested brackets cannot make a text that is much longer.
  const deep = "[".repeat(5000) + "]".repeat(5000);
  assert.ok(indent(deep).length < 600_000);
});

test("a dump has offsets, digits and characters", () => {
  assert.equal(hexDump(bytes("Hi\n012345")), "000000  48 69 0a 30 31 32 33 34  Hi·01234\n000008  35                       5");
});

test("time at each age gives mean and quantiles of a sawtooth", () => {
  const times = new AgeTimes();
  for (let count = 0; count < 100; count++) times.add(20, 120); // from 20 to 120 ms, ten times a second
  assert.ok(Math.abs(times.mean - 70) < 0.01, `${times.mean}`);
  for (const share of [0.05, 0.5, 0.95]) {
    const wanted = 20 + 100 * share;
    const got = times.quantile(share);
    assert.ok(Math.abs(got - wanted) < wanted * 0.05, `${share}: ${got} for ${wanted}`);
  }
  const sum = times.bins.reduce((all, it) => all + it, 0);
  assert.ok(Math.abs(sum - 10_000) < 1e-6);
});

test("ages of any size, and none, are counted in bounded memory", () => {
  const times = new AgeTimes();
  assert.equal(times.quantile(0.5), null);
  for (const [from, to] of [[0, 1e9], [5, 5], [9, 3], [-1, 4], [NaN, 4], [0, 0.05], [1e7, 1e8]]) times.add(from, to);
  assert.ok(times.total > 1e9 && times.quantile(1) >= 1e5);
});

test("a sawtooth keeps the newest teeth, and merges teeth that follow too closely", () => {
  const teeth = new Sawtooth(16, 10);
  for (let at = 0; at < 1000; at++) teeth.add(at, at % 7, 1);
  assert.ok(teeth.count >= 95 && teeth.count <= 101, `${teeth.count}`);
  assert.equal(teeth.at.length, 16);
  assert.equal(teeth.peak(990), 6);
  const since = teeth.firstSince(950);
  assert.ok(teeth.at[since % 16] >= 950 && teeth.at[(since - 1) % 16] < 950);
});
