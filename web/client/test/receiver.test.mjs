/** A receiver behind a path that loses, reorders and duplicates updates; hostile updates; bounded memory. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as source from "../../test/wire.mjs";
import { Receiver } from "../receiver.js";
import * as wire from "../wire.js";

const SESSION = Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]);
const START = 31_536_000_000_000_000;
const text = (bytes) => new TextDecoder().decode(bytes);
const bytes = (it) => new TextEncoder().encode(it);

/** A receiver that records its events. */
function receiver(options) {
  const log = { states: [], gone: [], opened: 0, closed: [], ages: 0 };
  const it = new Receiver(
    {
      onState: (topic) => log.states.push([topic.name, topic.key && text(topic.key), text(topic.payload)]),
      onGone: (topic) => log.gone.push([topic.name, topic.key && text(topic.key)]),
      onAges: () => (log.ages += 1),
      onOpen: () => (log.opened += 1),
      onClose: (reason) => log.closed.push(reason),
    },
    options,
  );
  const send = (seq, frames, more = {}, now = START) => {
    const answer = it.receive(source.update(more.session ?? SESSION, seq, START + seq * 1e6, frames, more), now);
    return answer === null ? null : (source.parseAck(answer) ?? wire.parse(answer));
  };
  return { it, log, send };
}

function opened(options) {
  const all = receiver(options);
  all.send(0, [], { opening: true });
  return all;
}

test("an update with an opening begins a session, others do not", () => {
  const { it, log, send } = receiver();
  assert.equal(send(3, []), null);
  assert.deepEqual(it.counts, { fresh: 0, stale: 0, missing: 0 });
  const ack = send(4, [], { opening: true });
  assert.deepEqual([ack.isNewest, ack.seq, ack.fresh, ack.stale, ack.missing], [true, 4, 1, 0, 0]);
  assert.equal(log.opened, 1);
});

test("fresh, stale, missing and copies are counted as the protocol says", () => {
  const { it, send } = opened();
  send(1, []);
  send(5, []);
  assert.deepEqual(it.counts, { fresh: 3, stale: 0, missing: 3 });
  const late = send(3, []);
  assert.equal(late.isNewest, false);
  send(3, []);
  send(5, []);
  assert.deepEqual(it.counts, { fresh: 3, stale: 1, missing: 2 });
  send(100, []);
  assert.deepEqual(it.counts, { fresh: 4, stale: 1, missing: 96 });
  send(2, []); // older than the window of 64: it counts as a copy, and the window is 4095 from now on
  assert.deepEqual(it.counts, { fresh: 4, stale: 1, missing: 96 });
  send(200, []);
  send(110, []);
  assert.deepEqual(it.counts, { fresh: 5, stale: 2, missing: 194 });
});

test("an ack of parts names the 64 updates before, and the newest state of the leading topic", () => {
  const { send } = opened();
  send(1, [source.nameFrame(3, "pose"), source.stateFrame(3, 0, 5, bytes("a"))]);
  const ack = send(4, [source.stateFrame(3, 1, 5, bytes("b"))]);
  assert.equal(ack.parts.before, 0b1100n);
  assert.deepEqual([ack.parts.newest, ack.parts.noRoom], [3, false]);
  assert.equal(send(5, [], { wantsAck: false }), null);
});

test("of two states the one with the higher number wins, in any order", () => {
  const { log, send } = opened();
  send(2, [source.nameFrame(3, "pose"), source.stateFrame(3, 0, 5, bytes("new"))]);
  send(1, [source.stateFrame(3, 0, 5, bytes("old"))]);
  send(4, [source.stateFrame(3, 3, 5, bytes("older"))]);
  assert.deepEqual(log.states, [["pose", null, "new"]]);
});

test("a state without a name is reported when the name comes", () => {
  const { log, send } = opened();
  send(1, [source.stateFrame(9, 0, 0, bytes("x"))]);
  assert.deepEqual(log.states, []);
  send(2, [source.nameFrame(9, "tf", bytes("base"), 1)]);
  assert.deepEqual(log.states, [["tf", "base", "x"]]);
  // A name whose life begins after the state is that of another key.
  send(3, [source.stateFrame(10, 0, 0, bytes("y"))]);
  send(4, [source.nameFrame(10, "tf", bytes("arm"))]);
  assert.equal(log.states.length, 1);
});

test("names are final for topics, and follow lives for keys", () => {
  const { it, log, send } = opened();
  send(1, [source.nameFrame(1, "pose"), source.stateFrame(1, 0, 0, bytes("x"))]);
  send(2, [source.nameFrame(1, "other"), source.nameFrame(2, "pose"), source.nameFrame(2, "not plain")]);
  assert.equal(it.session.topics.byNumber.get(1).name, "pose");
  assert.equal(it.session.topics.byNumber.get(2), undefined);
  send(3, [source.nameFrame(8, "tf", bytes("a")), source.stateFrame(8, 0, 0, bytes("1"))]);
  send(5, [source.nameFrame(8, "tf", bytes("b")), source.stateFrame(8, 0, 0, bytes("2"))]);
  send(4, [source.nameFrame(8, "tf", bytes("a"), 1), source.stateFrame(8, 0, 0, bytes("late"))]);
  assert.deepEqual(log.states.slice(1), [["tf", "a", "1"], ["tf", "b", "2"]]);
  assert.deepEqual(log.gone, [["tf", "a"]]);
});

