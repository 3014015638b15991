/**
 * The data from a gateway: the series of all sources, their states, counters of the sources, and the link to the
 * gateway. A series is a topic of a source, or a key of it.
 *
 * The gateway has four topics. `names`, `states` and `sources` have keys of 2 bytes, the number of a series or
 * a source; a state can arrive before the name of its series. All of it is untrusted input: fields are checked,
 * and texts are only used as keys of a `Map`, never of an object.
 */

import { fromProtocol } from "./clock.js";

/** @typedef {import("./topics.js").Topic} Topic */

/** The maximum length of a name, key or address, in UTF-16 units. */
const MAX_TEXT = 256;
/** The length of the header of a state in `states`. */
const STATE_HEADER = 9;

const AGE_UNKNOWN = 1;
const CUT = 2;

const utf8 = new TextDecoder();

/** One topic of a source, or one key of it, with its newest state. */
export class Series {
  /**
   * @param {string} source
   * @param {string | null} topic
   * @param {string | null} key
   */
  constructor(source, topic, key) {
    /** The name of the source. */
    this.source = source;
    /** The name of the topic; `null` if it has none. */
    this.topic = topic;
    /** The key; `null` if the topic has no keys. */
    this.key = key;
    /** `source/topic`, which patterns of `subscribe` are compared with. */
    this.path = topic === null ? source : `${source}/${topic}`;
    /** The gateway's number of the series in the present session. */
    this.id = -1;
    /** The gateway's number of the source. */
    this.sourceId = -1;
    /** The newest state; `null` before the first one. @type {Uint8Array | null} */
    this.payload = null;
    /** The length of the whole state, which can be longer than `payload`, in bytes. */
    this.length = 0;
    /** Whether the state was longer than the gateway's limit and was cut. */
    this.isCut = false;
    /** When the state was generated, ms of `performance.now()`; `NaN` if it is not known. */
    this.generatedAt = NaN;
    /** The maximum error of that, ms. */
    this.uncertainty = Infinity;
    /** When the state arrived, ms of `performance.now()`. */
    this.receivedAt = NaN;
    /** States that have arrived. */
    this.count = 0;
    /** Whether the gateway has named it in the present session. */
    this.isConfirmed = true;
    /** Whether the series has ended. */
    this.isGone = false;
    /** The topic of `states` that has its state. @type {Topic | null} */
    this.held = null;
  }

  /**
   * The age of the newest state, ms.
   * @param {number} [now]  ms of `performance.now()`
   * @returns {number | null}  `null` if it is not known
   */
  age(now = performance.now()) {
    return Number.isNaN(this.generatedAt) ? null : Math.max(now - this.generatedAt, 0);
  }
}

/**
 * A source, as the gateway's monitor knows it. Unknown values are `null`.
 * @typedef {object} Source
 * @property {string} name
 * @property {string} address
 * @property {number | null} silence  time since its last update, at `receivedAt`, s
 * @property {number | null} rate  updates per second
 * @property {number | null} fresh  updates that were the newest when they arrived
 * @property {number | null} stale  updates that arrived after a newer one
 * @property {number | null} missing  updates that have not come
 * @property {number | null} ageMean  ms
 * @property {number | null} ageP95  95th percentile of the age over time, ms
 * @property {number | null} ageMax  ms
 * @property {number | null} dscp  code point of its updates
 * @property {number | null} topics  number of topics
 * @property {number | null} staleTopics  number of topics without a recent state
 * @property {number | null} replaced  states that newer ones replaced on their path
 * @property {number | null} seq  number of its newest update
 * @property {number} receivedAt  ms of `performance.now()`
 */

/**
 * The events of a catalogue.
 * @typedef {object} Listener
 * @property {(series: Series) => void} onState
 * @property {(series: Series) => void} onRemoved
 */

