/**
 * The messages of the Freshline protocol, version 2, as far as a monitor needs them: it reads updates and
 * closes, and writes acks and closes. The format is in docs/protocol.md.
 *
 * Parsing is total: any bytes give a message or `null`, and nothing throws. Numbers of 64 bits become a
 * `Number`, exact up to 2⁵³ and rounded above. Acks copy session, sequence number and time from the update's
 * bytes, so that these are exact in any case.
 */
/** Kinds of frames. */
export declare const STATE = 1;
export declare const PART = 2;
export declare const AGAIN = 3;
export declare const NAME = 4;
export declare const REMOVED = 5;
export declare const RECORD = 6;
export declare const QUESTION = 7;
/** The highest number of a topic or a key. */
export declare const MAX_TOPIC = 4095;
/** Why sessions end, by their number on the wire. */
export declare const CLOSE_REASONS: readonly string[];
export type Frame = {
    /**
     * `STATE`, `PART` …
     */
    kind: number;
    /**
     * the number of a topic or a key, 0 to 4095
     */
    topic: number;
    /**
     * kinds 1, 2, 3, 5 and names of keys: the update's number − that of the state
     */
    behind: number;
    /**
     * kinds 1, 2, 3, 5: from the state's generation to the sending of the update, ns
     */
    age: number;
    /**
     * kinds 1 and 2, names of keys: where state, symbol or key begins in the update's bytes
     */
    start: number;
    /**
     * where it ends
     */
    end: number;
    /**
     * kind 2: how the state is cut
     */
    layout: Layout | null;
    /**
     * kind 2: which symbol
     */
    index: number;
    /**
     * kind 4: the name of the topic
     */
    name: string;
    /**
     * kind 4: the type of the named object
     */
    of: "topic" | "key" | "records";
};
export type Layout = {
    /**
     * of the state, bytes
     */
    length: number;
    /**
     * length of a symbol, bytes
     */
    symbol: number;
    /**
     * number of repair symbols
     */
    repair: number;
    /**
     * number of data symbols
     */
    data: number;
};
export type Offset = {
    /**
     * the estimate, a multiple of 256 ns
     */
    ns: number;
    /**
     * the maximum by which it is too high, ns; `Infinity` if unbounded
     */
    error: number;
};
export type Update = {
    type: "update";
    /**
     * the datagram
     */
    bytes: Uint8Array;
    /**
     * the upper half of the session's id
     */
    sessionHigh: number;
    /**
     * the lower half
     */
    sessionLow: number;
    /**
     * whether it carries an opening
     */
    isOpening: boolean;
    wantsAck: boolean;
    /**
     * sequence number
     */
    seq: number;
    /**
     * the upper half of the time of sending, ns on the source's clock
     */
    sentHigh: number;
    /**
     * the lower half
     */
    sentLow: number;
    /**
     * the clocks' offset, if it is known
     */
    offset: Offset | null;
    frames: Frame[];
    /**
     * whether one of the frames is not a whole state of topic 0
     */
    isOfParts: boolean;
};
export type Close = {
    type: "close";
    sessionHigh: number;
    sessionLow: number;
    /**
     * one of `CLOSE_REASONS`
     */
    reason: string;
};
/**
 * One frame of an update. Which fields mean something depends on `kind`.
 * @typedef {object} Frame
 * @property {number} kind  `STATE`, `PART` …
 * @property {number} topic  the number of a topic or a key, 0 to 4095
 * @property {number} behind  kinds 1, 2, 3, 5 and names of keys: the update's number − that of the state
 * @property {number} age  kinds 1, 2, 3, 5: from the state's generation to the sending of the update, ns
 * @property {number} start  kinds 1 and 2, names of keys: where state, symbol or key begins in the update's bytes
 * @property {number} end  where it ends
 * @property {Layout | null} layout  kind 2: how the state is cut
 * @property {number} index  kind 2: which symbol
 * @property {string} name  kind 4: the name of the topic
 * @property {"topic" | "key" | "records"} of  kind 4: the type of the named object
 */
/**
 * How a state is cut into symbols.
 * @typedef {object} Layout
 * @property {number} length  of the state, bytes
 * @property {number} symbol  length of a symbol, bytes
 * @property {number} repair  number of repair symbols
 * @property {number} data  number of data symbols
 */
