/**
 * The topics and keys of a session by their numbers, and the newest state of each.
 *
 * A number can belong to several keys in sequence. The name frame of a key contains the number of the first update
 * that names it, with which the key's life under the number begins: frames with lower state numbers belong to a
 * former key and are ignored. For a removed key the number of the removal is kept, so that no late update restores
 * the key. So any order of updates, and any number of copies, leads to the same keys.
 */
import { Assembly, Room } from "./assembly.js";
/** The newest state of a topic or a key. */
export declare class Topic {
    number: number;
    life: number;
    /** The name of the topic; empty until it has arrived. */
    name: string;
    /** @type {Uint8Array | null}  The key; `null` if the topic has no keys, or before the name has arrived. */
    key: Uint8Array | null;
    /** @type {Uint8Array | null}  The newest state. */
    payload: Uint8Array | null;
    /** The number of the newest state; −1 without one. */
    stateNumber: number;
    /** When it was generated, ns on the source's clock since the session's first update. */
    generated: number;
    /** The same on the monitor's clock, ns; `NaN` while unknown. */
    generatedAt: number;
    /** The maximum error of that, ns. */
    uncertainty: number;
    /** When the state arrived, ns on the monitor's clock. */
    receivedAt: number;
    /** States that were the newest when they arrived. */
    fresh: number;
    room: Room;
    /** @type {Assembly | null} */
    assembly: Assembly | null;
    /**
     * @param {number} number
     * @param {number} life
     * @param {Room} room
     */
    constructor(number: number, life: number, room: Room);
    /**
     * Replaces the payload.
     * @param {Uint8Array} payload
     * @param {number} charged  the bytes of it for which room has been taken
     * @returns {boolean}  whether there was room
     */
    put(payload: Uint8Array, charged: number): boolean;
    /** Gives its room back. */
    release(): void;
}
/** All topics and keys of a session. */
export declare class Topics {
    #private;
    room: Room;
    onGone: (topic: Topic) => void;
    /** @type {Map<number, Topic>} */
    byNumber: Map<number, Topic>;
    /** @type {Map<string, number>}  Numbers by name and key. */
    byName: Map<string, number>;
    /** @type {Map<number, number>}  The numbers of removals, by topic. */
    removed: Map<number, number>;
    /**
     * @param {number} limit  bytes that all states may take
     * @param {(topic: Topic) => void} onGone  a key was removed, or another key took its number
     */
    constructor(limit: number, onGone: (topic: Topic) => void);
    /**
     * The topic with a number, which is created if necessary.
     * @param {number} number
     * @returns {Topic | null}  `null` if there is no room
     */
    find(number: number): Topic | null;
    /**
     * Whether a frame with this state number belongs to a former key.
     * @param {number} number  of the topic
     * @param {number} stateNumber
     */
    isFormer(number: number, stateNumber: number): boolean;
    /**
     * The name of a topic or a key has arrived.
     * @param {number} number
     * @param {number} life  the first update that named this key; 0 of a topic
     * @param {string} name
     * @param {Uint8Array | null} key
     * @returns {Topic | null}  the topic, if it has got this name now
     */
    onName(number: number, life: number, name: string, key: Uint8Array | null): Topic | null;
    /**
     * A key is removed.
     * @param {number} number
     * @param {number} removal  the number of the removal
     * @returns {boolean}  whether there was room to remember it
     */
    onRemoved(number: number, removal: number): boolean;
}
