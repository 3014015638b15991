/** Writes updates and reads acks: a source's side of the protocol, for tests. The format is in docs/protocol.md. */

import { HALF, putU32, putU64, u32At } from "../client/cursor.js";

const utf8 = new TextEncoder();

/** A varint in its shortest form. */
export function varint(value) {
  if (value < 0x40) return [value];
  if (value < 0x4000) return [0x40 | (value >> 8), value & 0xff];
  const bytes = new Uint8Array(value < 0x40000000 ? 4 : 8);
  if (bytes.length === 4) putU32(bytes, 0, value + 0x80000000);
  else putU64(bytes, 0, value), (bytes[0] |= 0xc0);
  return [...bytes];
}

function frame(kind, head, content = new Uint8Array()) {
  const start = [kind, ...varint(head.length + content.length), ...head];
  const bytes = new Uint8Array(start.length + content.length);
  bytes.set(start);
  bytes.set(content, start.length);
  return bytes;
}

const id = (topic, behind, age) => [...varint(topic), ...varint(behind), ...varint(age)];

/** A whole state. */
export const stateFrame = (topic, behind, age, content) => frame(1, id(topic, behind, age), content);

/** A part of a state. */
export function partFrame(topic, behind, age, { length, symbol, repair = 0, index }, content) {
  const layout = [length, symbol, repair, index].flatMap(varint);
  return frame(2, [...id(topic, behind, age), ...layout], content);
}

/** A state again. */
export const againFrame = (topic, behind, age) => frame(3, id(topic, behind, age));

/** The name of a topic, or of a key. */
export function nameFrame(topic, name, key = null, behind = 0) {
  const bytes = utf8.encode(name);
  const ofKey = key === null ? [] : [1, ...varint(behind), ...key];
  return frame(4, [...varint(topic), bytes.length, ...bytes, ...ofKey]);
}

/** The removal of a key. */
export const removedFrame = (topic, behind, age) => frame(5, id(topic, behind, age));

/** The code of an error of the clocks' offset, ns. */
function errorCode(error) {
  const scaled = Math.ceil(error / 64) + 8;
  const exponent = Math.floor(Math.log2(scaled)) - 3;
  return Math.min((exponent << 3) + Math.ceil(scaled / 2 ** exponent) - 8, 255);
}

/**
 * An update.
 * @param {Uint8Array} session  8 bytes
 * @param {number} seq
 * @param {number} sentAt  ns
 * @param {Uint8Array[]} frames
 * @param {{opening?: boolean, wantsAck?: boolean, offset?: {ns: number, error: number} | null}} [options]
 */
export function update(session, seq, sentAt, frames, { opening = false, wantsAck = true, offset = null } = {}) {
  const length = frames.reduce((sum, it) => sum + it.length, 0);
  const start = 40 + (opening ? 18 : 0);
  const bytes = new Uint8Array(Math.max(start + length, 72));
  bytes.set([0x46, 0x4c, 2, 1]);
  bytes.set(session, 4);
  bytes[12] = (opening ? 1 : 0) | (offset === null ? 0 : 2) | (wantsAck ? 0 : 4);
  [bytes[14], bytes[15]] = [length >> 8, length];
  putU64(bytes, 16, seq);
  putU64(bytes, 24, sentAt);
  if (offset !== null) {
    const units = BigInt.asUintN(56, BigInt(Math.floor(offset.ns / 256)));
    putU32(bytes, 32, Number(units >> 24n));
    bytes.set([Number((units >> 16n) & 255n), Number((units >> 8n) & 255n), Number(units & 255n)], 36);
    bytes[39] = errorCode(offset.error);
  }
  let at = start;
  for (const it of frames) {
    bytes.set(it, at);
    at += it.length;
  }
  return bytes;
}

const u64At = (bytes, at) => u32At(bytes, at) * HALF + u32At(bytes, at + 4);

/** Reads an ack; `null` if it is something else. */
export function parseAck(bytes) {
  if (bytes.length < 56 || bytes[2] !== 2 || bytes[3] !== 2) return null;
  const ack = {
    isNewest: (bytes[12] & 1) !== 0,
    seq: u64At(bytes, 16),
    sentAt: u64At(bytes, 24),
    receivedAt: u64At(bytes, 32),
    hold: u32At(bytes, 40) * 1000,
    fresh: u32At(bytes, 44),
    stale: u32At(bytes, 48),
    missing: u32At(bytes, 52),
    parts: null,
  };
  if ((bytes[12] & 2) !== 0 && bytes.length >= 72) {
    const before = (BigInt(u32At(bytes, 56)) << 32n) | BigInt(u32At(bytes, 60));
    const newest = u64At(bytes, 64);
    ack.parts = { noRoom: (bytes[12] & 4) !== 0, before, newest: newest === 0 ? null : newest - 1 };
  }
  return ack;
}

/** Whether an ack confirms an update with all of its content. */
export function names(ack, seq) {
  if (seq === ack.seq) return ack.parts === null || !ack.parts.noRoom;
  const back = ack.seq - seq;
  return back > 0 && back <= 64 && ack.parts !== null && (ack.parts.before & (1n << BigInt(back - 1))) !== 0n;
}