test("a removed key does not come back by late updates", () => {
  const { log, send } = opened();
  send(1, [source.nameFrame(8, "tf", bytes("a")), source.stateFrame(8, 0, 0, bytes("1"))]);
  send(4, [source.removedFrame(8, 0, 0)]);
  send(2, [source.nameFrame(8, "tf", bytes("a"), 1), source.stateFrame(8, 0, 0, bytes("2"))]);
  send(3, [source.removedFrame(8, 0, 0)]);
  assert.deepEqual(log.states, [["tf", "a", "1"]]);
  assert.deepEqual(log.gone, [["tf", "a"]]);
  send(6, [source.nameFrame(8, "tf", bytes("a")), source.stateFrame(8, 0, 0, bytes("3"))]);
  assert.deepEqual(log.states.at(-1), ["tf", "a", "3"]);
});

test("a lossy path that reorders leads to the newest states and the right keys", () => {
  const random = generator(7);
  for (let round = 0; round < 200; round++) {
    const sent = [];
    const newest = new Map();
    const named = new Map();
    for (let seq = 1; seq < 60; seq++) {
      const number = 4 + Math.floor(random() * 4);
      const frames = [];
      if (random() < 0.15 && newest.has(number)) {
        newest.delete(number);
        named.delete(number);
        frames.push(source.removedFrame(number, 0, 0));
      } else {
        if (!named.has(number)) named.set(number, seq);
        const first = named.get(number);
        frames.push(source.nameFrame(number, "k", [number], seq - first), source.stateFrame(number, 0, 0, [seq]));
        newest.set(number, seq);
      }
      sent.push([seq, frames]);
    }
    const { it, send } = opened();
    // The last update of each key must arrive, because a source repeats it until it does.
    const last = new Map();
    sent.forEach(([seq, frames]) => last.set(frames.at(-1)[2], seq));
    const kept = sent.filter(([seq]) => random() < 0.7 || [...last.values()].includes(seq));
    const shuffled = [...kept, ...kept.slice(0, 9)].map((one) => [random(), one]).sort((a, b) => a[0] - b[0]);
    for (const [, [seq, frames]] of shuffled) send(seq, frames);
    const held = [...it.session.topics.byNumber.values()].filter((topic) => topic.payload !== null);
    const states = held.map((topic) => [topic.number, topic.payload[0]]).sort((a, b) => a[0] - b[0]);
    assert.deepEqual(states, [...newest].sort((a, b) => a[0] - b[0]), `round ${round}`);
    const counts = it.counts;
    assert.equal(counts.fresh + counts.stale, kept.length + 1, `round ${round}`);
  }
});

test("states in parts are put together in any order, the newer one wins", () => {
  const { log, send } = opened();
  const state = Uint8Array.from({ length: 1000 }, (_, at) => 65 + (at % 26));
  const part = (behind, index, age) =>
    source.partFrame(3, behind, age, { length: 1000, symbol: 300, index }, state.subarray(index * 300, index * 300 + 300));
  send(1, [source.nameFrame(3, "image"), part(0, 3, 0)]);
  send(2, [part(1, 0, 1e6)]);
  send(3, [part(2, 0, 2e6)]);
  send(4, [part(3, 2, 3e6), source.stateFrame(5, 0, 0, bytes("x"))]);
  const wrong = source.partFrame(3, 4, 4e6, { length: 1000, symbol: 300, index: 1 }, state.subarray(0, 299));
  send(5, [wrong]);
  assert.equal(log.states.length, 0);
  const ack = send(6, [part(5, 1, 5e6)]);
  assert.equal(ack.parts.newest, 1);
  assert.deepEqual(log.states, [["image", null, text(state)]]);
  send(7, [part(6, 1, 6e6)]);
  assert.equal(log.states.length, 1);
});

test("the clocks' offset gives ages, also of states that came before it", () => {
  const { it, log, send } = opened();
  const now = 2 ** 50;
  const offset = { ns: now - START - 5e6, error: 64_000 };
  send(1, [source.nameFrame(3, "pose"), source.stateFrame(3, 0, 2e6, bytes("a"))], {}, now);
  const topic = it.session.topics.byNumber.get(3);
  assert.ok(Number.isNaN(topic.generatedAt));
  send(2, [], { offset }, now + 1e6);
  assert.equal(log.ages, 1);
  // Update 1 left 1 ms after the start, and its state was 2 ms old; clocks differ by `offset`.
  assert.ok(Math.abs(topic.generatedAt - (now - 5e6 + 1e6 - 2e6)) <= 256 + 8, `${topic.generatedAt - now}`);
  assert.ok(topic.uncertainty >= 64_000 && topic.uncertainty < 80_000, `${topic.uncertainty}`);
  // An offset according to which an update arrived before it left is rejected.
  send(3, [source.stateFrame(3, 0, 0, bytes("b"))], { offset: { ns: offset.ns + 60e6, error: 64_000 } }, now + 2e6);
  assert.ok(Number.isNaN(topic.generatedAt));
});

