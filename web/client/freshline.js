/**
 * Freshline in the browser: the newest states of all sources of a monitor, with their ages.
 *
 * ```js
 * import { connect } from "freshline";
 * const monitor = await connect("http://127.0.0.1:8080", { token });
 * for await (const state of monitor.subscribe("robot-7/*")) console.log(state.topic, state.age, state.json());
 * ```
 */

import { toProtocol } from "./clock.js";
import { Control } from "./control.js";
import { Refused, fetchEndpoint } from "./endpoint.js";
import { Receiver } from "./receiver.js";
import { Catalogue } from "./series.js";
import { State } from "./state.js";
import { Subscription } from "./subscription.js";
import { Transports, messageOf } from "./transport.js";
import { setHold } from "./wire.js";

export { Refused, State, Subscription };
/** @typedef {import("./series.js").Series} Series */
/** @typedef {import("./series.js").Source} Source */
/** @typedef {import("./endpoint.js").Endpoint} Endpoint */

/**
 * @typedef {object} Options
 * @property {string} token  the gateway prints it
 * @property {string[]} [pin]  SHA-256 hashes of the gateway's certificate, in hexadecimal digits, known by other
 *   means: the hashes that the gateway itself sends are then not trusted
 * @property {"auto" | "webtransport" | "websocket"} [transport]  default: WebTransport, and WebSocket where it fails
 * @property {AbortSignal} [signal]  closes the monitor
 */

/**
 * @typedef {"connecting" | "open" | "reconnecting" | "refused" | "closed"} Status
 */

/**
 * The events, and the arguments of their listeners:
 *
 * | event | when | argument |
 * |---|---|---|
 * | `open` | a session has begun | |
 * | `close` | the session has ended; unless it was closed, another one follows | the reason |
 * | `status` | `status` or `reason` has changed | |
 * | `change` | states have arrived, at most once for each datagram | |
 * | `state` | a series has a newer state; called often, so be quick | the series |
 * | `removed` | a series has ended | the series |
 * @typedef {"open" | "close" | "status" | "change" | "state" | "removed"} Event
 */

/** Waits between attempts to connect, ms; each is lengthened by up to a quarter. */
const FIRST_WAIT = 200;
const LAST_WAIT = 2_000;
/** The silence after which a gateway counts as lost, ms: it sends the state of the link each second. */
const SILENCE = 5_000;
/** The time limit for the gateway to name series again, in a new session or after new patterns, ms. */
const SWEEP_AFTER = 5_000;

/**
 * Connects to a gateway.
 * @param {string | URL} url  of the gateway, such as `http://127.0.0.1:8080`
 * @param {Options} options
 * @returns {Promise<Monitor>}  once the first session has begun
 * @throws {Refused | Error}  if the gateway refuses the token, or cannot be reached
 */
export function connect(url, options) {
  const monitor = new Monitor(url, options);
  return new Promise((resolve, reject) => {
    const off = monitor.on("status", () => {
      if (monitor.status === "connecting") return;
      off();
      if (monitor.status === "open") {
        resolve(monitor);
      } else {
        monitor.close();
        reject(monitor.error ?? new Error(monitor.reason));
      }
    });
  });
}

/** A connection to a gateway, which reconnects after failures until it is closed or refused. */
export class Monitor {
  #listeners = /** @type {Map<Event, Set<(argument: any) => void>>} */ (new Map());
  #subscriptions = /** @type {Set<Subscription>} */ (new Set());
  #transports;
  #receiver;
  #catalogue;
  #abort = new AbortController();
  #connection = /** @type {import("./transport.js").Connection | null} */ (null);
  #control = /** @type {Control | null} */ (null);
  #endpoint = /** @type {Endpoint | null} */ (null);
  #heardAt = 0;
  #hasChanged = false;
  #isSubscribing = false;
  #sweepTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

