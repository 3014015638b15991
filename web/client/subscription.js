/**
 * States of the series that match patterns, for a consumer of any speed: the newest state of each series, the
 * series in turn. A state that is replaced before the consumer takes it is skipped.
 */

import { State } from "./state.js";

/** @typedef {import("./series.js").Series} Series */

/**
 * Whether all of a text matches a pattern, in which `*` means any characters, also none.
 * @param {string} pattern
 * @param {string} text
 */
export function matches(pattern, text) {
  let [at, from, star, tried] = [0, 0, -1, 0];
  while (from < text.length) {
    if (pattern[at] === "*") {
      [star, tried] = [at, from];
      at += 1;
    } else if (at < pattern.length && pattern[at] === text[from]) {
      at += 1;
      from += 1;
    } else if (star !== -1) {
      tried += 1;
      [at, from] = [star + 1, tried];
    } else {
      return false;
    }
  }
  while (pattern[at] === "*") at += 1;
  return at === pattern.length;
}

/** @implements {AsyncIterableIterator<State>} */
export class Subscription {
  /**
   * @param {string[]} patterns
   * @param {(subscription: Subscription) => void} onEnd
   */
  constructor(patterns, onEnd) {
    this.patterns = patterns;
    this.onEnd = onEnd;
    this.hasEnded = false;
    /** @type {Set<Series>}  Series with a state that was not taken, the longest waiting first. */
    this.changed = new Set();
    /** @type {WeakMap<Series, boolean>}  Whether a series matches. */
    this.known = new WeakMap();
    /** @type {WeakSet<Series>}  Series of which the consumer has got a state. */
    this.seen = new WeakSet();
    /** @type {((result: IteratorResult<State>) => void)[]} */
    this.waiting = [];
  }

  /**
   * A series has a newer state, or has ended.
   * @param {Series} series
   */
  push(series) {
    if (this.hasEnded || !this.#matches(series)) return;
    if (series.isGone && !this.seen.has(series)) {
      this.changed.delete(series);
      return;
    }
    this.changed.add(series);
    const resolve = this.waiting.shift();
    if (resolve !== undefined) resolve(this.#take());
  }

  /** The next state. @returns {Promise<IteratorResult<State>>} */
  next() {
    if (this.hasEnded || this.changed.size > 0) return Promise.resolve(this.#take());
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Ends the subscription. @returns {Promise<IteratorResult<State>>} */
  return() {
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** Ends the subscription; no more states are delivered. */
  end() {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.changed.clear();
    for (const resolve of this.waiting.splice(0)) resolve({ done: true, value: undefined });
    this.onEnd(this);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {IteratorResult<State>} */
  #take() {
    for (const series of this.changed) {
      this.changed.delete(series);
      this.seen.add(series);
      return { done: false, value: new State(series) };
    }
    return { done: true, value: undefined };
  }

  /** @param {Series} series */
  #matches(series) {
    const known = this.known.get(series);
    if (known !== undefined) return known;
    const isOne = this.patterns.some((pattern) => matches(pattern, series.path));
    this.known.set(series, isOne);
    return isOne;
  }
}
