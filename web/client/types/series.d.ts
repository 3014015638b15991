/**
 * The data from a gateway: the series of all sources, their states, counters of the sources, and the link to the
 * gateway. A series is a topic of a source, or a key of it.
 *
 * The gateway has four topics. `names`, `states` and `sources` have keys of 2 bytes, the number of a series or
 * a source; a state can arrive before the name of its series. All of it is untrusted input: fields are checked,
 * and texts are only used as keys of a `Map`, never of an object.
 */
export type Topic = import("./topics.js").Topic;
/** One topic of a source, or one key of it, with its newest state. */
export declare class Series {
    /** The name of the source. */
    source: string;
    /** The name of the topic; `null` if it has none. */
    topic: string | null;
    /** The key; `null` if the topic has no keys. */
    key: string | null;
    /** `source/topic`, which patterns of `subscribe` are compared with. */
    path: string;
    /** The gateway's number of the series in the present session. */
    id: number;
    /** The gateway's number of the source. */
    sourceId: number;
    /** The newest state; `null` before the first one. @type {Uint8Array | null} */
    payload: Uint8Array | null;
    /** The length of the whole state, which can be longer than `payload`, in bytes. */
    length: number;
    /** Whether the state was longer than the gateway's limit and was cut. */
    isCut: boolean;
    /** When the state was generated, ms of `performance.now()`; `NaN` if it is not known. */
    generatedAt: number;
    /** The maximum error of that, ms. */
    uncertainty: number;
    /** When the state arrived, ms of `performance.now()`. */
    receivedAt: number;
    /** States that have arrived. */
    count: number;
    /** Whether the gateway has named it in the present session. */
    isConfirmed: boolean;
    /** Whether the series has ended. */
    isGone: boolean;
    /** The topic of `states` that has its state. @type {Topic | null} */
    held: Topic | null;
    /**
     * @param {string} source
     * @param {string | null} topic
     * @param {string | null} key
     */
    constructor(source: string, topic: string | null, key: string | null);
    /**
     * The age of the newest state, ms.
     * @param {number} [now]  ms of `performance.now()`
     * @returns {number | null}  `null` if it is not known
     */
    age(now?: number): number | null;
}
export type Source = {
    name: string;
    address: string;
    /**
     * time since its last update, at `receivedAt`, s
     */
    silence: number | null;
    /**
     * updates per second
     */
    rate: number | null;
    /**
     * updates that were the newest when they arrived
     */
    fresh: number | null;
    /**
     * updates that arrived after a newer one
     */
    stale: number | null;
    /**
     * updates that have not come
     */
    missing: number | null;
    /**
     * ms
     */
    ageMean: number | null;
    /**
     * 95th percentile of the age over time, ms
     */
    ageP95: number | null;
    /**
     * ms
     */
    ageMax: number | null;
    /**
     * code point of its updates
     */
    dscp: number | null;
    /**
     * number of topics
     */
    topics: number | null;
    /**
     * number of topics without a recent state
     */
    staleTopics: number | null;
    /**
     * states that newer ones replaced on their path
     */
    replaced: number | null;
    /**
     * number of its newest update
     */
    seq: number | null;
    /**
     * ms of `performance.now()`
     */
    receivedAt: number;
};
export type Listener = {
    onState: (series: Series) => void;
    onRemoved: (series: Series) => void;
};
/**
 * A source, as the gateway's monitor knows it. Unknown values are `null`.
 * @typedef {object} Source
 * @property {string} name
 * @property {string} address
 * @property {number | null} silence  time since its last update, at `receivedAt`, s
 * @property {number | null} rate  updates per second
 * @property {number | null} fresh  updates that were the newest when they arrived
 * @property {number | null} stale  updates that arrived after a newer one
 * @property {number | null} missing  updates that have not come
 * @property {number | null} ageMean  ms
 * @property {number | null} ageP95  95th percentile of the age over time, ms
 * @property {number | null} ageMax  ms
 * @property {number | null} dscp  code point of its updates
 * @property {number | null} topics  number of topics
 * @property {number | null} staleTopics  number of topics without a recent state
 * @property {number | null} replaced  states that newer ones replaced on their path
 * @property {number | null} seq  number of its newest update
 * @property {number} receivedAt  ms of `performance.now()`
 */
/**
 * The events of a catalogue.
 * @typedef {object} Listener
 * @property {(series: Series) => void} onState
 * @property {(series: Series) => void} onRemoved
 */
/** All series and sources of a gateway. */
export declare class Catalogue {
    #private;
    listener: Listener;
    /** @type {Map<string, Series>}  By `identityOf`. */
    series: Map<string, Series>;
    /** @type {Map<number, Series>}  By the gateway's number. */
    byId: Map<number, Series>;
    /** @type {Map<number, Topic>}  The states, by the number of their series. */
    states: Map<number, Topic>;
    /** @type {Map<number, number>}  State numbers of series that have ended, by their former number. */
    ended: Map<number, number>;
    /** @type {Map<number, Source>} */
    sources: Map<number, Source>;
    /** Whether series that end may be named again at once, as after new patterns. */
    isRenaming: boolean;
    /** The gateway's law and counters. @type {Record<string, unknown> | null} */
    link: Record<string, unknown> | null;
    /** @param {Listener} listener */
    constructor(listener: Listener);
    /** A session has begun: the numbers are those of another gateway, but the series may be the same. */
    begin(): void;
    /** The gateway gets new patterns: it ends all series, and names the matching ones again. */
    expectNames(): void;
    /** Removes series that were not named again. */
    sweep(): void;
    /** A topic has a newer state. @param {Topic} topic */
    onState(topic: Topic): void;
    /** A key was removed. @param {Topic} topic */
    onGone(topic: Topic): void;
    /**
     * The series with a path and a key.
     * @param {string} path  `source/topic`
     * @param {string | null} key
     */
    find(path: string, key: string | null): Series | null;
    /** The clocks' offset has become known: so have the ages of states that arrived before. */
    learnAges(): void;
}
