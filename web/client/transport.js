/**
 * How datagrams and control messages reach a gateway: WebTransport, where a lost datagram delays no other one,
 * or WebSocket, which works everywhere.
 */

import { MAX_MESSAGE } from "./control.js";
import { parseHash } from "./endpoint.js";

/** @typedef {import("./endpoint.js").Endpoint} Endpoint */

/** The time limits for opening WebTransport and WebSocket, ms. */
const WEBTRANSPORT_TIMEOUT = 3_000;
const WEBSOCKET_TIMEOUT = 10_000;
/** The time from a failure of WebTransport to the next attempt, ms. */
const RETRY_AFTER = 60_000;
/** Datagrams that a browser may queue in each direction. */
const QUEUE = 256;
/** A WebSocket with more bytes than that in its send buffer is stuck: acks are dropped. */
const MAX_BUFFERED = 1 << 20;

/**
 * The events of a connection.
 * @typedef {object} Listener
 * @property {(connection: Connection) => void} onOpen  before anything else
 * @property {(bytes: Uint8Array) => void} onDatagram
 * @property {(text: string) => void} onControl
 * @property {(reason: string) => void} onClose  reported once
 */

/**
 * An open connection.
 * @typedef {object} Connection
 * @property {"webtransport" | "websocket"} name
 * @property {string} reason  why this transport is used
 * @property {(bytes: Uint8Array) => void} send  may drop the datagram
 * @property {(text: string) => void} sendControl
 * @property {() => void} close  reports no `onClose`
 */

/**
 * Where and how to connect.
 * @typedef {object} Target
 * @property {URL} url
 * @property {string} token
 * @property {string[] | null} pin  hashes of certificates to accept in place of those of the endpoint
 * @property {"auto" | "webtransport" | "websocket"} transport
 */

/** Chooses a transport for each connection, and remembers that WebTransport has failed. */
export class Transports {
  /** @param {Target} target */
  constructor(target) {
    this.target = target;
    this.failedAt = -Infinity;
    this.failure = "";
  }

  /**
   * Connects.
   * @param {Endpoint} endpoint
   * @param {Listener} listener
   * @returns {Promise<void>}  rejected if no transport connects
   */
  async connect(endpoint, listener) {
    const { transport, pin } = this.target;
    if (transport === "websocket") return this.#webSocket(endpoint, listener, "as chosen");
    const missing = this.#whyNot(endpoint);
    const isRecent = transport === "auto" && performance.now() - this.failedAt < RETRY_AFTER;
    if (missing === null && !isRecent) {
      try {
        return await openWebTransport(this.target, endpoint, listener);
      } catch (error) {
        this.failedAt = performance.now();
        this.failure = `WebTransport failed: ${messageOf(error)}`;
      }
    }
    const reason = missing ?? this.failure;
    if (transport === "webtransport") throw new Error(reason);
    if (pin !== null && this.target.url.protocol !== "https:") {
      throw new Error(`${reason}; with a pinned certificate, WebSocket needs https`);
    }
    return this.#webSocket(endpoint, listener, reason);
  }

  /**
   * Why WebTransport cannot be used; `null` if it can.
   * @param {Endpoint} endpoint
   */
  #whyNot(endpoint) {
    if (endpoint.webtransport === null) return "the gateway does not offer WebTransport";
    if (globalThis.isSecureContext === false) return "browsers offer WebTransport only to pages of https and localhost";
    if (!("WebTransport" in globalThis)) return "this browser has no WebTransport";
    return null;
  }

  /**
   * @param {Endpoint} endpoint
   * @param {Listener} listener
   * @param {string} reason
   */
  #webSocket(endpoint, listener, reason) {
    return openWebSocket(this.target, endpoint, listener, reason);
  }
}

/**
 * @param {Target} target
 * @param {Endpoint} endpoint
 * @param {Listener} listener
 */
