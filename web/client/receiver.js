/**
 * The monitor's end of a Freshline session: takes datagrams, keeps the newest state of each topic, and returns the
 * answers. It has no clock and no socket. docs/protocol.md specifies its behaviour.
 *
 * The transport has proven the address, so an update with an opening begins a session without a challenge.
 * Times of the source's clock are kept relative to the session's first update, so that a `Number` holds them
 * exactly.
 */

import { Arrivals } from "./arrivals.js";
import { Assembly } from "./assembly.js";
import { HALF } from "./cursor.js";
import { Topics } from "./topics.js";
import * as wire from "./wire.js";

/** @typedef {import("./wire.js").Update} Update */
/** @typedef {import("./wire.js").Frame} Frame */
/** @typedef {import("./topics.js").Topic} Topic */

/** The maximum length of a state in parts, in bytes. */
const MAX_STATE = 8 << 20;
const TOO_LARGE = wire.CLOSE_REASONS.indexOf("payload too large");
/** The maximum length of all states of a session together, in bytes. */
const MAX_MEMORY = 64 << 20;
/** A state in a datagram up to this length keeps the datagram; otherwise it is copied. */
const MAX_SHARED = 2048;
/** How far clocks drift. */
const DRIFT = 500e-6;
/** The unit of the clocks' offset, ns. */
const OFFSET_UNIT = 256;
/** The number of replaced sessions that are remembered, so that late updates do not open one again. */
const MAX_FORMER = 8;

/** The effect of a frame on its topic. @typedef {"fresh" | "late" | "other" | "no room"} Outcome */

/**
 * The events of a receiver.
 * @typedef {object} Listener
 * @property {(topic: Topic) => void} onState  a topic with a name has a newer state
 * @property {(topic: Topic) => void} onGone  a key was removed
 * @property {() => void} onAges  the ages of earlier states have become known
 * @property {() => void} onOpen  a session has begun; topics of the previous one are no longer valid
 * @property {(reason: string) => void} onClose  the source has ended the session
 */

/** The state of a session. */
class Session {
  /**
   * @param {Update} update  the one with the opening
   * @param {Topics} topics
   */
  constructor(update, topics) {
    this.high = update.sessionHigh;
    this.low = update.sessionLow;
    this.arrivals = new Arrivals(update.seq);
    this.topics = topics;
    this.firstSentHigh = update.sentHigh;
    this.firstSentLow = update.sentLow;
    /** Whether a topic may have a state whose age is not known. */
    this.lacksAges = false;
    /** @type {Set<number>}  Updates with a state for which there was no room. */
    this.refused = new Set();
    this.newestRefused = -1;
  }
}

/** Receives the updates of one source. */
export class Receiver {
  /**
   * @param {Listener} listener
   * @param {{maxMemory?: number}} [options]  `maxMemory`: bytes for all states together
   */
  constructor(listener, { maxMemory = MAX_MEMORY } = {}) {
    this.listener = listener;
    this.maxMemory = maxMemory;
    /** @type {Session | null} */
    this.session = null;
    /** @type {string[]} */
    this.former = [];
  }

  /**
   * A datagram has arrived.
   * @param {Uint8Array} bytes  must not change afterwards
   * @param {number} now  ns on the monitor's clock
   * @returns {Uint8Array | null}  the answer, whose hold is 0 (`wire.setHold`)
   */
  receive(bytes, now) {
    const message = wire.parse(bytes);
    if (message === null) return null;
    if (message.type === "close") return this.#onClose(message);
    if (message.seq > Number.MAX_SAFE_INTEGER) return null;
    const session = this.#sessionOf(message);
    if (session === null) return null;
    const isTooLarge = message.frames.some((it) => it.layout !== null && it.layout.length > MAX_STATE);
    if (isTooLarge) return wire.encodeClose(session.high, session.low, TOO_LARGE);
    const isFirst = this.session !== session;
    if (isFirst) this.#begin(session);
    const isNewest = this.#onUpdate(session, message, now, isFirst);
    if (!message.wantsAck && !isFirst) return null;
    return this.#ack(session, message, now, isNewest);
  }

  /** The bytes that end the session from this side; `null` without one. */
  close() {
    const { session } = this;
    this.session = null;
    return session === null ? null : wire.encodeClose(session.high, session.low, 1);
  }

  /** The numbers of fresh, stale and missing updates of the session. */
  get counts() {
    const { fresh = 0, stale = 0, missing = 0 } = this.session?.arrivals ?? {};
    return { fresh, stale, missing };
  }

