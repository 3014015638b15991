/**
 * Which updates of a session have arrived: the counts that acks carry.
 *
 * A window covers the 64 numbers before the newest. After an update from before those has arrived, it covers 4095:
 * older updates then count as copies.
 */

const NEAR = 64;
const FAR = 4096;

/** The sequence numbers of one session. */
export class Arrivals {
  /** @param {number} first  the number of the update that opened the session */
  constructor(first) {
    this.first = first;
    this.newest = first;
    /** Updates that were the newest when they arrived, without states that were out of date. */
    this.fresh = 1;
    /** Updates that arrived after a newer one. */
    this.stale = 0;
    /** 1 if update `seq` has arrived, at `seq % FAR`. */
    this.come = new Uint8Array(FAR);
    this.come[first % FAR] = 1;
    this.isWide = false;
  }

  /**
   * An update has arrived.
   * @param {number} seq
   * @returns {"newest" | "late" | "copy"}
   */
  add(seq) {
    if (seq > this.newest) {
      this.#advance(seq);
      return "newest";
    }
    const behind = this.newest - seq;
    if (behind > NEAR && !this.isWide) this.#widen();
    if (behind >= FAR || this.come[seq % FAR] === 1) return "copy";
    this.come[seq % FAR] = 1;
    return "late";
  }

  /** Updates between the first and the newest that have not come. */
  get missing() {
    return Math.max(this.newest - this.first + 1 - this.fresh - this.stale, 0);
  }

  /**
   * Whether an update has arrived, as far as the window covers it.
   * @param {number} seq
   */
  has(seq) {
    const behind = this.newest - seq;
    return seq >= 0 && behind >= 0 && behind < (this.isWide ? FAR : NEAR + 1) && this.come[seq % FAR] === 1;
  }

  /** @param {number} seq */
  #advance(seq) {
    if (seq - this.newest >= FAR) this.come.fill(0);
    else for (let at = this.newest + 1; at < seq; at++) this.come[at % FAR] = 0;
    this.come[seq % FAR] = 1;
    this.newest = seq;
  }

  /** It is unknown which updates before the short window arrived: all count as arrived. */
  #widen() {
    const near = new Uint8Array(NEAR + 1);
    for (let back = 0; back <= NEAR; back++) near[back] = this.has(this.newest - back) ? 1 : 0;
    this.come.fill(1);
    for (let back = 0; back <= NEAR; back++) {
      if (this.newest >= back) this.come[(this.newest - back) % FAR] = near[back];
    }
    this.isWide = true;
  }
}
