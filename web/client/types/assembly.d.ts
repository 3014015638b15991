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
export type Layout = import("./wire.js").Layout;
export type Half = {
    /**
     * of the state
     */
    number: number;
    /**
     * when it was generated, on the source's clock
     */
    generated: number;
    layout: Layout;
    /**
     * the state, with zeroes where symbols are missing
     */
    bytes: Uint8Array;
    /**
     * 1 for each symbol that has arrived
     */
    stored: Uint8Array;
    /**
     * how many have arrived
     */
    count: number;
    /**
     * the count of parts when the last one arrived
     */
    fedAt: number;
};
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
export declare class Room {
    limit: number;
    used: number;
    /** @param {number} limit */
    constructor(limit: number);
    /**
     * Takes room, or gives it back if negative.
     * @param {number} bytes
     * @returns {boolean}  whether there was room
     */
    take(bytes: number): boolean;
}
/** The half-received states of one topic. */
export declare class Assembly {
    #private;
    room: Room;
    /** @type {(Half | null)[]} */
    places: (Half | null)[];
    parts: number;
    /** @param {Room} room */
    constructor(room: Room);
    /**
     * A part has arrived.
     * @param {number} number  of its state, which is newer than the one that is held
     * @param {number} generated
     * @param {Layout} layout
     * @param {number} index
     * @param {Uint8Array} symbol
     * @returns {Uint8Array | null}  the state, once it is complete; its room is the caller's from then on
     */
    add(number: number, generated: number, layout: Layout, index: number, symbol: Uint8Array): Uint8Array | null;
    /**
     * A state with this number is complete: older ones are dropped.
     * @param {number} number
     */
    dropUpTo(number: number): void;
    /** Drops all. */
    clear(): void;
}
