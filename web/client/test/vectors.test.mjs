/** The vectors of docs/protocol-vectors.jsonl, as far as they concern a monitor. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as wire from "../wire.js";

const FILE = new URL("../../../docs/protocol-vectors.jsonl", import.meta.url);

/** Integers of 16 digits and more are read as BigInt, as JSON's numbers are not exact. */
const vectors = readFileSync(FILE, "utf8")
  .trim()
  .split("\n")
  .map((line) => line.replace(/: (-?\d{16,})(?=[,}\]])/g, ': "int:$1"'))
  .map((line) =>
    JSON.parse(line, (_, value) =>
      typeof value === "string" && value.startsWith("int:") ? BigInt(value.slice(4)) : value,
    ),
  );

const bytesOf = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const hexOf = (bytes) => Buffer.from(bytes).toString("hex");
const TYPES = { state: wire.STATE, part: wire.PART, again: wire.AGAIN, name: wire.NAME };
Object.assign(TYPES, { removed: wire.REMOVED, record: wire.RECORD, cursor: wire.QUESTION });

test("updates are read as the vectors say", () => {
  const updates = vectors.filter((vector) => vector.meaning?.type === "update");
  assert.ok(updates.length > 150, `${updates.length} updates`);
  for (const { name, meaning, hex } of updates) {
    const update = wire.parse(bytesOf(hex));
    assert.equal(update?.type, "update", name);
    checkUpdate(update, meaning, name);
  }
});

function checkUpdate(update, meaning, name) {
  const session = BigInt(update.sessionHigh) * 2n ** 32n + BigInt(update.sessionLow);
  assert.equal(session.toString(16).padStart(16, "0"), meaning.session, name);
  assert.equal(update.wantsAck, meaning.ack_asked, name);
  assert.equal(update.isOpening, meaning.opening !== null, name);
  assert.equal(update.seq, Number(meaning.sequence), name);
  const sentAt = BigInt(update.sentHigh) * 2n ** 32n + BigInt(update.sentLow);
  assert.equal(sentAt, BigInt(meaning.sent_at_ns), name);
  checkOffset(update.offset, meaning.clock_offset, name);
  if (meaning.bare_state !== undefined) {
    assert.equal(update.frames.length, 1, name);
    const [frame] = update.frames;
    assert.deepEqual([frame.kind, frame.topic, frame.behind, frame.age], [wire.STATE, 0, 0, 0], name);
    assert.equal(hexOf(update.bytes.subarray(frame.start, frame.end)), meaning.bare_state, name);
    return;
  }
  assert.equal(update.frames.length, meaning.frames.length, name);
  update.frames.forEach((frame, at) => checkFrame(update, frame, meaning.frames[at], name));
}

function checkOffset(offset, meaning, name) {
  if (meaning === null) return assert.equal(offset, null, name);
  assert.equal(offset.ns, Number(meaning.read_offset_ns), name);
  const error = meaning.read_error_ns === null ? Infinity : Number(meaning.read_error_ns);
  assert.equal(offset.error, error, name);
}

function checkFrame(update, frame, meaning, name) {
  const content = () => hexOf(update.bytes.subarray(frame.start, frame.end));
  assert.equal(frame.kind, TYPES[meaning.kind], name);
  assert.equal(frame.topic, meaning.topic, name);
  if (["state", "part", "again", "removed"].includes(meaning.kind)) {
    assert.equal(frame.behind, Number(meaning.behind), name);
    assert.equal(frame.age, Number(meaning.age_ns), name);
  }
  if (meaning.kind === "state") assert.equal(content(), meaning.state, name);
  if (meaning.kind === "part") {
    const { layout } = frame;
    assert.equal(layout.length, meaning.state_length, name);
    assert.equal(layout.symbol, meaning.symbol_length, name);
    assert.equal(layout.repair, meaning.repair_symbols, name);
    assert.equal(frame.index, meaning.index, name);
    assert.equal(content(), meaning.symbol, name);
  }
  if (meaning.kind === "name") {
    assert.equal(frame.name, meaning.name, name);
    const of = meaning.stream !== undefined ? "records" : meaning.key !== undefined ? "key" : "topic";
    assert.equal(frame.of, of, name);
    if (of === "key") assert.deepEqual([content(), frame.behind], [meaning.key, Number(meaning.behind)]);
  }
}

test("closes are read and written as the vectors say", () => {
  const closes = vectors.filter((vector) => vector.meaning?.type === "close");
  assert.ok(closes.length > 8);
  for (const { name, meaning, read_only: readOnly, hex } of closes) {
    const close = wire.parse(bytesOf(hex));
    assert.equal(close?.type, "close", name);
    assert.equal(close.reason.replaceAll(" ", "_"), meaning.reason, name);
    const reason = wire.CLOSE_REASONS.indexOf(close.reason);
    const written = wire.encodeClose(close.sessionHigh, close.sessionLow, reason);
    if (readOnly === undefined) assert.equal(hexOf(written), hex, name);
  }
});

test("acks are written as the vectors say", () => {
  // A browser does not know code points.
  const isOurs = ({ meaning, read_only: readOnly }) =>
    meaning?.type === "ack" && !readOnly && meaning.arrived_with === null && meaning.left_with === null;
  const acks = vectors.filter(isOurs);
  assert.ok(acks.length > 5, `${acks.length} acks`);
  for (const { name, meaning, hex } of acks) {
    const head = new Uint8Array(56);
    head.set(bytesOf("464c0201" + meaning.session));
    const numbers = [meaning.sequence, meaning.sent_at_ns].map((it) => BigInt(it).toString(16).padStart(16, "0"));
    head.set(bytesOf(numbers.join("")), 16);
    const written = wire.encodeAck(head, {
      isNewest: meaning.is_newest,
      receivedAt: Number(meaning.received_at_ns),
      fresh: meaning.fresh,
      stale: meaning.stale,
      missing: meaning.missing,
      parts: meaning.parts === null ? null : partsOf(meaning.parts),
    });
    wire.setHold(written, meaning.hold_us);
    const received = BigInt(meaning.received_at_ns);
    const isExact = BigInt(Number(received)) === received || received === 2n ** 64n - 1n;
    assert.equal(hexOf(written), isExact ? hex : withRounded(hex, Number(received)), name);
  }
});

/** The bytes with the time of receiving as a `Number` has it: the browser's clock stays below 2⁵³ ns. */
function withRounded(hex, received) {
  return hex.slice(0, 64) + BigInt(received).toString(16).padStart(16, "0") + hex.slice(80);
}

function partsOf(meaning) {
  let before = 0n;
  for (const back of meaning.received_before) before |= 1n << BigInt(back - 1);
  const [beforeHigh, beforeLow] = [Number(before >> 32n), Number(before & 0xffffffffn)];
  const newest = meaning.newest_whole === null ? null : Number(meaning.newest_whole);
  return { noRoom: meaning.no_room, beforeHigh, beforeLow, newest };
}

test("bytes that the vectors refuse are not a message", () => {
  const refused = vectors.filter((vector) => vector.refused !== undefined);
  assert.ok(refused.length > 100, `${refused.length} refused`);
  for (const { name, hex } of refused) assert.equal(wire.parse(bytesOf(hex)), null, name);
});
