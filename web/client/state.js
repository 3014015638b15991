/** A state, as applications receive it. */

/** @typedef {import("./series.js").Series} Series */

const utf8 = new TextDecoder();

/** The newest state of a series at some moment; later states do not change it. */
export class State {
  #series;
  #generatedAt;
  #uncertainty;

  /** @param {Series} series */
  constructor(series) {
    this.#series = series;
    /** The name of the source. */
    this.source = series.source;
    /** The name of the topic; `null` if it has none. */
    this.topic = series.topic;
    /** The key as text, `0x…` if it is not text; `null` if the topic has no keys. */
    this.key = series.key;
    /** Whether the series has ended; the payload is then its last state. */
    this.removed = series.isGone;
    /** The state. */
    this.payload = series.payload ?? new Uint8Array(0);
    /** The length of the whole state, bytes: more than that of `payload` if `isCut`. */
    this.length = series.length;
    /** Whether the state is longer than the gateway's limit, and was cut. */
    this.isCut = series.isCut;
    /** When the state arrived, ms of `performance.now()`. */
    this.receivedAt = series.receivedAt;
    this.#generatedAt = series.generatedAt;
    this.#uncertainty = series.uncertainty;
  }

  /** When the state was generated, ms of `performance.now()`; `NaN` if it is not known. */
  get generatedAt() {
    this.#learnAge();
    return this.#generatedAt;
  }

  /** The age now, ms; `null` if it is not known, as before the clocks' offset is. */
  get age() {
    this.#learnAge();
    return Number.isNaN(this.#generatedAt) ? null : Math.max(performance.now() - this.#generatedAt, 0);
  }

  /** The maximum error of the age, ms; `Infinity` if it is not known. */
  get uncertainty() {
    this.#learnAge();
    return this.#uncertainty;
  }

  /** The state as UTF-8 text; other bytes become U+FFFD. */
  get text() {
    return utf8.decode(this.payload);
  }

  /**
   * The state as JSON.
   * @returns {unknown}
   * @throws {SyntaxError}  if it is not JSON
   */
  json() {
    return JSON.parse(this.text);
  }

  /** The age may become known after the state arrived. */
  #learnAge() {
    if (!Number.isNaN(this.#generatedAt) || this.#series.payload !== this.payload) return;
    this.#generatedAt = this.#series.generatedAt;
    this.#uncertainty = this.#series.uncertainty;
  }
}
