/**
 * States of the series that match patterns, for a consumer of any speed: the newest state of each series, the
 * series in turn. A state that is replaced before the consumer takes it is skipped.
 */
import { State } from "./state.js";
export type Series = import("./series.js").Series;
/** @typedef {import("./series.js").Series} Series */
/**
 * Whether all of a text matches a pattern, in which `*` means any characters, also none.
 * @param {string} pattern
 * @param {string} text
 */
export declare function matches(pattern: string, text: string): boolean;
/** @implements {AsyncIterableIterator<State>} */
export declare class Subscription implements AsyncIterableIterator<State> {
    #private;
    patterns: string[];
    onEnd: (subscription: Subscription) => void;
    hasEnded: boolean;
    /** @type {Set<Series>}  Series with a state that was not taken, the longest waiting first. */
    changed: Set<Series>;
    /** @type {WeakMap<Series, boolean>}  Whether a series matches. */
    known: WeakMap<Series, boolean>;
    /** @type {WeakSet<Series>}  Series of which the consumer has got a state. */
    seen: WeakSet<Series>;
    /** @type {((result: IteratorResult<State>) => void)[]} */
    waiting: ((result: IteratorResult<State>) => void)[];
    /**
     * @param {string[]} patterns
     * @param {(subscription: Subscription) => void} onEnd
     */
    constructor(patterns: string[], onEnd: (subscription: Subscription) => void);
    /**
     * A series has a newer state, or has ended.
     * @param {Series} series
     */
    push(series: Series): void;
    /** The next state. @returns {Promise<IteratorResult<State>>} */
    next(): Promise<IteratorResult<State>>;
    /** Ends the subscription. @returns {Promise<IteratorResult<State>>} */
    return(): Promise<IteratorResult<State>>;
    /** Ends the subscription; no more states are delivered. */
    end(): void;
    [Symbol.asyncIterator](): this;
}