test("another session replaces the one before, whose late updates change nothing", () => {
  const { log, send } = opened();
  const session = SESSION.map((it) => it + 1);
  send(0, [], { opening: true, session });
  assert.equal(log.opened, 2);
  assert.equal(send(1, [], { opening: true }), null);
  assert.equal(log.opened, 2);
});

test("a close ends only its own session", () => {
  const { it, log } = opened();
  it.receive(wire.encodeClose(1, 2, 0), START);
  assert.deepEqual(log.closed, []);
  it.receive(wire.encodeClose(0x01020304, 0x05060708, 1), START);
  assert.deepEqual(log.closed, ["shutting down"]);
});

test("a state that is too long is refused at its first part", () => {
  const { send } = opened();
  const ack = send(1, [source.partFrame(3, 0, 0, { length: 9 << 20, symbol: 1000, index: 0 }, new Uint8Array(1000))]);
  assert.deepEqual([ack.type, ack.reason], ["close", "payload too large"]);
});

test("memory is bounded, whatever keys, states and parts come; a full receiver says so", () => {
  const maxMemory = 1 << 20;
  const { it, send } = opened({ maxMemory });
  let refused = 0;
  for (let seq = 1; seq < 20_000; seq++) {
    const number = (seq * 7) % 4096;
    const frames =
      seq % 2 === 0
        ? [source.nameFrame(number, "k", bytes(`key ${seq}`)), source.stateFrame(number, 0, 0, new Uint8Array(900))]
        : [source.partFrame(number, 0, 0, { length: 60_000, symbol: 600, index: seq % 100 }, new Uint8Array(600))];
    if (send(seq, frames).parts.noRoom) refused += 1;
    assert.ok(it.session.topics.room.used <= maxMemory);
  }
  assert.ok(refused > 1000, `${refused} refused`);
  for (let number = 0; number < 4096; number++) send(20_000 + number, [source.removedFrame(number, 0, 0)]);
  const { room, byNumber } = it.session.topics;
  assert.ok([...byNumber.keys()].every((number) => number === 0)); // topic 0 has no keys
  assert.ok(room.used < 4096 * 32 + 70_000, `${room.used}`);
});

test("random bytes and damaged vectors throw nothing, and do not hang", () => {
  const random = generator(11);
  const file = new URL("../../../docs/protocol-vectors.jsonl", import.meta.url);
  const vectors = readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const { it, send } = opened();
  for (let round = 0; round < 40; round++) {
    for (const { hex } of vectors) {
      const damaged = new Uint8Array(Buffer.from(hex, "hex"));
      for (let count = 0; count < 3 && damaged.length > 0; count++) {
        damaged[Math.floor(random() * damaged.length)] = random() * 256;
      }
      if (damaged.length >= 12) damaged.set(SESSION, 4);
      const cut = random() < 0.3 ? damaged.subarray(0, random() * damaged.length) : damaged;
      const answer = it.receive(cut.slice(), START + round);
      assert.ok(answer === null || answer.length <= Math.max(cut.length, 72));
    }
    const noise = Uint8Array.from({ length: Math.floor(random() * 1500) }, () => random() * 256);
    noise.set([0x46, 0x4c, 2, 1].slice(0, noise.length));
    it.receive(noise, START);
    if (it.session === null) send(0, [], { opening: true, session: SESSION.map((byte) => byte + round + 1) });
  }
});

test("twenty states in each of many updates all arrive, and the rate is printed", () => {
  const { send, it } = opened();
  const frames = [];
  for (let number = 4; number < 24; number++) frames.push(source.stateFrame(number, 0, 1000, new Uint8Array(40)));
  const updates = Array.from({ length: 5000 }, (_, at) => source.update(SESSION, at + 1, START + at, frames));
  send(1, []);
  const from = performance.now();
  let answers = 0;
  for (const one of updates) answers += it.receive(one, START) === null ? 0 : 1;
  const seconds = (performance.now() - from) / 1000;
  const rate = (updates.length * frames.length) / seconds;
  console.log(`${Math.round(rate)} states/s on one processor`);
  assert.equal(answers, updates.length);
});

/** Numbers from 0 to 1, the same each time (mulberry32). */
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let it = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    it = (it + Math.imul(it ^ (it >>> 7), 61 | it)) ^ it;
    return ((it ^ (it >>> 14)) >>> 0) / 4294967296;
  };
}
