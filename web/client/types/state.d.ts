/** A state, as applications receive it. */
export type Series = import("./series.js").Series;
/** The newest state of a series at some moment; later states do not change it. */
export declare class State {
    #private;
    /** The name of the source. */
    source: string;
    /** The name of the topic; `null` if it has none. */
    topic: string | null;
    /** The key as text, `0x…` if it is not text; `null` if the topic has no keys. */
    key: string | null;
    /** Whether the series has ended; the payload is then its last state. */
    removed: boolean;
    /** The state. */
    payload: Uint8Array<ArrayBufferLike>;
    /** The length of the whole state, bytes: more than that of `payload` if `isCut`. */
    length: number;
    /** Whether the state is longer than the gateway's limit, and was cut. */
    isCut: boolean;
    /** When the state arrived, ms of `performance.now()`. */
    receivedAt: number;
    /** @param {Series} series */
    constructor(series: Series);
    /** When the state was generated, ms of `performance.now()`; `NaN` if it is not known. */
    get generatedAt(): number;
    /** The age now, ms; `null` if it is not known, as before the clocks' offset is. */
    get age(): number | null;
    /** The maximum error of the age, ms; `Infinity` if it is not known. */
    get uncertainty(): number;
    /** The state as UTF-8 text; other bytes become U+FFFD. */
    get text(): string;
    /**
     * The state as JSON.
     * @returns {unknown}
     * @throws {SyntaxError}  if it is not JSON
     */
    json(): unknown;
}
