/**
 * Reads fields from bytes of the network, without exceptions.
 *
 * A read past the end returns 0 and sets `failed`, which stays set: a parser reads all its fields and checks
 * `failed` once.
 */
/** 2³²; 64-bit numbers are read as two halves. */
export declare const HALF = 4294967296;
/** A position in bytes, up to an end. */
export declare class Cursor {
    bytes: Uint8Array<ArrayBufferLike>;
    at: number;
    end: number;
    failed: boolean;
    /**
     * @param {Uint8Array} bytes
     * @param {number} at  the first byte to read
     * @param {number} end  the byte after the last one; at most `bytes.length`
     */
    constructor(bytes: Uint8Array, at: number, end: number);
    /** The number of bytes that are left. */
    get left(): number;
    /** Reads a byte. */
    u8(): number;
    /** Reads a number of 2 bytes. */
    u16(): number;
    /** Reads a number of 4 bytes. */
    u32(): number;
    /** Reads a varint (RFC 9000, section 16). Numbers above 2⁵³ are rounded to the nearest `Number`. */
    varint(): number;
    /**
     * Skips bytes and returns where they begin.
     * @param {number} length
     */
    skip(length: number): number;
    /**
     * Reads text of this length; `null` if it is not UTF-8.
     * @param {number} length  in bytes
     * @returns {string | null}
     */
    text(length: number): string | null;
    /** Notes that a field is missing or malformed. */
    fail(): number;
}
/**
 * The number of 4 bytes at a place, which must exist.
 * @param {Uint8Array} bytes
 * @param {number} at
 */
export declare function u32At(bytes: Uint8Array, at: number): number;
/**
 * Writes a number of 4 bytes.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} value  taken modulo 2³²
 */
export declare function putU32(bytes: Uint8Array, at: number, value: number): void;
/**
 * Writes a number of 8 bytes.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} value  a whole number; below 0 becomes 0, and above 2⁶⁴ − 1 becomes 2⁶⁴ − 1
 */
export declare function putU64(bytes: Uint8Array, at: number, value: number): void;
