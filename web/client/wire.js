/**
 * The messages of the Freshline protocol, version 2, as far as a monitor needs them: it reads updates and
 * closes, and writes acks and closes. The format is in docs/protocol.md.
 *
 * Parsing is total: any bytes give a message or `null`, and nothing throws. Numbers of 64 bits become a
 * `Number`, exact up to 2⁵³ and rounded above. Acks copy session, sequence number and time from the update's
 * bytes, so that these are exact in any case.
 */

import { Cursor, HALF, putU32, putU64, u32At } from "./cursor.js";

const VERSION = 2;
const UPDATE = 1;
const ACK = 2;
const CLOSE = 4;

/** Kinds of frames. */
export const STATE = 1;
export const PART = 2;
export const AGAIN = 3;
export const NAME = 4;
export const REMOVED = 5;
export const RECORD = 6;
export const QUESTION = 7;

/** The highest number of a topic or a key. */
export const MAX_TOPIC = 4095;

const MAX_NAME = 63;
const MAX_KEY = 64;
const MAX_SYMBOLS = 65536;

/** Why sessions end, by their number on the wire. */
export const CLOSE_REASONS = Object.freeze([
  "done",
  "shutting down",
  "full",
  "bad token",
  "version",
  "payload too large",
  "name taken",
  "bad name",
  "not permitted",
]);

/**
 * One frame of an update. Which fields mean something depends on `kind`.
 * @typedef {object} Frame
 * @property {number} kind  `STATE`, `PART` …
 * @property {number} topic  the number of a topic or a key, 0 to 4095
 * @property {number} behind  kinds 1, 2, 3, 5 and names of keys: the update's number − that of the state
 * @property {number} age  kinds 1, 2, 3, 5: from the state's generation to the sending of the update, ns
 * @property {number} start  kinds 1 and 2, names of keys: where state, symbol or key begins in the update's bytes
 * @property {number} end  where it ends
 * @property {Layout | null} layout  kind 2: how the state is cut
 * @property {number} index  kind 2: which symbol
 * @property {string} name  kind 4: the name of the topic
 * @property {"topic" | "key" | "records"} of  kind 4: the type of the named object
 */

/**
 * How a state is cut into symbols.
 * @typedef {object} Layout
 * @property {number} length  of the state, bytes
 * @property {number} symbol  length of a symbol, bytes
 * @property {number} repair  number of repair symbols
 * @property {number} data  number of data symbols
 */

/**
 * An estimate of (monitor's clock − source's clock).
 * @typedef {object} Offset
 * @property {number} ns  the estimate, a multiple of 256 ns
 * @property {number} error  the maximum by which it is too high, ns; `Infinity` if unbounded
 */

/**
 * An update.
 * @typedef {object} Update
 * @property {"update"} type
 * @property {Uint8Array} bytes  the datagram
 * @property {number} sessionHigh  the upper half of the session's id
 * @property {number} sessionLow  the lower half
 * @property {boolean} isOpening  whether it carries an opening
 * @property {boolean} wantsAck
 * @property {number} seq  sequence number
 * @property {number} sentHigh  the upper half of the time of sending, ns on the source's clock
 * @property {number} sentLow  the lower half
 * @property {Offset | null} offset  the clocks' offset, if it is known
 * @property {Frame[]} frames
 * @property {boolean} isOfParts  whether one of the frames is not a whole state of topic 0
 */

/**
 * The end of a session.
 * @typedef {object} Close
 * @property {"close"} type
 * @property {number} sessionHigh
 * @property {number} sessionLow
 * @property {string} reason  one of `CLOSE_REASONS`
 */

/**
 * Reads a datagram. Messages that a monitor does not expect count as malformed.
 * @param {Uint8Array} bytes
 * @returns {Update | Close | null}  `null` if it is malformed
 */
export function parse(bytes) {
  if (bytes.length < 12 || bytes[0] !== 0x46 || bytes[1] !== 0x4c || bytes[2] !== VERSION) return null;
  switch (bytes[3]) {
    case UPDATE:
      return parseUpdate(bytes);
    case CLOSE:
      return parseClose(bytes);
    default:
      return null;
  }
}

/**
 * @param {Uint8Array} bytes
 * @returns {Close | null}
 */
function parseClose(bytes) {
  if (bytes.length < 16 || bytes[12] >= CLOSE_REASONS.length) return null;
  const [sessionHigh, sessionLow] = [u32At(bytes, 4), u32At(bytes, 8)];
  return { type: "close", sessionHigh, sessionLow, reason: CLOSE_REASONS[bytes[12]] };
}

