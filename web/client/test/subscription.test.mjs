/** Subscriptions: the newest state of each series, in turn. Catalogues: data from a gateway, hostile or not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Catalogue, Series } from "../series.js";
import { Subscription, matches } from "../subscription.js";

const bytes = (it) => new TextEncoder().encode(it);

function withState(series, text) {
  series.payload = bytes(text);
  return series;
}

const noop = () => {};

test("patterns match as the gateway's do", () => {
  assert.ok(matches("robot-*/pose", "robot-7/pose"));
  assert.ok(matches("*", ""));
  assert.ok(matches("**", "a/b"));
  assert.ok(matches("a*b*c", "aXbYbZc"));
  assert.ok(!matches("a*b", "ab/c"));
  assert.ok(!matches("", "a"));
  assert.ok(!matches("robot-*/pose", "robot-7/poses"));
  // The work is at most the product of both lengths.
  assert.ok(!matches("*a".repeat(100) + "b", "a".repeat(10_000)));
});

test("a slow consumer gets the newest state of each series, in turn", async () => {
  const it = new Subscription(["r/*"], noop);
  const [a, b, other] = [new Series("r", "a", null), new Series("r", "b", null), new Series("s", "a", null)];
  for (let at = 0; at < 1000; at++) {
    it.push(withState(a, `a${at}`));
    it.push(withState(b, `b${at}`));
    it.push(withState(other, "no"));
  }
  const next = async () => (await it.next()).value.text;
  assert.deepEqual([await next(), await next()], ["a999", "b999"]);
  it.push(withState(b, "b1000"));
  it.push(withState(a, "a1000"));
  it.push(withState(b, "b1001"));
  assert.deepEqual([await next(), await next()], ["b1001", "a1000"]);
  const [first, second] = [it.next(), it.next()];
  it.push(withState(a, "a1001"));
  it.push(withState(a, "a1002"));
  assert.deepEqual([(await first).value.text, (await second).value.text], ["a1001", "a1002"]);
});

test("a state does not change after it was taken, and becomes older", async () => {
  const it = new Subscription(["*"], noop);
  const series = withState(new Series("r", null, "k"), "1");
  it.push(series);
  const state = (await it.next()).value;
  assert.deepEqual([state.source, state.topic, state.key, state.age], ["r", null, "k", null]);
  series.generatedAt = performance.now() - 50; // the clocks' offset has become known
  const age = state.age;
  assert.ok(age >= 50 && age < 1000, `${age}`);
  withState(series, "2");
  assert.equal(state.json(), 1);
});

test("a removal comes once the consumer knows the series", async () => {
  const it = new Subscription(["*"], noop);
  const [known, unknown] = [withState(new Series("r", "a", null), "a"), withState(new Series("r", "b", null), "b")];
  it.push(known);
  await it.next();
  it.push(unknown);
  for (const series of [known, unknown]) {
    series.isGone = true;
    it.push(series);
  }
  const { value } = await it.next();
  assert.deepEqual([value.topic, value.removed], ["a", true]);
  assert.equal(it.changed.size, 0);
});

test("leaving a loop ends a subscription", async () => {
  let ended = 0;
  const it = new Subscription(["*"], () => (ended += 1));
  it.push(withState(new Series("r", "a", null), "a"));
  for await (const state of it) {
    assert.equal(state.text, "a");
    break;
  }
  assert.equal(ended, 1);
  assert.deepEqual(await it.next(), { done: true, value: undefined });
});

let numbers = 0;

/** A topic as a receiver reports it. */
function topic(name, id, content, generatedAt = NaN) {
  const payload = typeof content === "string" ? bytes(content) : content;
  const key = id === null ? null : Uint8Array.from([id >> 8, id & 255]);
  return { name, key, payload, generatedAt, stateNumber: ++numbers, uncertainty: 1e6, receivedAt: 2 ** 50 };
}

const state = (id, text, flags = 0) => topic("states", id, Uint8Array.from([flags, 0, 0, 0, text.length, 0, 0, 0, 0, ...bytes(text)]));

function catalogue() {
  const log = [];
  const it = new Catalogue({
    onState: (series) => log.push([series.path, series.key, new TextDecoder().decode(series.payload)]),
    onRemoved: (series) => log.push([series.path, series.key, "removed"]),
  });
  return { it, log };
}

