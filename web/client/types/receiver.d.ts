/**
 * The monitor's end of a Freshline session: takes datagrams, keeps the newest state of each topic, and returns the
 * answers. It has no clock and no socket. docs/protocol.md specifies its behaviour.
 *
 * The transport has proven the address, so an update with an opening begins a session without a challenge.
 * Times of the source's clock are kept relative to the session's first update, so that a `Number` holds them
 * exactly.
 */
import { Arrivals } from "./arrivals.js";
import { Topics } from "./topics.js";
export type Update = import("./wire.js").Update;
export type Frame = import("./wire.js").Frame;
export type Topic = import("./topics.js").Topic;
export type Outcome = "fresh" | "late" | "other" | "no room";
export type Listener = {
    /**
     * a topic with a name has a newer state
     */
    onState: (topic: Topic) => void;
    /**
     * a key was removed
     */
    onGone: (topic: Topic) => void;
    /**
     * the ages of earlier states have become known
     */
    onAges: () => void;
    /**
     * a session has begun; topics of the previous one are no longer valid
     */
    onOpen: () => void;
    /**
     * the source has ended the session
     */
    onClose: (reason: string) => void;
};
/** The effect of a frame on its topic. @typedef {"fresh" | "late" | "other" | "no room"} Outcome */
/**
 * The events of a receiver.
 * @typedef {object} Listener
 * @property {(topic: Topic) => void} onState  a topic with a name has a newer state
 * @property {(topic: Topic) => void} onGone  a key was removed
 * @property {() => void} onAges  the ages of earlier states have become known
 * @property {() => void} onOpen  a session has begun; topics of the previous one are no longer valid
 * @property {(reason: string) => void} onClose  the source has ended the session
 */
/** The state of a session. */
declare class Session {
    high: number;
    low: number;
    arrivals: Arrivals;
    topics: Topics;
    firstSentHigh: number;
    firstSentLow: number;
    /** Whether a topic may have a state whose age is not known. */
    lacksAges: boolean;
    /** @type {Set<number>}  Updates with a state for which there was no room. */
    refused: Set<number>;
    newestRefused: number;
    /**
     * @param {Update} update  the one with the opening
     * @param {Topics} topics
     */
    constructor(update: Update, topics: Topics);
}
/** Receives the updates of one source. */
export declare class Receiver {
    #private;
    listener: Listener;
    maxMemory: number;
    /** @type {Session | null} */
    session: Session | null;
    /** @type {string[]} */
    former: string[];
    /**
     * @param {Listener} listener
     * @param {{maxMemory?: number}} [options]  `maxMemory`: bytes for all states together
     */
    constructor(listener: Listener, { maxMemory }?: {
        maxMemory?: number;
    });
    /**
     * A datagram has arrived.
     * @param {Uint8Array} bytes  must not change afterwards
     * @param {number} now  ns on the monitor's clock
     * @returns {Uint8Array | null}  the answer, whose hold is 0 (`wire.setHold`)
     */
    receive(bytes: Uint8Array, now: number): Uint8Array | null;
    /** The bytes that end the session from this side; `null` without one. */
    close(): Uint8Array<ArrayBufferLike> | null;
    /** The numbers of fresh, stale and missing updates of the session. */
    get counts(): {
        fresh: number;
        stale: number;
        missing: number;
    };
}
export {};