/**
 * @param {Uint8Array} bytes
 * @returns {Update | null}
 */
function parseUpdate(bytes) {
  if (bytes.length < 56) return null;
  const flags = bytes[12];
  const cursor = new Cursor(bytes, 40, bytes.length);
  if ((flags & 1) !== 0 && !skipOpening(cursor)) return null;
  const length = (bytes[14] << 8) | bytes[15];
  const start = cursor.skip(length);
  if (cursor.failed) return null;
  const frames = (flags & 8) !== 0 ? [bareState(start, start + length)] : parseFrames(bytes, start, length);
  if (frames === null) return null;
  const isOfParts = frames.some((frame) => frame.kind !== STATE || frame.topic !== 0);
  if (isOfParts && bytes.length < 72) return null;
  return {
    type: "update",
    bytes,
    sessionHigh: u32At(bytes, 4),
    sessionLow: u32At(bytes, 8),
    isOpening: (flags & 1) !== 0,
    wantsAck: (flags & 4) === 0,
    seq: u32At(bytes, 16) * HALF + u32At(bytes, 20),
    sentHigh: u32At(bytes, 24),
    sentLow: u32At(bytes, 28),
    offset: (flags & 2) !== 0 ? parseOffset(bytes) : null,
    frames,
    isOfParts,
  };
}

/**
 * Skips cookie, name and token; the transport has proven the address, and the gateway has checked the token.
 * @param {Cursor} cursor
 */
function skipOpening(cursor) {
  cursor.skip(16);
  const name = readName(cursor);
  cursor.skip(cursor.u8());
  return !cursor.failed && name !== null;
}

/** @param {Uint8Array} bytes @returns {Offset} */
function parseOffset(bytes) {
  // 7 bytes, signed: the upper 4 with the sign, then 3.
  const high = u32At(bytes, 32) | 0;
  const low = (bytes[36] << 16) | (bytes[37] << 8) | bytes[38];
  const [exponent, mantissa] = [bytes[39] >> 3, bytes[39] & 7];
  const error = bytes[39] === 0xff ? Infinity : ((8 + mantissa) * 2 ** exponent - 8) * 64;
  return { ns: (high * 0x1000000 + low) * 256, error };
}

/**
 * @param {number} kind
 * @returns {Frame}
 */
function emptyFrame(kind) {
  return {
    kind,
    topic: 0,
    behind: 0,
    age: 0,
    start: 0,
    end: 0,
    layout: null,
    index: 0,
    name: "",
    of: "topic",
  };
}

/**
 * A state of topic 0, the only one in its update.
 * @param {number} start
 * @param {number} end
 */
function bareState(start, end) {
  const frame = emptyFrame(STATE);
  [frame.start, frame.end] = [start, end];
  return frame;
}

/**
 * @param {Uint8Array} bytes
 * @param {number} start
 * @param {number} length
 * @returns {Frame[] | null}
 */
function parseFrames(bytes, start, length) {
  const outer = new Cursor(bytes, start, start + length);
  const frames = [];
  while (outer.left > 0) {
    const kind = outer.u8();
    const contentLength = outer.varint();
    const at = outer.skip(contentLength);
    if (outer.failed) return null;
    if (kind < STATE || kind > QUESTION) continue;
    const content = new Cursor(bytes, at, at + contentLength);
    const frame = parseFrame(kind, content);
    if (content.failed) return null;
    if (frame !== null) frames.push(frame);
  }
  return frames;
}

/**
 * Reads the content of a frame of a known kind; sets `content.failed` if it is malformed.
 * @param {number} kind
 * @param {Cursor} content
 * @returns {Frame | null}  `null` if the frame is to be skipped
 */
function parseFrame(kind, content) {
  const frame = emptyFrame(kind);
  frame.topic = content.varint();
  if (frame.topic > MAX_TOPIC) content.fail();
  if (kind === STATE || kind === PART || kind === AGAIN || kind === REMOVED) {
    frame.behind = content.varint();
    frame.age = content.varint();
  }
  if (kind === NAME) return parseName(frame, content);
  if (kind === RECORD) parseRecord(content);
  if (kind === PART) {
    frame.layout = parseLayout(content);
    frame.index = content.varint();
    if (frame.index >= HALF) content.fail();
  }
  [frame.start, frame.end] = [content.at, content.end];
  return frame;
}

/**
 * Reads number, end and age of a chunk of a record, which a browser does not use.
 * @param {Cursor} content
 */
function parseRecord(content) {
  content.varint();
  content.u8();
  content.varint();
}

/**
 * @param {Frame} frame
 * @param {Cursor} content
 * @returns {Frame | null}
 */
