/**
 * Control messages: JSON to and from the gateway, each request with a number that the answer repeats.
 */
/** The maximum length of a message, in bytes. */
export declare const MAX_MESSAGE: number;
export type Answer = {
    /**
     * how many series match the patterns
     */
    series: number | null;
};
export type Pending = {
    resolve: (answer: Answer) => void;
    reject: (error: Error) => void;
    timer: ReturnType<typeof setTimeout>;
};
/**
 * An answer of the gateway.
 * @typedef {object} Answer
 * @property {number | null} series  how many series match the patterns
 */
/**
 * @typedef {object} Pending
 * @property {(answer: Answer) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {ReturnType<typeof setTimeout>} timer
 */
/** Requests over one connection. */
export declare class Control {
    #private;
    send: (text: string) => void;
    next: number;
    /** @type {Map<number, Pending>} */
    pending: Map<number, Pending>;
    /** @param {(text: string) => void} send */
    constructor(send: (text: string) => void);
    /**
     * Sends a request.
     * @param {Record<string, unknown>} fields
     * @returns {Promise<Answer>}  rejected if the gateway refuses, or does not answer within 10 s
     */
    request(fields: Record<string, unknown>): Promise<Answer>;
    /**
     * A message has arrived; anything but an answer to a request is ignored.
     * @param {string} text
     */
    onText(text: string): void;
    /** The connection has ended: so do all requests. */
    close(): void;
}