test("a state may come before the name of its series", () => {
  const { it, log } = catalogue();
  it.onState(state(1, "x"));
  assert.deepEqual(log, []);
  it.onState(topic("names", 1, '{"source":"r","topic":"pose","of":3}'));
  it.onState(state(1, "y"));
  assert.deepEqual(log, [["r/pose", null, "x"], ["r/pose", null, "y"]]);
  it.onGone(topic("names", 1, "{}"));
  assert.deepEqual(log.at(-1), ["r/pose", null, "removed"]);
  assert.deepEqual([it.series.size, it.byId.size], [0, 0]);
});

test("a number that another series gets does not bring it the former one's state", () => {
  const { it, log } = catalogue();
  it.onState(topic("names", 1, '{"source":"r","topic":"a"}'));
  it.onState(state(1, "of a"));
  it.onState(topic("names", 1, '{"source":"r","topic":"b"}'));
  assert.deepEqual(log, [["r/a", null, "of a"], ["r/a", null, "removed"]]);
  it.onGone(topic("names", 1, "{}"));
  it.onState(state(1, "of c")); // before its name
  it.onState(topic("names", 1, '{"source":"r","topic":"c"}'));
  assert.deepEqual(log.slice(2), [["r/b", null, "removed"], ["r/c", null, "of c"]]);
});

test("series that are named again after other wishes have not ended", () => {
  const { it, log } = catalogue();
  for (const [id, name] of [[1, "a"], [2, "b"]]) it.onState(topic("names", id, `{"source":"r","topic":"${name}"}`));
  it.expectNames();
  for (const id of [1, 2]) it.onGone(topic("names", id, "{}"));
  it.onState(topic("names", 3, '{"source":"r","topic":"b"}'));
  assert.deepEqual(log, []);
  it.sweep();
  assert.deepEqual(log, [["r/a", null, "removed"]]);
  it.onGone(topic("names", 3, "{}"));
  assert.deepEqual(log.at(-1), ["r/b", null, "removed"]);
});

test("a series goes on in the next session, by its names; a series that is not named again ends", () => {
  const { it, log } = catalogue();
  it.onState(topic("names", 1, '{"source":"r","topic":"a"}'));
  it.onState(topic("names", 2, '{"source":"r","topic":"b"}'));
  const series = it.series.get('["r","a",null]');
  it.begin();
  it.onState(topic("names", 2, '{"source":"r","topic":"a"}'));
  it.onState(state(2, "z"));
  assert.equal(it.series.get('["r","a",null]'), series);
  it.sweep();
  assert.deepEqual(log, [["r/a", null, "z"], ["r/b", null, "removed"]]);
});

test("hostile names and fields change no prototype and throw nothing", () => {
  const { it } = catalogue();
  const texts = ["", "null", "[]", "1e999", '{"source":1}', '{"source":{}}', `{"source":"${"x".repeat(300)}"}`, "\ud800"];
  for (const text of texts) for (const name of ["names", "sources", "link"]) it.onState(topic(name, 1, text));
  assert.equal(it.series.size, 0);
  it.onState(topic("names", 1, '{"source":"__proto__","topic":"constructor","key":"toString","__proto__":{"x":1}}'));
  it.onState(topic("sources", 1, '["__proto__",null,1e999,"5",{},[]]'));
  it.onState(topic("link", null, '{"__proto__":{"polluted":true},"law":"acp+d"}'));
  it.onState(topic("states", 1, Uint8Array.from([0, 0])));
  it.onState(topic("unknown", 1, "x"));
  assert.equal({}.polluted, undefined);
  assert.equal(it.series.get('["__proto__","constructor","toString"]').path, "__proto__/constructor");
  const { name, silence, rate, fresh } = it.sources.get(1);
  assert.deepEqual([name, silence, rate, fresh], ["__proto__", null, null, null]);
});

test("an age that the gateway does not know is not shown", () => {
  const { it } = catalogue();
  it.onState(topic("names", 1, '{"source":"r","topic":"a"}'));
  it.onState({ ...state(1, "x", 1), generatedAt: 2 ** 50 });
  assert.equal(it.byId.get(1).age(), null);
  it.onState({ ...state(1, "x", 2), generatedAt: 2 ** 50 });
  assert.ok(it.byId.get(1).age() >= 0);
  assert.equal(it.byId.get(1).isCut, true);
});
