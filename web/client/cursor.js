/**
 * Reads fields from bytes of the network, without exceptions.
 *
 * A read past the end returns 0 and sets `failed`, which stays set: a parser reads all its fields and checks
 * `failed` once.
 */

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** 2³²; 64-bit numbers are read as two halves. */
export const HALF = 4294967296;

/** A position in bytes, up to an end. */
export class Cursor {
  /**
   * @param {Uint8Array} bytes
   * @param {number} at  the first byte to read
   * @param {number} end  the byte after the last one; at most `bytes.length`
   */
  constructor(bytes, at, end) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
    this.failed = false;
  }

  /** The number of bytes that are left. */
  get left() {
    return this.end - this.at;
  }

  /** Reads a byte. */
  u8() {
    if (this.at + 1 > this.end) return this.fail();
    return this.bytes[this.at++];
  }

  /** Reads a number of 2 bytes. */
  u16() {
    if (this.at + 2 > this.end) return this.fail();
    const { bytes, at } = this;
    this.at += 2;
    return (bytes[at] << 8) | bytes[at + 1];
  }

  /** Reads a number of 4 bytes. */
  u32() {
    if (this.at + 4 > this.end) return this.fail();
    const at = this.at;
    this.at += 4;
    return u32At(this.bytes, at);
  }

  /** Reads a varint (RFC 9000, section 16). Numbers above 2⁵³ are rounded to the nearest `Number`. */
  varint() {
    if (this.at >= this.end) return this.fail();
    const { bytes, at } = this;
    const first = bytes[at];
    const length = 1 << (first >> 6);
    if (at + length > this.end) return this.fail();
    this.at += length;
    switch (length) {
      case 1:
        return first;
      case 2:
        return ((first & 0x3f) << 8) | bytes[at + 1];
      case 4:
        return u32At(bytes, at) & 0x3fffffff;
      default:
        return (u32At(bytes, at) & 0x3fffffff) * HALF + u32At(bytes, at + 4);
    }
  }

  /**
   * Skips bytes and returns where they begin.
   * @param {number} length
   */
  skip(length) {
    if (length > this.left) return this.fail();
    const at = this.at;
    this.at += length;
    return at;
  }

  /**
   * Reads text of this length; `null` if it is not UTF-8.
   * @param {number} length  in bytes
   * @returns {string | null}
   */
  text(length) {
    const at = this.skip(length);
    if (this.failed) return null;
    try {
      return utf8.decode(this.bytes.subarray(at, at + length));
    } catch {
      return null;
    }
  }

  /** Notes that a field is missing or malformed. */
  fail() {
    this.failed = true;
    this.at = this.end;
    return 0;
  }
}

/**
 * The number of 4 bytes at a place, which must exist.
 * @param {Uint8Array} bytes
 * @param {number} at
 */
export function u32At(bytes, at) {
  return ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
}

/**
 * Writes a number of 4 bytes.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} value  taken modulo 2³²
 */
export function putU32(bytes, at, value) {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/**
 * Writes a number of 8 bytes.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} value  a whole number; below 0 becomes 0, and above 2⁶⁴ − 1 becomes 2⁶⁴ − 1
 */
export function putU64(bytes, at, value) {
  const high = Math.floor(value / HALF);
  if (!(value >= 0)) {
    bytes.fill(0, at, at + 8);
  } else if (high >= HALF) {
    bytes.fill(0xff, at, at + 8);
  } else {
    putU32(bytes, at, high);
    putU32(bytes, at + 4, value - high * HALF);
  }
}