  /** @param {import("./wire.js").Close} message */
  #onClose({ sessionHigh, sessionLow, reason }) {
    const { session } = this;
    if (session !== null && session.high === sessionHigh && session.low === sessionLow) {
      this.former.push(labelOf(sessionHigh, sessionLow));
      this.session = null;
      this.listener.onClose(reason);
    }
    return null;
  }

  /**
   * The session of an update: the present one, or a new one if it carries an opening.
   * @param {Update} update
   * @returns {Session | null}
   */
  #sessionOf(update) {
    const { session } = this;
    const { sessionHigh, sessionLow } = update;
    if (session !== null && session.high === sessionHigh && session.low === sessionLow) return session;
    if (!update.isOpening || this.former.includes(labelOf(sessionHigh, sessionLow))) return null;
    const onGone = (/** @type {Topic} */ topic) => this.listener.onGone(topic);
    return new Session(update, new Topics(this.maxMemory, onGone));
  }

  /** @param {Session} session */
  #begin(session) {
    if (this.session !== null) this.former.push(labelOf(this.session.high, this.session.low));
    if (this.former.length > MAX_FORMER) this.former.shift();
    this.session = session;
    this.listener.onOpen();
  }

  /**
   * @param {Session} session
   * @param {Update} update
   * @param {number} now
   * @param {boolean} isFirst
   * @returns {boolean}  whether it was the newest, and no state in it was out of date
   */
  #onUpdate(session, update, now, isFirst) {
    const { arrivals } = session;
    const arrival = isFirst ? "newest" : arrivals.add(update.seq);
    if (arrival === "copy") return false;
    // An update from before the opening can carry the offset of another monitor's clock.
    const isBelieved = update.seq > arrivals.first && isCredible(update, now);
    const offset = isBelieved ? update.offset : null;
    const first = this.#onFrames(session, update, offset, now);
    if (isFirst) return true;
    const isNewest = arrival === "newest" && first !== "late";
    if (isNewest) arrivals.fresh += 1;
    else arrivals.stale += 1;
    return isNewest;
  }

  /**
   * @param {Session} session
   * @param {Update} update
   * @param {wire.Offset | null} offset
   * @param {number} now
   * @returns {Outcome}  that of the first frame of topic 0
   */
  #onFrames(session, update, offset, now) {
    /** @type {Outcome | null} */
    let first = null;
    const isBefore = update.seq < session.arrivals.first;
    for (const frame of update.frames) {
      if (isBefore && frame.topic > 0) continue;
      const outcome = this.#onFrame(session, update, frame, offset, now);
      if (outcome === "no room") refuse(session, update.seq);
      if (frame.topic === 0 && frame.kind !== wire.NAME) first ??= outcome;
    }
    if (offset !== null && session.lacksAges) {
      learnAges(session, update, offset);
      this.listener.onAges();
    }
    return first ?? "other";
  }

  /**
   * @param {Session} session
   * @param {Update} update
   * @param {Frame} frame
   * @param {wire.Offset | null} offset
   * @param {number} now
   * @returns {Outcome}
   */
  #onFrame(session, update, frame, offset, now) {
    const { topics } = session;
    const number = Math.max(update.seq - frame.behind, 0);
    switch (frame.kind) {
      case wire.NAME:
        return this.#onName(session, update, frame);
      case wire.REMOVED:
        return frame.topic === 0 || topics.onRemoved(frame.topic, number) ? "other" : "no room";
      case wire.RECORD:
        return "no room"; // Browsers take no records.
      case wire.QUESTION:
        return "other";
    }
    const isWhole = frame.kind === wire.STATE;
    if (topics.isFormer(frame.topic, number)) return isWhole ? "late" : "other";
    const isKnown = topics.byNumber.has(frame.topic);
    const topic = frame.kind === wire.AGAIN && !isKnown ? null : topics.find(frame.topic);
    if (topic === null) return isWhole ? "no room" : "other";
    const generated = sinceFirst(session, update) - frame.age;
    if (number === topic.stateNumber && generated === topic.generated) {
      if (offset !== null && Number.isNaN(topic.generatedAt)) setAge(topic, update, offset, frame.age);
      return "other";
    }
    if (number <= topic.stateNumber) return isWhole ? "late" : "other";
    if (frame.kind === wire.AGAIN) return "other";
    const isPut = isWhole ? putWhole(topic, update, frame, number) : putPart(topic, update, frame, number, generated);
    if (!isPut) return isWhole ? "no room" : "other";
    take(topic, number, generated, now);
    if (offset !== null) setAge(topic, update, offset, frame.age);
    else session.lacksAges = true;
    if (topic.name !== "") this.listener.onState(topic);
    return "fresh";
  }

  /**
   * @param {Session} session
   * @param {Update} update
   * @param {Frame} frame
   * @returns {Outcome}
   */
  #onName(session, update, frame) {
    if (frame.of === "records") return "no room";
    const key = frame.of === "key" ? update.bytes.slice(frame.start, frame.end) : null;
    const life = key === null ? 0 : Math.max(update.seq - frame.behind, 0);
    const named = session.topics.onName(frame.topic, life, frame.name, key);
    if (named !== null && named.payload !== null) this.listener.onState(named);
    return "other";
  }

  /**
   * @param {Session} session
   * @param {Update} update
   * @param {number} now
   * @param {boolean} isNewest
   */
  #ack(session, update, now, isNewest) {
    const { fresh, stale, missing } = session.arrivals;
    const parts = update.isOfParts ? partsOf(session, update) : null;
    return wire.encodeAck(update.bytes, { isNewest, receivedAt: now, fresh, stale, missing, parts });
  }
}