function parseName(frame, content) {
  const name = readName(content);
  if (content.left > 0) {
    const of = content.u8();
    if (of === 1) {
      frame.of = "key";
      frame.behind = content.varint();
      if (content.left < 1 || content.left > MAX_KEY) content.fail();
    } else if (of === 2) {
      frame.of = "records";
      content.skip(8);
      content.varint();
    } else {
      return null;
    }
  }
  if (name === null) content.fail();
  frame.name = name ?? "";
  [frame.start, frame.end] = [content.at, content.end];
  return frame;
}

/**
 * Reads the length and the name of a source or a topic.
 * @param {Cursor} cursor
 * @returns {string | null}  `null` if it is not a name
 */
function readName(cursor) {
  const length = cursor.u8();
  const name = cursor.text(length);
  return name === null || length > MAX_NAME || hasControl(name) ? null : name;
}

/**
 * Whether a text has characters that control how text is shown.
 * @param {string} text
 */
export function hasControl(text) {
  return /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(text);
}

/**
 * @param {Cursor} content
 * @returns {Layout}
 */
function parseLayout(content) {
  const [length, symbol, repair] = [content.varint(), content.varint(), content.varint()];
  const data = Math.ceil(length / symbol);
  const isOne =
    length >= 1 &&
    length < HALF &&
    symbol >= 2 &&
    symbol <= 65534 &&
    symbol % 2 === 0 &&
    repair <= data &&
    data + powerOfTwo(repair) <= MAX_SYMBOLS;
  if (!isOne) content.fail();
  return { length, symbol, repair, data };
}

/** @param {number} number  The next power of two; 0 for 0. */
function powerOfTwo(number) {
  let power = number === 0 ? 0 : 1;
  while (power < number) power *= 2;
  return power;
}

/**
 * The answer of a monitor to an update.
 * @typedef {object} Ack
 * @property {boolean} isNewest  the update was the newest when it arrived
 * @property {number} receivedAt  ns on the monitor's clock
 * @property {number} fresh  updates so far that were the newest when they arrived
 * @property {number} stale  updates that arrived after a newer one
 * @property {number} missing  updates before the newest that have not come
 * @property {PartsAck | null} parts  of an update of parts
 */

/**
 * Which states in parts, and topics, have arrived.
 * @typedef {object} PartsAck
 * @property {boolean} noRoom  there was no room for a state in the update
 * @property {number} beforeHigh  which of the 64 updates before it have arrived, the upper 32 bits
 * @property {number} beforeLow  the lower 32 bits; the lowest is of the update just before
 * @property {number | null} newest  the number of the newest whole state
 */

/**
 * Writes an ack with a hold of 0; see `setHold`.
 * @param {Uint8Array} update  the update that it answers
 * @param {Ack} ack
 * @returns {Uint8Array}
 */
export function encodeAck(update, ack) {
  const bytes = new Uint8Array(ack.parts === null ? 56 : 72);
  bytes.set(update.subarray(0, 12));
  bytes[3] = ACK;
  bytes[12] = (ack.isNewest ? 1 : 0) | (ack.parts === null ? 0 : 2) | (ack.parts?.noRoom ? 4 : 0);
  bytes.set(update.subarray(16, 32), 16);
  putU64(bytes, 32, ack.receivedAt);
  putU32(bytes, 44, ack.fresh);
  putU32(bytes, 48, ack.stale);
  putU32(bytes, 52, ack.missing);
  if (ack.parts !== null) {
    putU32(bytes, 56, ack.parts.beforeHigh);
    putU32(bytes, 60, ack.parts.beforeLow);
    putU64(bytes, 64, ack.parts.newest === null ? 0 : ack.parts.newest + 1);
  }
  return bytes;
}

/**
 * Sets how long the monitor held the update. Does nothing to other messages.
 * @param {Uint8Array} answer
 * @param {number} us
 */
export function setHold(answer, us) {
  if (answer[3] === ACK) putU32(answer, 40, Math.min(Math.max(Math.round(us), 0), HALF - 1));
}

/**
 * Writes a close.
 * @param {number} sessionHigh
 * @param {number} sessionLow
 * @param {number} reason  the index in `CLOSE_REASONS`
 * @returns {Uint8Array}
 */
export function encodeClose(sessionHigh, sessionLow, reason) {
  const bytes = new Uint8Array([0x46, 0x4c, VERSION, CLOSE, 0, 0, 0, 0, 0, 0, 0, 0, reason, 0, 0, 0]);
  putU32(bytes, 4, sessionHigh);
  putU32(bytes, 8, sessionLow);
  return bytes;
}