/** All series and sources of a gateway. */
export class Catalogue {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    /** @type {Map<string, Series>}  By `identityOf`. */
    this.series = new Map();
    /** @type {Map<number, Series>}  By the gateway's number. */
    this.byId = new Map();
    /** @type {Map<number, Topic>}  The states, by the number of their series. */
    this.states = new Map();
    /** @type {Map<number, number>}  State numbers of series that have ended, by their former number. */
    this.ended = new Map();
    /** @type {Map<number, Source>} */
    this.sources = new Map();
    /** Whether series that end may be named again at once, as after new patterns. */
    this.isRenaming = false;
    /** The gateway's law and counters. @type {Record<string, unknown> | null} */
    this.link = null;
  }

  /** A session has begun: the numbers are those of another gateway, but the series may be the same. */
  begin() {
    for (const series of this.series.values()) [series.isConfirmed, series.held] = [false, null];
    this.byId.clear();
    this.states.clear();
    this.ended.clear();
    this.sources.clear();
    this.link = null;
    this.isRenaming = true;
  }

  /** The gateway gets new patterns: it ends all series, and names the matching ones again. */
  expectNames() {
    this.isRenaming = true;
  }

  /** Removes series that were not named again. */
  sweep() {
    this.isRenaming = false;
    for (const series of this.series.values()) if (!series.isConfirmed) this.#remove(series);
  }

  /** A topic has a newer state. @param {Topic} topic */
  onState(topic) {
    if (topic.name === "link" && topic.key === null) {
      this.link = parseObject(topic.payload) ?? this.link;
      return;
    }
    const id = idOf(topic.key);
    if (id === null) return;
    if (topic.name === "states") this.#onSeriesState(id, topic);
    else if (topic.name === "names") this.#onName(id, topic);
    else if (topic.name === "sources") this.#onSource(id, topic);
  }

  /** A key was removed. @param {Topic} topic */
  onGone(topic) {
    const id = idOf(topic.key);
    if (id === null) return;
    if (topic.name === "states") this.states.delete(id);
    if (topic.name === "sources") this.sources.delete(id);
    const series = topic.name === "names" ? this.byId.get(id) : undefined;
    if (series === undefined) return;
    if (this.isRenaming) {
      this.#release(series);
      series.isConfirmed = false;
    } else {
      this.#remove(series);
    }
  }

  /**
   * The series with a path and a key.
   * @param {string} path  `source/topic`
   * @param {string | null} key
   */
  find(path, key) {
    for (const series of this.series.values()) if (series.path === path && series.key === key) return series;
    return null;
  }

  /**
   * @param {number} id
   * @param {Topic} topic
   */
  #onName(id, topic) {
    const name = parseObject(topic.payload);
    const [source, ofTopic, key] = [textOf(name?.source), textOf(name?.topic), textOf(name?.key)];
    if (source === null) return;
    const identity = identityOf(source, ofTopic, key);
    const before = this.byId.get(id);
    if (before !== undefined && identityOf(before.source, before.topic, before.key) !== identity) {
      this.#remove(before);
    }
    let series = this.series.get(identity);
    if (series === undefined) {
      series = new Series(source, ofTopic, key);
      this.series.set(identity, series);
    }
    if (series.id !== id) this.#release(series);
    series.id = id;
    series.isConfirmed = true;
    series.sourceId = numberOf(name?.of) ?? -1;
    this.byId.set(id, series);
    const state = this.states.get(id);
    // A state of the series that had the number before does not belong to this one.
    if (state !== undefined && state.stateNumber > (this.ended.get(id) ?? -1)) this.#take(series, state);
    this.ended.delete(id);
  }

  /**
   * @param {number} id
   * @param {Topic} topic
   */
  #onSeriesState(id, topic) {
    this.states.set(id, topic);
    const series = this.byId.get(id);
    if (series !== undefined) this.#take(series, topic);
  }

  /**
   * @param {Series} series
   * @param {Topic} topic
   */
  #take(series, topic) {
    const { payload } = topic;
    if (payload === null || payload.length < STATE_HEADER) return;
    const flags = payload[0];
    series.payload = payload.subarray(STATE_HEADER);
    series.length = new DataView(payload.buffer, payload.byteOffset).getUint32(1);
    series.isCut = (flags & CUT) !== 0;
    series.receivedAt = fromProtocol(topic.receivedAt);
    series.held = topic;
    series.count += 1;
    this.#learnAge(series);
    this.listener.onState(series);
  }

  /** The clocks' offset has become known: so have the ages of states that arrived before. */
  learnAges() {
    for (const series of this.byId.values()) if (Number.isNaN(series.generatedAt)) this.#learnAge(series);
  }

  /** @param {Series} series */
  #learnAge(series) {
    const { held } = series;
    const payload = held?.payload ?? null;
    const isKnown = held !== null && payload !== null && (payload[0] & AGE_UNKNOWN) === 0;
    series.generatedAt = isKnown ? fromProtocol(held.generatedAt) : NaN;
    series.uncertainty = isKnown ? held.uncertainty / 1e6 + gatewaysError(payload) : Infinity;
  }

  /**
   * @param {number} id
   * @param {Topic} topic
   */
  #onSource(id, topic) {
    const fields = parseJson(topic.payload);
    if (!Array.isArray(fields)) return;
    const name = textOf(fields[0]);
    if (name === null) return;
    const n = (/** @type {number} */ at) => numberOf(fields[at]);
    this.sources.set(id, {
      name,
      address: textOf(fields[1]) ?? "",
      silence: n(2),
      rate: n(3),
      fresh: n(4),
      stale: n(5),
      missing: n(6),
      ageMean: n(7),
      ageP95: n(8),
      ageMax: n(9),
      dscp: n(10),
      topics: n(11),
      staleTopics: n(12),
      replaced: n(13),
      seq: n(14),
      receivedAt: fromProtocol(topic.receivedAt),
    });
  }

  /** @param {Series} series */
  #remove(series) {
    series.isGone = true;
    this.#release(series);
    this.series.delete(identityOf(series.source, series.topic, series.key));
    this.listener.onRemoved(series);
  }

  /** The number of a series is free. @param {Series} series */
  #release(series) {
    if (this.byId.get(series.id) === series) {
      this.byId.delete(series.id);
      if (series.held !== null) this.ended.set(series.id, series.held.stateNumber);
    }
    series.held = null;
  }
}

/**
 * @param {string} source
 * @param {string | null} topic
 * @param {string | null} key
 */
function identityOf(source, topic, key) {
  return JSON.stringify([source, topic, key]);
}

/**
 * The maximum error of the age at the gateway, ms.
 * @param {Uint8Array} payload  with its header
 */
function gatewaysError(payload) {
  const micros = new DataView(payload.buffer, payload.byteOffset).getUint32(5);
  return micros === 0xffffffff ? Infinity : micros / 1000;
}

/** @param {Uint8Array | null} key */
function idOf(key) {
  return key !== null && key.length === 2 ? (key[0] << 8) | key[1] : null;
}

/**
 * @param {Uint8Array | null} payload
 * @returns {unknown}
 */
function parseJson(payload) {
  if (payload === null) return null;
  try {
    return JSON.parse(utf8.decode(payload));
  } catch {
    return null;
  }
}

/**
 * @param {Uint8Array | null} payload
 * @returns {Record<string, unknown> | null}
 */
function parseObject(payload) {
  const value = parseJson(payload);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? /** @type {Record<string, unknown>} */ (value) : null;
}

/** @param {unknown} value */
function textOf(value) {
  return typeof value === "string" && value.length <= MAX_TEXT ? value : null;
}

/** @param {unknown} value */
function numberOf(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
