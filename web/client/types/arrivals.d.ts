/**
 * Which updates of a session have come: the counts that acks carry.
 *
 * A window covers the 64 numbers before the newest. Once an update has come from before those, it covers 4095:
 * what is older than the window then counts as a copy.
 */
/** The sequence numbers of one session. */
export declare class Arrivals {
    #private;
    first: number;
    newest: number;
    /** Updates that were the newest when they came, without states that were out of date. */
    fresh: number;
    /** Updates that came after a newer one. */
    stale: number;
    /** 1 if update `seq` has come, at `seq % FAR`. */
    come: Uint8Array<ArrayBuffer>;
    isWide: boolean;
    /** @param {number} first  the number of the update that opened the session */
    constructor(first: number);
    /**
     * An update has come.
     * @param {number} seq
     * @returns {"newest" | "late" | "copy"}
     */
    add(seq: number): "newest" | "late" | "copy";
    /** Updates between the first and the newest that have not come. */
    get missing(): number;
    /**
     * Whether an update has come, as far as the window covers it.
     * @param {number} seq
     */
    has(seq: number): boolean;
}
