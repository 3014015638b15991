/**
 * Puts states together that take several updates.
 *
 * At most two states of a topic are half received at a time. The first of these rules that applies to a part decides:
 *
 * | the part | result |
 * |---|---|
 * | has a symbol that its state does not have, or one of another length | ignored |
 * | belongs to a state that is half received | stored there |
 * | finds a free place | begins a state there |
 * | has the number of a state in a place, but another length or time | replaces it if that has one symbol; otherwise ignored |
 * | is older than a state whose place was quiet for more than 64 parts | takes its place |
 * | is newer than the older of the two states | takes its place |
 * | is older than both | ignored |
 *
 * The gateway sends no repair symbols; they are ignored.
 */

/** @typedef {import("./wire.js").Layout} Layout */

const PLACES = 2;
const QUIET = 64;

/**
 * A state of which some symbols have arrived.
 * @typedef {object} Half
 * @property {number} number  of the state
 * @property {number} generated  when it was generated, on the source's clock
 * @property {Layout} layout
 * @property {Uint8Array} bytes  the state, with zeroes where symbols are missing
 * @property {Uint8Array} stored  1 for each symbol that has arrived
 * @property {number} count  how many have arrived
 * @property {number} fedAt  the count of parts when the last one arrived
 */

/** The room that all states of a session share, in bytes. */
export class Room {
  /** @param {number} limit */
  constructor(limit) {
    this.limit = limit;
    this.used = 0;
  }

  /**
   * Takes room, or gives it back if negative.
   * @param {number} bytes
   * @returns {boolean}  whether there was room
   */
  take(bytes) {
    if (bytes > 0 && this.used + bytes > this.limit) return false;
    this.used += bytes;
    return true;
  }
}

/** The half-received states of one topic. */
export class Assembly {
  /** @param {Room} room */
  constructor(room) {
    this.room = room;
    /** @type {(Half | null)[]} */
    this.places = Array(PLACES).fill(null);
    this.parts = 0;
  }

  /**
   * A part has arrived.
   * @param {number} number  of its state, which is newer than the one that is held
   * @param {number} generated
   * @param {Layout} layout
   * @param {number} index
   * @param {Uint8Array} symbol
   * @returns {Uint8Array | null}  the state, once it is complete; its room is the caller's from then on
   */
  add(number, generated, layout, index, symbol) {
    this.parts += 1;
    if (index >= layout.data || symbol.length !== symbolLength(layout, index)) return null;
    const half = this.#halfOf(number, generated, layout);
    if (half === null || half.stored[index] === 1) return null;
    half.stored[index] = 1;
    half.bytes.set(symbol, index * layout.symbol);
    half.count += 1;
    half.fedAt = this.parts;
    if (half.count < layout.data) return null;
    this.room.take(-half.stored.length);
    this.places[this.places.indexOf(half)] = null;
    this.dropUpTo(number);
    return half.bytes;
  }

  /**
   * A state with this number is complete: older ones are dropped.
   * @param {number} number
   */
  dropUpTo(number) {
    this.places.forEach((half, place) => {
      if (half !== null && half.number <= number) this.#vacate(place);
    });
  }

  /** Drops all. */
  clear() {
    this.dropUpTo(Infinity);
  }

  /**
   * The place of a state by the rules above, which begins there if it is new.
   * @param {number} number
   * @param {number} generated
   * @param {Layout} layout
   * @returns {Half | null}
   */
  #halfOf(number, generated, layout) {
    const known = this.places.find((half) => half !== null && isSame(half, number, generated, layout));
    if (known) return known;
    const place = this.#placeFor(number);
    if (place === -1) return null;
    this.#vacate(place);
    if (!this.room.take(layout.length + layout.data)) return null;
    const [bytes, stored] = [new Uint8Array(layout.length), new Uint8Array(layout.data)];
    const half = { number, generated, layout, bytes, stored, count: 0, fedAt: this.parts };
    this.places[place] = half;
    return half;
  }

  /** @param {number} number */
  #placeFor(number) {
    const free = this.places.indexOf(null);
    if (free !== -1) return free;
    const [first, second] = /** @type {Half[]} */ (this.places);
    const same = [first, second].filter((half) => half.number === number);
    if (same.length > 0) {
      const least = same.reduce((one, other) => (other.count < one.count ? other : one));
      return least.count === 1 ? this.places.indexOf(least) : -1;
    }
    const older = first.number <= second.number ? first : second;
    const newer = older === first ? second : first;
    for (const half of [newer, older]) {
      if (half.number > number && this.parts - half.fedAt > QUIET) return this.places.indexOf(half);
    }
    return older.number < number ? this.places.indexOf(older) : -1;
  }

  /** @param {number} place */
  #vacate(place) {
    const half = this.places[place];
    if (half === null) return;
    this.room.take(-(half.bytes.length + half.stored.length));
    this.places[place] = null;
  }
}

/**
 * @param {Half} half
 * @param {number} number
 * @param {number} generated
 * @param {Layout} layout
 */
function isSame(half, number, generated, layout) {
  const { length, symbol, repair } = half.layout;
  return (
    half.number === number &&
    half.generated === generated &&
    length === layout.length &&
    symbol === layout.symbol &&
    repair === layout.repair
  );
}

/**
 * @param {Layout} layout
 * @param {number} index
 */
function symbolLength(layout, index) {
  return Math.min(layout.symbol, layout.length - index * layout.symbol);
}
