/**
 * The age of a series over time, in memory that does not grow.
 *
 * Between states the age rises by 1 ms per ms; a state lowers it. `Sawtooth` keeps the last teeth for plots,
 * `AgeTimes` the time that was spent at each age, for means and percentiles.
 */

/** The last teeth: when a state arrived, and the age before and after it. */
export class Sawtooth {
  /**
   * @param {number} capacity  teeth
   * @param {number} spacing  teeth that follow within this time, ms, are merged to one
   */
  constructor(capacity, spacing) {
    this.capacity = capacity;
    this.spacing = spacing;
    this.at = new Float64Array(capacity);
    this.before = new Float32Array(capacity);
    this.after = new Float32Array(capacity);
    /** When the last tooth began. */
    this.begun = -Infinity;
    this.count = 0;
  }

  /**
   * A state arrived at `at`.
   * @param {number} at  ms of `performance.now()`
   * @param {number} before  the age just before, ms; `NaN` if it was unknown
   * @param {number} after  the age just after, ms
   */
  add(at, before, after) {
    if (this.count > 0 && at - this.begun < this.spacing) {
      const last = (this.count - 1) % this.capacity;
      this.at[last] = at;
      if (before > this.before[last]) this.before[last] = before;
      this.after[last] = after;
      return;
    }
    const place = this.count % this.capacity;
    this.at[place] = at;
    this.before[place] = before;
    this.after[place] = after;
    this.begun = at;
    this.count += 1;
  }

  /** The index of the oldest tooth that is kept. */
  get first() {
    return Math.max(this.count - this.capacity, 0);
  }

  /**
   * The index of the first tooth since a moment.
   * @param {number} since  ms of `performance.now()`
   */
  firstSince(since) {
    let [low, high] = [this.first, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at[middle % this.capacity] < since) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * The highest age since a moment, up to the last state.
   * @param {number} since
   */
  peak(since) {
    let highest = 0;
    for (let it = this.firstSince(since); it < this.count; it++) {
      const place = it % this.capacity;
      highest = Math.max(highest, this.before[place] || 0, this.after[place]);
    }
    return highest;
  }

  /** Copies the teeth of another one. @param {Sawtooth} other */
  copyFrom(other) {
    for (let it = other.first; it < other.count; it++) {
      const place = it % other.capacity;
      this.add(other.at[place], other.before[place], other.after[place]);
    }
  }
}

/** Bins of ages: 24 per decade, from 0.1 ms to 1000 s; the first one is below, the last one above. */
const PER_DECADE = 24;
const LOWEST = 0.1;
const DECADES = 7;
export const BINS = PER_DECADE * DECADES + 2;

/** The lower and upper edges of the bins, ms. */
export const EDGES = Float64Array.from({ length: BINS + 1 }, (_, at) =>
  at === 0 ? 0 : at === BINS ? Infinity : LOWEST * 10 ** ((at - 1) / PER_DECADE),
);

/** The bin of an age. @param {number} age  ms */
function binOf(age) {
  if (age < LOWEST) return 0;
  return Math.min(1 + Math.floor(Math.log10(age / LOWEST) * PER_DECADE), BINS - 1);
}

/** The time that was spent at each age. */
export class AgeTimes {
  constructor() {
    /** Time in each bin, ms. */
    this.bins = new Float64Array(BINS);
    /** All time, ms. */
    this.total = 0;
    /** The integral of the age over time, ms². */
    this.integral = 0;
  }

  /**
   * The age rose from `from` to `to`, at 1 ms per ms.
   * @param {number} from  ms
   * @param {number} to  ms
   */
  add(from, to) {
    if (!(to > from) || from < 0) return;
    this.total += to - from;
    this.integral += (to * to - from * from) / 2;
    const last = binOf(to);
    let low = from;
    for (let bin = binOf(from); bin < last; bin++) {
      const high = Math.max(EDGES[bin + 1], low);
      this.bins[bin] += high - low;
      low = high;
    }
    this.bins[last] += to - low;
  }

  /** Forgets all. */
  clear() {
    this.bins.fill(0);
    [this.total, this.integral] = [0, 0];
  }

  /** Adds the times of another one. @param {AgeTimes} other */
  merge(other) {
    for (let bin = 0; bin < BINS; bin++) this.bins[bin] += other.bins[bin];
    this.total += other.total;
    this.integral += other.integral;
  }

  /** The mean age over time, ms; `null` without any time. */
  get mean() {
    return this.total > 0 ? this.integral / this.total : null;
  }

  /**
   * The age that is not exceeded for this share of the time, ms.
   * @param {number} share  0 to 1
   * @returns {number | null}
   */
  quantile(share) {
    if (this.total <= 0) return null;
    let left = share * this.total;
    for (let bin = 0; bin < BINS; bin++) {
      if (left <= this.bins[bin] && this.bins[bin] > 0) {
        const [low, high] = [EDGES[bin], EDGES[bin + 1]];
        return Number.isFinite(high) ? low + ((high - low) * left) / this.bins[bin] : low;
      }
      left -= this.bins[bin];
    }
    return EDGES[BINS - 1];
  }
}