/**
 * @param {number} high
 * @param {number} low
 */
function labelOf(high, low) {
  return `${high}:${low}`;
}

/**
 * Whether the offset is plausible: according to it, the update did not leave after its arrival.
 * @param {Update} update
 * @param {number} now
 */
function isCredible(update, now) {
  return update.offset !== null && sentAt(update, update.offset) - now <= update.offset.error;
}

/**
 * When an update left, ns on the monitor's clock.
 * @param {Update} update
 * @param {wire.Offset} offset
 */
function sentAt(update, offset) {
  return update.sentHigh * HALF + update.sentLow + offset.ns;
}

/**
 * When an update left, ns on the source's clock after the session's first one; exact within 104 days.
 * @param {Session} session
 * @param {Update} update
 */
function sinceFirst(session, update) {
  return (update.sentHigh - session.firstSentHigh) * HALF + (update.sentLow - session.firstSentLow);
}

/**
 * Puts a whole state into its topic.
 * @param {Topic} topic
 * @param {Update} update
 * @param {Frame} frame
 * @param {number} number
 */
function putWhole(topic, { bytes }, { start, end }, number) {
  topic.assembly?.dropUpTo(number);
  const isShared = bytes.length <= MAX_SHARED;
  return topic.put(isShared ? bytes.subarray(start, end) : bytes.slice(start, end), 0);
}

/**
 * Puts a part into its topic, and the state if it is complete.
 * @param {Topic} topic
 * @param {Update} update
 * @param {Frame} frame
 * @param {number} number
 * @param {number} generated
 * @returns {boolean}  whether the state is complete
 */
function putPart(topic, update, frame, number, generated) {
  if (frame.layout === null) return false;
  topic.assembly ??= new Assembly(topic.room);
  const symbol = update.bytes.subarray(frame.start, frame.end);
  const state = topic.assembly.add(number, generated, frame.layout, frame.index, symbol);
  return state !== null && topic.put(state, state.length);
}

/**
 * A topic holds another state.
 * @param {Topic} topic
 * @param {number} number
 * @param {number} generated
 * @param {number} now
 */
function take(topic, number, generated, now) {
  topic.stateNumber = number;
  topic.generated = generated;
  topic.generatedAt = NaN;
  topic.uncertainty = Infinity;
  topic.receivedAt = now;
  topic.fresh += 1;
}

/**
 * The clocks' offset gives the age of the state that a topic holds.
 * @param {Topic} topic
 * @param {Update} update
 * @param {wire.Offset} offset
 * @param {number} age  of the state, when the update left
 */
function setAge(topic, update, offset, age) {
  topic.generatedAt = sentAt(update, offset) - age;
  topic.uncertainty = offset.error + OFFSET_UNIT + DRIFT * age;
}

/**
 * Ages of states that arrived before the clocks' offset was known.
 * @param {Session} session
 * @param {Update} update
 * @param {wire.Offset} offset
 */
function learnAges(session, update, offset) {
  session.lacksAges = false;
  const now = sinceFirst(session, update);
  for (const topic of session.topics.byNumber.values()) {
    if (topic.payload === null || !Number.isNaN(topic.generatedAt)) continue;
    setAge(topic, update, offset, Math.max(now - topic.generated, 0));
  }
}

/**
 * There was no room for a state in an update.
 * @param {Session} session
 * @param {number} seq
 */
function refuse(session, seq) {
  session.refused.add(seq);
  session.newestRefused = Math.max(session.newestRefused, seq);
  for (const one of session.refused) if (session.newestRefused - one > 64) session.refused.delete(one);
}

/**
 * @param {Session} session
 * @param {Update} update
 * @returns {wire.PartsAck}
 */
function partsOf({ arrivals, refused, topics }, { seq, frames }) {
  let [beforeHigh, beforeLow] = [0, 0];
  for (let back = 0; back < 64; back++) {
    const one = seq - 1 - back;
    if (!arrivals.has(one) || refused.has(one)) continue;
    if (back < 32) beforeLow |= 1 << back;
    else beforeHigh |= 1 << (back - 32);
  }
  const lead = frames.find((frame) => frame.kind !== wire.NAME);
  const isOfRecords = lead?.kind === wire.RECORD || lead?.kind === wire.QUESTION;
  const number = topics.byNumber.get(lead?.topic ?? 0)?.stateNumber ?? -1;
  const newest = isOfRecords || number === -1 ? null : number;
  return { noRoom: refused.has(seq), beforeHigh, beforeLow, newest };
}
