/**
 * Control messages: JSON to and from the gateway, each request with a number that the answer repeats.
 */

/** The maximum length of a message, in bytes. */
export const MAX_MESSAGE = 64 << 10;
/** The maximum number of requests without an answer. */
const MAX_PENDING = 32;
/** The time limit for an answer, ms. */
const TIMEOUT = 10_000;

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
export class Control {
  /** @param {(text: string) => void} send */
  constructor(send) {
    this.send = send;
    this.next = 1;
    /** @type {Map<number, Pending>} */
    this.pending = new Map();
  }

  /**
   * Sends a request.
   * @param {Record<string, unknown>} fields
   * @returns {Promise<Answer>}  rejected if the gateway refuses, or does not answer within 10 s
   */
  request(fields) {
    const id = this.next++;
    const text = JSON.stringify({ id, ...fields });
    if (new TextEncoder().encode(text).length > MAX_MESSAGE) {
      return Promise.reject(new Error(`the message is longer than ${MAX_MESSAGE} bytes; send less`));
    }
    if (this.pending.size >= MAX_PENDING) {
      return Promise.reject(new Error("the gateway has not answered 32 requests; wait for answers"));
    }
    return new Promise((resolve, reject) => {
      const onTimeout = () => this.#settle(id)?.reject(new Error("the gateway did not answer within 10 s"));
      this.pending.set(id, { resolve, reject, timer: setTimeout(onTimeout, TIMEOUT) });
      this.send(text);
    });
  }

  /**
   * A message has arrived; anything but an answer to a request is ignored.
   * @param {string} text
   */
  onText(text) {
    if (text.length > MAX_MESSAGE) return;
    /** @type {any} */
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    const pending = this.#settle(message?.id);
    if (pending === null) return;
    const { ok, series, error } = message;
    if (ok === true) pending.resolve({ series: typeof series === "number" ? series : null });
    else pending.reject(new Error(typeof error === "string" ? error.slice(0, 500) : "the gateway refuses"));
  }

  /** The connection has ended: so do all requests. */
  close() {
    for (const id of [...this.pending.keys()]) {
      this.#settle(id)?.reject(new Error("the connection to the gateway has ended"));
    }
  }

  /** @param {number} id */
  #settle(id) {
    const pending = this.pending.get(id) ?? null;
    if (pending !== null) clearTimeout(pending.timer);
    this.pending.delete(id);
    return pending;
  }
}
