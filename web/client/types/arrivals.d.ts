/**
 * Which updates of a session have arrived: the counts that acks carry.
 *
 * A window covers the 64 numbers before the newest. After an update from before those has arrived, it covers 4095:
 * older updates then count as copies.
 */
/** The sequence numbers of one session. */
export declare class Arrivals {
    #private;
    first: number;
    newest: number;
    /** Updates that were the newest when they arrived, without states that were out of date. */
    fresh: number;
    /** Updates that arrived after a newer one. */
    stale: number;
    /** 1 if update `seq` has arrived, at `seq % FAR`. */
    come: Uint8Array<ArrayBuffer>;
    isWide: boolean;
    /** @param {number} first  the number of the update that opened the session */
    constructor(first: number);
    /**
     * An update has arrived.
     * @param {number} seq
     * @returns {"newest" | "late" | "copy"}
     */
    add(seq: number): "newest" | "late" | "copy";
    /** Updates between the first and the newest that have not come. */
    get missing(): number;
    /**
     * Whether an update has arrived, as far as the window covers it.
     * @param {number} seq
     */
    has(seq: number): boolean;
}
