/**
 * The topics and keys of a session by their numbers, and the newest state of each.
 *
 * A number can belong to several keys in sequence. The name frame of a key contains the number of the first update
 * that names it, with which the key's life under the number begins: frames with lower state numbers belong to a
 * former key and are ignored. For a removed key the number of the removal is kept, so that no late update restores
 * the key. So any order of updates, and any number of copies, leads to the same keys.
 */

import { Assembly, Room } from "./assembly.js";

/** The memory of a topic in addition to its state, in bytes. */
const COST = 512;
/** The memory of a removed key, in bytes; less than `COST`, so that there is always room for it. */
const COST_OF_REMOVED = 32;

/** The newest state of a topic or a key. */
export class Topic {
  /**
   * @param {number} number
   * @param {number} life
   * @param {Room} room
   */
  constructor(number, life, room) {
    this.number = number;
    this.life = life;
    /** The name of the topic; empty until it has arrived. */
    this.name = "";
    /** @type {Uint8Array | null}  The key; `null` if the topic has no keys, or before the name has arrived. */
    this.key = null;
    /** @type {Uint8Array | null}  The newest state. */
    this.payload = null;
    /** The number of the newest state; −1 without one. */
    this.stateNumber = -1;
    /** When it was generated, ns on the source's clock since the session's first update. */
    this.generated = 0;
    /** The same on the monitor's clock, ns; `NaN` while unknown. */
    this.generatedAt = NaN;
    /** The maximum error of that, ns. */
    this.uncertainty = Infinity;
    /** When the state arrived, ns on the monitor's clock. */
    this.receivedAt = 0;
    /** States that were the newest when they arrived. */
    this.fresh = 0;
    this.room = room;
    /** @type {Assembly | null} */
    this.assembly = null;
  }

  /**
   * Replaces the payload.
   * @param {Uint8Array} payload
   * @param {number} charged  the bytes of it for which room has been taken
   * @returns {boolean}  whether there was room
   */
  put(payload, charged) {
    const former = this.payload === null ? 0 : this.payload.length;
    if (!this.room.take(payload.length - charged - former)) {
      this.room.take(-charged);
      return false;
    }
    this.payload = payload;
    return true;
  }

  /** Gives its room back. */
  release() {
    this.assembly?.clear();
    if (this.payload !== null) this.room.take(-this.payload.length);
    this.room.take(-COST);
  }
}

/** All topics and keys of a session. */
export class Topics {
  /**
   * @param {number} limit  bytes that all states may take
   * @param {(topic: Topic) => void} onGone  a key was removed, or another key took its number
   */
  constructor(limit, onGone) {
    this.room = new Room(limit);
    this.onGone = onGone;
    /** @type {Map<number, Topic>} */
    this.byNumber = new Map();
    /** @type {Map<string, number>}  Numbers by name and key. */
    this.byName = new Map();
    /** @type {Map<number, number>}  The numbers of removals, by topic. */
    this.removed = new Map();
  }

  /**
   * The topic with a number, which is created if necessary.
   * @param {number} number
   * @returns {Topic | null}  `null` if there is no room
   */
  find(number) {
    const known = this.byNumber.get(number);
    if (known !== undefined) return known;
    const removed = this.removed.get(number);
    if (!this.room.take(COST - (removed === undefined ? 0 : COST_OF_REMOVED))) return null;
    this.removed.delete(number);
    const topic = new Topic(number, removed === undefined ? 0 : removed + 1, this.room);
    this.byNumber.set(number, topic);
    return topic;
  }

  /**
   * Whether a frame with this state number belongs to a former key.
   * @param {number} number  of the topic
   * @param {number} stateNumber
   */
  isFormer(number, stateNumber) {
    const topic = this.byNumber.get(number);
    if (topic !== undefined) return stateNumber < topic.life;
    const removed = this.removed.get(number);
    return removed !== undefined && stateNumber <= removed;
  }

  /**
   * The name of a topic or a key has arrived.
   * @param {number} number
   * @param {number} life  the first update that named this key; 0 of a topic
   * @param {string} name
   * @param {Uint8Array | null} key
   * @returns {Topic | null}  the topic, if it has got this name now
   */
  onName(number, life, name, key) {
    if (!isPlain(name) || (number === 0 && key !== null)) return null;
    const removed = this.removed.get(number);
    if (removed !== undefined && life <= removed) return null;
    const owner = this.byName.get(nameOf(name, key));
    if (owner === number) {
      const topic = this.byNumber.get(number);
      if (topic !== undefined) topic.life = Math.max(topic.life, life);
      return null;
    }
    if (owner !== undefined) {
      // The later life wins: the key continues under another number.
      const other = this.byNumber.get(owner);
      if (other === undefined || other.life >= life) return null;
      this.#drop(other, Math.max(other.life, other.stateNumber), false);
    }
    const former = this.byNumber.get(number);
    if (former !== undefined) {
      if (former.name !== "" && former.life >= life) return null;
      const isOfFormer = former.stateNumber !== -1 && former.stateNumber < life;
      if (former.name !== "" || isOfFormer) this.#drop(former, Math.max(former.life, life - 1));
    }
    const topic = this.find(number);
    if (topic === null) return null;
    [topic.name, topic.key] = [name, key];
    topic.life = Math.max(topic.life, life);
    this.byName.set(nameOf(name, key), number);
    return topic;
  }

  /**
   * A key is removed.
   * @param {number} number
   * @param {number} removal  the number of the removal
   * @returns {boolean}  whether there was room to remember it
   */
  onRemoved(number, removal) {
    const topic = this.byNumber.get(number);
    if (topic !== undefined) {
      const isLate = removal < topic.life || removal <= topic.stateNumber;
      if (!isLate) this.#drop(topic, Math.max(topic.life, removal));
      return true;
    }
    const known = this.removed.get(number);
    if (known === undefined && !this.room.take(COST_OF_REMOVED)) return false;
    this.removed.set(number, Math.max(known ?? 0, removal));
    return true;
  }

  /**
   * @param {Topic} topic
   * @param {number} removal  frames up to this number are late from now on
   * @param {boolean} isGone  whether the key does not continue under another number
   */
  #drop(topic, removal, isGone = true) {
    if (topic.name !== "") this.byName.delete(nameOf(topic.name, topic.key));
    this.byNumber.delete(topic.number);
    topic.release();
    this.room.take(COST_OF_REMOVED);
    this.removed.set(topic.number, removal);
    if (isGone && topic.name !== "") this.onGone(topic);
  }
}

/**
 * Whether a name can be used without quoting: ASCII letters, digits and `. _ : / @ + -`, the first one a letter
 * or a digit, no part `..`.
 * @param {string} name
 */
function isPlain(name) {
  return /^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$/.test(name) && !name.split("/").includes("..");
}

/**
 * A name with a key as one text: names have no space.
 * @param {string} name
 * @param {Uint8Array | null} key
 */
function nameOf(name, key) {
  return key === null ? name : `${name} ${String.fromCharCode(...key)}`;
}
