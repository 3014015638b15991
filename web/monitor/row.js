/** A series in the page: its ages over time, its rate, and the values of its columns. */

import { AgeTimes, Sawtooth } from "./ages.js";

/** @typedef {import("../client/series.js").Series} Series */
/** @typedef {import("../client/series.js").Source} Source */

/** Means and percentiles cover the last one to two of these, ms. */
const EPOCH = 30_000;
/** The rate is a mean over about this time, ms. */
const RATE_TIME = 3_000;
/** How long a computed percentile is reused, ms. */
const PERCENTILE_EVERY = 150;
/** Teeth of the small plots, and the time within which they are merged, ms: together at least 5 s. */
const TEETH = 160;
const SPACING = 33;

/** Where the percentiles of a row are computed. */
const scratch = new AgeTimes();

export class Row {
  /**
   * @param {Series} series
   * @param {number} now  ms of `performance.now()`
   */
  constructor(series, now) {
    this.series = series;
    this.beganAt = now;
    this.teeth = new Sawtooth(TEETH, SPACING);
    /** More teeth, while the detail view shows the series. @type {Sawtooth | null} */
    this.fineTeeth = null;
    /** All states that the page has received. */
    this.times = new AgeTimes();
    this.epochEnd = now + EPOCH;
    this.epoch = new AgeTimes();
    this.epochBefore = new AgeTimes();
    /** When the previous state was generated; `NaN` if unknown. */
    this.generatedAt = NaN;
    this.receivedAt = NaN;
    this.countedRate = 0;
    /** The percentile that was computed last, and when. */
    this.p95 = /** @type {number | null} */ (null);
    this.p95At = -Infinity;
  }

  /** The series has a newer state. */
  onState() {
    const { series } = this;
    const at = series.receivedAt;
    const sinceLast = Number.isNaN(this.receivedAt) ? Infinity : at - this.receivedAt;
    this.countedRate = this.countedRate * Math.exp(-sinceLast / RATE_TIME) + 1000 / RATE_TIME;
    this.#closeTooth(at);
    if (!Number.isNaN(series.generatedAt)) {
      const after = Math.max(at - series.generatedAt, 0);
      const before = at - this.generatedAt;
      this.teeth.add(at, before, after);
      this.fineTeeth?.add(at, before, after);
    }
    this.generatedAt = series.generatedAt;
    this.receivedAt = at;
  }

  /** Adds the time since the previous state. @param {number} at */
  #closeTooth(at) {
    if (at > this.epochEnd) {
      [this.epoch, this.epochBefore] = [this.epochBefore, this.epoch];
      this.epoch.clear();
      this.epochEnd = at + EPOCH;
    }
    const [from, to] = [this.receivedAt - this.generatedAt, at - this.generatedAt];
    this.epoch.add(from, to);
    this.times.add(from, to);
  }

  /** The clocks' offset may have become known after the state. */
  #learnAge() {
    if (Number.isNaN(this.generatedAt)) this.generatedAt = this.series.generatedAt;
  }

  /** The age of the newest state, ms; `null` if unknown. @param {number} now */
  age(now) {
    this.#learnAge();
    return Number.isNaN(this.generatedAt) ? null : Math.max(now - this.generatedAt, 0);
  }

  /** The time since a state arrived, ms; `null` before the first one. @param {number} now */
  silence(now) {
    return Number.isNaN(this.receivedAt) ? null : Math.max(now - this.receivedAt, 0);
  }

  /** The mean age over the last 30 to 60 s, ms. @param {number} now */
  mean(now) {
    const [from, to] = this.#openTooth(now);
    const total = this.epoch.total + this.epochBefore.total + (to - from);
    const integral = this.epoch.integral + this.epochBefore.integral + (to * to - from * from) / 2;
    return total > 0 ? integral / total : null;
  }

  /** The 95th percentile of the age over the last 30 to 60 s, ms. @param {number} now */
  percentile(now) {
    if (now - this.p95At < PERCENTILE_EVERY) return this.p95;
    scratch.clear();
    scratch.merge(this.epoch);
    scratch.merge(this.epochBefore);
    scratch.add(...this.#openTooth(now));
    [this.p95, this.p95At] = [scratch.quantile(0.95), now];
    return this.p95;
  }

  /**
   * The time at each age since the page knows the series, up to now.
   * @param {number} now
   * @param {AgeTimes} into
   */
  allTimes(now, into) {
    into.clear();
    into.merge(this.times);
    into.add(...this.#openTooth(now));
  }

  /**
   * The ages since the last state.
   * @param {number} now
   * @returns {[number, number]}
   */
  #openTooth(now) {
    const age = this.age(now);
    if (age === null || Number.isNaN(this.receivedAt)) return [0, 0];
    const from = Math.max(this.receivedAt - this.generatedAt, 0);
    return [from, Math.max(age, from)];
  }

  /** States per second that have arrived, over the last seconds; `null` before the first one. @param {number} now */
  rate(now) {
    if (Number.isNaN(this.receivedAt)) return null;
    const decayed = this.countedRate * Math.exp(-(now - this.receivedAt) / RATE_TIME);
    const seen = 1 - Math.exp(-Math.max(now - this.beganAt, 200) / RATE_TIME);
    return decayed / seen;
  }

  /** Whether the newest state is older than the limit; if its age is unknown, whether it arrived longer ago. @param {number} now @param {number} limit  ms */
  isStale(now, limit) {
    return (this.age(now) ?? this.silence(now) ?? 0) > limit;
  }
}

/**
 * The share of a source's updates that have not come.
 * @param {Source | null} source
 */
export function lossOf(source) {
  if (source === null) return null;
  const { fresh, stale, missing } = source;
  const all = (fresh ?? 0) + (stale ?? 0) + (missing ?? 0);
  return all > 0 && missing !== null ? missing / all : null;
}
