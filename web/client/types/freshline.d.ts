/**
 * Freshline in the browser: the newest states of all sources of a monitor, with their ages.
 *
 * ```js
 * import { connect } from "freshline";
 * const monitor = await connect("http://127.0.0.1:8080", { token });
 * for await (const state of monitor.subscribe("robot-7/*")) console.log(state.topic, state.age, state.json());
 * ```
 */
import { Refused } from "./endpoint.js";
import { State } from "./state.js";
import { Subscription } from "./subscription.js";
export { Refused, State, Subscription };
export type Series = import("./series.js").Series;
export type Source = import("./series.js").Source;
export type Endpoint = import("./endpoint.js").Endpoint;
export type Options = {
    /**
     * the gateway prints it
     */
    token: string;
    /**
     * SHA-256 hashes of the gateway's certificate, in hexadecimal digits, known by other
     * means: the hashes that the gateway itself sends are then not trusted
     */
    pin?: string[];
    /**
     * default: WebTransport, and WebSocket where it fails
     */
    transport?: "auto" | "webtransport" | "websocket";
    /**
     * closes the monitor
     */
    signal?: AbortSignal;
};
export type Status = "connecting" | "open" | "reconnecting" | "refused" | "closed";
export type Event = "open" | "close" | "status" | "change" | "state" | "removed";
/**
 * Connects to a gateway.
 * @param {string | URL} url  of the gateway, such as `http://127.0.0.1:8080`
 * @param {Options} options
 * @returns {Promise<Monitor>}  once the first session has begun
 * @throws {Refused | Error}  if the gateway refuses the token, or cannot be reached
 */
export declare function connect(url: string | URL, options: Options): Promise<Monitor>;
/** A connection to a gateway, which reconnects after failures until it is closed or refused. */
export declare class Monitor {
    #private;
    /** @type {Status} */
    status: Status;
    /** Why it has this status; may be empty. */
    reason: string;
    /** The last error. @type {Error | null} */
    error: Error | null;
    /**
     * Begins to connect; `connect` waits for the connection.
     * @param {string | URL} url
     * @param {Options} options
     */
    constructor(url: string | URL, { token, pin, transport, signal }: Options);
    /** The transport in use; `null` without a connection. */
    get transport(): "websocket" | "webtransport" | null;
    /** Why this transport is used. */
    get transportReason(): string;
    /** The gateway's endpoint description; `null` before it was reached. */
    get endpoint(): import("./endpoint.js").Endpoint | null;
    /** The law between gateway and browser, and counters of both, as the gateway reports them each second. */
    get link(): Record<string, unknown> | null;
    /** The numbers of fresh, stale and missing updates of the session. */
    get counts(): {
        fresh: number;
        stale: number;
        missing: number;
    };
    /** All series that match subscriptions. @returns {IterableIterator<Series>} */
    series(): IterableIterator<Series>;
    /** All sources that the gateway knows. @returns {Source[]} */
    sources(): Source[];
    /**
     * The source of a series, if the gateway has described it.
     * @param {Series} series
     * @returns {Source | null}
     */
    sourceOf(series: Series): Source | null;
    /**
     * The newest state of a series that some subscription covers.
     * @param {string} path  `source/topic`
     * @param {string | null} [key]
     * @returns {State | null}
     */
    latest(path: string, key?: string | null): State | null;
    /**
     * States of series whose `source/topic` matches one of the patterns, in which `*` means any characters. A
     * consumer that is slower than the states gets the newest one of each series, the series in turn.
     * @param {string | string[]} patterns
     * @returns {Subscription}  to be iterated by `for await`; leaving the loop ends it
     */
    subscribe(patterns: string | string[]): Subscription;
    /**
     * Puts a state into a topic that the gateway's monitor sends to its sources.
     * @param {string} topic  one of `endpoint.commands`
     * @param {string | Uint8Array} state
     * @returns {Promise<void>}  once the gateway has accepted it; rejected with its reason if it refuses
     */
    command(topic: string, state: string | Uint8Array): Promise<void>;
    /**
     * Calls a function at each event.
     * @param {Event} event
     * @param {(argument: any) => void} listener
     * @returns {() => void}  stops that
     */
    on(event: Event, listener: (argument: any) => void): () => void;
    /** Ends the connection and all subscriptions, for good. */
    close(): void;
}