  /**
   * Begins to connect; `connect` waits for the connection.
   * @param {string | URL} url
   * @param {Options} options
   */
  constructor(url, { token, pin, transport = "auto", signal }) {
    /** @type {Status} */
    this.status = "connecting";
    /** Why it has this status; may be empty. */
    this.reason = "";
    /** The last error. @type {Error | null} */
    this.error = null;
    this.#transports = new Transports({ url: new URL(url), token, pin: pin ?? null, transport });
    this.#catalogue = new Catalogue({
      onState: (series) => this.#publish("state", series),
      onRemoved: (series) => this.#publish("removed", series),
    });
    this.#receiver = new Receiver({
      onState: (topic) => this.#catalogue.onState(topic),
      onGone: (topic) => this.#catalogue.onGone(topic),
      onAges: () => this.#catalogue.learnAges(),
      onOpen: () => this.#onOpen(),
      onClose: (reason) => this.#lose(`the gateway has ended the session: ${reason}`),
    });
    signal?.addEventListener("abort", () => this.close());
    if (signal?.aborted) queueMicrotask(() => this.close());
    else this.#run();
  }

  /** The transport in use; `null` without a connection. */
  get transport() {
    return this.#connection?.name ?? null;
  }

  /** Why this transport is used. */
  get transportReason() {
    return this.#connection?.reason ?? "";
  }

  /** The gateway's endpoint description; `null` before it was reached. */
  get endpoint() {
    return this.#endpoint;
  }

  /** The law between gateway and browser, and counters of both, as the gateway reports them each second. */
  get link() {
    return this.#catalogue.link;
  }

  /** The numbers of fresh, stale and missing updates of the session. */
  get counts() {
    return this.#receiver.counts;
  }

  /** All series that match subscriptions. @returns {IterableIterator<Series>} */
  series() {
    return this.#catalogue.series.values();
  }

  /** All sources that the gateway knows. @returns {Source[]} */
  sources() {
    return [...this.#catalogue.sources.values()];
  }

  /**
   * The source of a series, if the gateway has described it.
   * @param {Series} series
   * @returns {Source | null}
   */
  sourceOf(series) {
    return this.#catalogue.sources.get(series.sourceId) ?? null;
  }

  /**
   * The newest state of a series that some subscription covers.
   * @param {string} path  `source/topic`
   * @param {string | null} [key]
   * @returns {State | null}
   */
  latest(path, key = null) {
    const series = this.#catalogue.find(path, key);
    return series === null || series.payload === null ? null : new State(series);
  }

  /**
   * States of series whose `source/topic` matches one of the patterns, in which `*` means any characters. A
   * consumer that is slower than the states gets the newest one of each series, the series in turn.
   * @param {string | string[]} patterns
   * @returns {Subscription}  to be iterated by `for await`; leaving the loop ends it
   */
  subscribe(patterns) {
    const subscription = new Subscription([patterns].flat(), (it) => {
      this.#subscriptions.delete(it);
      this.#subscribeSoon();
    });
    if (this.#abort.signal.aborted) {
      subscription.end();
      return subscription;
    }
    this.#subscriptions.add(subscription);
    for (const series of this.#catalogue.series.values()) if (series.payload !== null) subscription.push(series);
    this.#subscribeSoon();
    return subscription;
  }

  /**
   * Puts a state into a topic that the gateway's monitor sends to its sources.
   * @param {string} topic  one of `endpoint.commands`
   * @param {string | Uint8Array} state
   * @returns {Promise<void>}  once the gateway has accepted it; rejected with its reason if it refuses
   */
  async command(topic, state) {
    if (this.#control === null) throw new Error("there is no connection to the gateway; try again when it is back");
    const content = typeof state === "string" ? { text: state } : { base64: base64Of(state) };
    await this.#control.request({ command: { topic, ...content } });
  }

  /**
   * Calls a function at each event.
   * @param {Event} event
   * @param {(argument: any) => void} listener
   * @returns {() => void}  stops that
   */
  on(event, listener) {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Ends the connection and all subscriptions, for good. */
  close() {
    if (this.#abort.signal.aborted) return;
    const bytes = this.#receiver.close();
    if (bytes !== null) this.#connection?.send(bytes);
    this.#abort.abort();
    this.#disconnect("it was closed here");
    for (const subscription of [...this.#subscriptions]) subscription.end();
    if (this.status !== "refused") this.#setStatus("closed", "");
  }

  async #run() {
    const { signal } = this.#abort;
    for (let wait = FIRST_WAIT; !signal.aborted; wait = Math.min(2 * wait, LAST_WAIT)) {
      const openedAt = performance.now();
      let reason;
      try {
        reason = await this.#connectOnce(signal);
        if (performance.now() - openedAt > LAST_WAIT) wait = FIRST_WAIT;
      } catch (error) {
        reason = messageOf(error);
        this.error = error instanceof Error ? error : new Error(reason);
      }
      if (signal.aborted) return;
      this.#disconnect(reason);
      if (this.error instanceof Refused) {
        this.#setStatus("refused", reason);
        return this.close();
      }
      this.#setStatus("reconnecting", reason);
      await sleep(wait * (1 + Math.random() / 4), signal);
    }
  }

  /**
   * Connects, and waits until the connection has ended.
   * @param {AbortSignal} signal
   * @returns {Promise<string>}  why it has ended
   */
  async #connectOnce(signal) {
    const endpoint = await fetchEndpoint(this.#transports.target.url, this.#transports.target.token, signal);
    this.#endpoint = endpoint;
    /** @type {(reason: string) => void} */
    let end = () => {};
    const ended = new Promise((/** @type {(reason: string) => void} */ resolve) => (end = resolve));
    await this.#transports.connect(endpoint, {
      onOpen: (connection) => {
        this.#connection = connection;
        this.#lose = end;
        this.#control = new Control((text) => connection.sendControl(text));
        if (signal.aborted) this.#disconnect("it was closed here");
      },
      onDatagram: (bytes) => this.#onDatagram(bytes),
      onControl: (text) => this.#control?.onText(text),
      onClose: (reason) => end(reason),
    });
    this.#heardAt = performance.now();
    this.#subscribeSoon();
    const watch = setInterval(() => {
      if (performance.now() - this.#heardAt > SILENCE) end(`the gateway was silent for ${SILENCE / 1000} s`);
    }, 1_000);
    try {
      return await ended;
    } finally {
      clearInterval(watch);
    }
  }

  /** Ends the present connection, with a reason. @type {(reason: string) => void} */
  #lose = () => {};

  /** @param {string} reason */
  #disconnect(reason) {
    const wasOpen = this.status === "open";
    clearTimeout(this.#sweepTimer);
    this.#lose("");
    this.#connection?.close();
    this.#control?.close();
    this.#receiver.close();
    [this.#connection, this.#control] = [null, null];
    if (wasOpen) this.#emit("close", reason);
  }

  /** @param {Uint8Array} bytes */
  #onDatagram(bytes) {
    const receivedAt = performance.now();
    this.#heardAt = receivedAt;
    const answer = this.#receiver.receive(bytes, toProtocol(receivedAt));
    if (answer === null) return;
    setHold(answer, (performance.now() - receivedAt) * 1000);
    this.#connection?.send(answer);
  }

  #onOpen() {
    this.#catalogue.begin();
    this.#sweepLater();
    this.error = null;
    this.#setStatus("open", "");
    this.#emit("open", undefined);
  }

  #sweepLater() {
    clearTimeout(this.#sweepTimer);
    this.#sweepTimer = setTimeout(() => this.#catalogue.sweep(), SWEEP_AFTER);
  }

  /**
   * @param {"state" | "removed"} event
   * @param {Series} series
   */
  #publish(event, series) {
    for (const subscription of this.#subscriptions) subscription.push(series);
    this.#emit(event, series);
    if (this.#hasChanged || !this.#listeners.get("change")?.size) return;
    this.#hasChanged = true;
    queueMicrotask(() => {
      this.#hasChanged = false;
      this.#emit("change", undefined);
    });
  }

  /** Sends the patterns of all subscriptions to the gateway, once for several changes. */
  #subscribeSoon() {
    if (this.#isSubscribing) return;
    this.#isSubscribing = true;
    queueMicrotask(() => {
      this.#isSubscribing = false;
      if (this.#control === null) return;
      const patterns = new Set([...this.#subscriptions].flatMap((it) => it.patterns));
      this.#catalogue.expectNames();
      this.#sweepLater();
      // The gateway refuses patterns that it cannot accept.
      this.#control.request({ subscribe: [...patterns] }).catch((error) => (this.error = error));
    });
  }

  /**
   * @param {Event} event
   * @param {unknown} argument
   */
  #emit(event, argument) {
    for (const listener of this.#listeners.get(event) ?? []) {
      try {
        listener(argument);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /**
   * @param {Status} status
   * @param {string} reason
   */
  #setStatus(status, reason) {
    if (this.status === status && this.reason === reason) return;
    [this.status, this.reason] = [status, reason];
    this.#emit("status", undefined);
  }
}

/** @param {Uint8Array} bytes */
function base64Of(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 */
function sleep(ms, signal) {
  return new Promise((/** @type {(value: void) => void} */ resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}