/**
 * An estimate of (monitor's clock − source's clock).
 * @typedef {object} Offset
 * @property {number} ns  the estimate, a multiple of 256 ns
 * @property {number} error  the maximum by which it is too high, ns; `Infinity` if unbounded
 */
/**
 * An update.
 * @typedef {object} Update
 * @property {"update"} type
 * @property {Uint8Array} bytes  the datagram
 * @property {number} sessionHigh  the upper half of the session's id
 * @property {number} sessionLow  the lower half
 * @property {boolean} isOpening  whether it carries an opening
 * @property {boolean} wantsAck
 * @property {number} seq  sequence number
 * @property {number} sentHigh  the upper half of the time of sending, ns on the source's clock
 * @property {number} sentLow  the lower half
 * @property {Offset | null} offset  the clocks' offset, if it is known
 * @property {Frame[]} frames
 * @property {boolean} isOfParts  whether one of the frames is not a whole state of topic 0
 */
/**
 * The end of a session.
 * @typedef {object} Close
 * @property {"close"} type
 * @property {number} sessionHigh
 * @property {number} sessionLow
 * @property {string} reason  one of `CLOSE_REASONS`
 */
/**
 * Reads a datagram. Messages that a monitor does not expect count as malformed.
 * @param {Uint8Array} bytes
 * @returns {Update | Close | null}  `null` if it is malformed
 */
export declare function parse(bytes: Uint8Array): Update | Close | null;
/**
 * Whether a text has characters that control how text is shown.
 * @param {string} text
 */
export declare function hasControl(text: string): boolean;
export type Ack = {
    /**
     * the update was the newest when it arrived
     */
    isNewest: boolean;
    /**
     * ns on the monitor's clock
     */
    receivedAt: number;
    /**
     * updates so far that were the newest when they arrived
     */
    fresh: number;
    /**
     * updates that arrived after a newer one
     */
    stale: number;
    /**
     * updates before the newest that have not come
     */
    missing: number;
    /**
     * of an update of parts
     */
    parts: PartsAck | null;
};
export type PartsAck = {
    /**
     * there was no room for a state in the update
     */
    noRoom: boolean;
    /**
     * which of the 64 updates before it have arrived, the upper 32 bits
     */
    beforeHigh: number;
    /**
     * the lower 32 bits; the lowest is of the update just before
     */
    beforeLow: number;
    /**
     * the number of the newest whole state
     */
    newest: number | null;
};
/**
 * The answer of a monitor to an update.
 * @typedef {object} Ack
 * @property {boolean} isNewest  the update was the newest when it arrived
 * @property {number} receivedAt  ns on the monitor's clock
 * @property {number} fresh  updates so far that were the newest when they arrived
 * @property {number} stale  updates that arrived after a newer one
 * @property {number} missing  updates before the newest that have not come
 * @property {PartsAck | null} parts  of an update of parts
 */
/**
 * Which states in parts, and topics, have arrived.
 * @typedef {object} PartsAck
 * @property {boolean} noRoom  there was no room for a state in the update
 * @property {number} beforeHigh  which of the 64 updates before it have arrived, the upper 32 bits
 * @property {number} beforeLow  the lower 32 bits; the lowest is of the update just before
 * @property {number | null} newest  the number of the newest whole state
 */
/**
 * Writes an ack with a hold of 0; see `setHold`.
 * @param {Uint8Array} update  the update that it answers
 * @param {Ack} ack
 * @returns {Uint8Array}
 */
export declare function encodeAck(update: Uint8Array, ack: Ack): Uint8Array;
/**
 * Sets how long the monitor held the update. Does nothing to other messages.
 * @param {Uint8Array} answer
 * @param {number} us
 */
export declare function setHold(answer: Uint8Array, us: number): void;
/**
 * Writes a close.
 * @param {number} sessionHigh
 * @param {number} sessionLow
 * @param {number} reason  the index in `CLOSE_REASONS`
 * @returns {Uint8Array}
 */
export declare function encodeClose(sessionHigh: number, sessionLow: number, reason: number): Uint8Array;