async function openWebTransport(target, endpoint, listener) {
  const offer = /** @type {NonNullable<Endpoint["webtransport"]>} */ (endpoint.webtransport);
  const url = new URL(`https://${target.url.hostname}:${offer.port}`);
  url.pathname = offer.path;
  url.searchParams.set("token", target.token);
  const hashes = target.pin === null ? offer.hashes : target.pin.map(pinned);
  const serverCertificateHashes = hashes.map((value) => ({ algorithm: "sha-256", value: value.slice() }));
  const session = new WebTransport(url, { serverCertificateHashes, congestionControl: "low-latency" });
  const opened = (async () => {
    await session.ready;
    return session.createBidirectionalStream();
  })();
  opened.catch(() => {});
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const timeout = new Promise((_, reject) => {
    const error = new Error(`it did not come up within ${WEBTRANSPORT_TIMEOUT / 1000} s`);
    timer = setTimeout(() => reject(error), WEBTRANSPORT_TIMEOUT);
  });
  try {
    const stream = /** @type {WebTransportBidirectionalStream} */ (await Promise.race([opened, timeout]));
    webTransport(session, stream, listener);
  } catch (error) {
    session.closed.catch(() => {});
    session.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** @param {string} hex @returns {Uint8Array} */
function pinned(hex) {
  const hash = parseHash(hex);
  if (hash === null) throw new Error("`pin` needs SHA-256 hashes of 64 hexadecimal digits");
  return hash;
}

/**
 * @param {WebTransport} session
 * @param {WebTransportBidirectionalStream} stream
 * @param {Listener} listener
 */
function webTransport(session, stream, listener) {
  let isOpen = true;
  const end = (/** @type {string} */ reason) => {
    if (!isOpen) return;
    isOpen = false;
    session.close();
    listener.onClose(reason);
  };
  const { datagrams } = session;
  [datagrams.incomingHighWaterMark, datagrams.outgoingHighWaterMark] = [QUEUE, QUEUE];
  // Earlier drafts have a stream instead of a method.
  const writable = datagrams.writable ?? /** @type {any} */ (datagrams).createWritable();
  const writer = writable.getWriter();
  const control = stream.writable.getWriter();
  const encoder = new TextEncoder();
  listener.onOpen({
    name: "webtransport",
    reason: "a lost datagram delays no other one",
    send(bytes) {
      if (isOpen && (writer.desiredSize ?? 0) > 0) writer.write(bytes).catch(() => {});
    },
    sendControl(text) {
      if (isOpen) control.write(encoder.encode(`${text}\n`)).catch(() => {});
    },
    close() {
      isOpen = false;
      session.close();
    },
  });
  session.closed.then(
    () => end("the gateway has closed the connection"),
    (error) => end(messageOf(error)),
  );
  readAll(datagrams.readable, (bytes) => isOpen && listener.onDatagram(bytes)).catch((error) => end(messageOf(error)));
  const lines = new Lines((line) => isOpen && listener.onControl(line));
  readAll(stream.readable, (bytes) => lines.add(bytes))
    .then(() => end("the gateway has ended the control stream"))
    .catch((error) => end(messageOf(error)));
}

/**
 * @param {ReadableStream<Uint8Array>} stream
 * @param {(bytes: Uint8Array) => void} onBytes
 */
async function readAll(stream, onBytes) {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes(value);
  }
}

/** Cuts a stream of bytes into lines of limited length. */
export class Lines {
  /** @param {(line: string) => void} onLine */
  constructor(onLine) {
    this.onLine = onLine;
    this.decoder = new TextDecoder();
    this.rest = "";
  }

  /**
   * Bytes have arrived.
   * @param {Uint8Array} bytes
   * @throws {Error}  if a line is too long
   */
  add(bytes) {
    const lines = (this.rest + this.decoder.decode(bytes, { stream: true })).split("\n");
    this.rest = /** @type {string} */ (lines.pop());
    for (const line of lines) this.onLine(line);
    if (this.rest.length > MAX_MESSAGE) throw new Error("the gateway sends a control message that is too long");
  }
}

/**
 * @param {Target} target
 * @param {Endpoint} endpoint
 * @param {Listener} listener
 * @param {string} reason
 * @returns {Promise<void>}
 */
function openWebSocket(target, endpoint, listener, reason) {
  const url = new URL(target.url.origin);
  url.protocol = target.url.protocol === "https:" ? "wss:" : "ws:";
  url.pathname = endpoint.websocket;
  url.searchParams.set("token", target.token);
  const socket = new WebSocket(url, "freshline.2");
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    let isOpen = false;
    const timer = setTimeout(() => fail("the WebSocket did not open within 10 s"), WEBSOCKET_TIMEOUT);
    const fail = (/** @type {string} */ why) => {
      clearTimeout(timer);
      socket.onclose = null;
      socket.close();
      reject(new Error(why));
    };
    socket.onopen = () => {
      clearTimeout(timer);
      isOpen = true;
      listener.onOpen(webSocket(socket, reason));
      resolve();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") listener.onControl(data);
      else listener.onDatagram(new Uint8Array(data));
    };
    socket.onclose = ({ code }) => {
      if (isOpen) listener.onClose(`the WebSocket was closed (code ${code})`);
      else fail("the WebSocket was refused");
    };
  });
}

/**
 * @param {WebSocket} socket
 * @param {string} reason
 * @returns {Connection}
 */
function webSocket(socket, reason) {
  return {
    name: "websocket",
    reason,
    send(bytes) {
      if (socket.readyState === WebSocket.OPEN && socket.bufferedAmount < MAX_BUFFERED) {
        socket.send(/** @type {Uint8Array<ArrayBuffer>} */ (bytes));
      }
    },
    sendControl(text) {
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
    },
    close() {
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    },
  };
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error && error.message !== "" ? error.message : String(error);
}
