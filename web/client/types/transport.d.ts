/**
 * How datagrams and control messages reach a gateway: WebTransport, where a lost datagram delays no other one,
 * or WebSocket, which works everywhere.
 */
export type Endpoint = import("./endpoint.js").Endpoint;
export type Listener = {
    /**
     * before anything else
     */
    onOpen: (connection: Connection) => void;
    onDatagram: (bytes: Uint8Array) => void;
    onControl: (text: string) => void;
    /**
     * reported once
     */
    onClose: (reason: string) => void;
};
export type Connection = {
    name: "webtransport" | "websocket";
    /**
     * why this transport is used
     */
    reason: string;
    /**
     * may drop the datagram
     */
    send: (bytes: Uint8Array) => void;
    sendControl: (text: string) => void;
    /**
     * reports no `onClose`
     */
    close: () => void;
};
export type Target = {
    url: URL;
    token: string;
    /**
     * hashes of certificates to accept in place of those of the endpoint
     */
    pin: string[] | null;
    transport: "auto" | "webtransport" | "websocket";
};
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
export declare class Transports {
    #private;
    target: Target;
    failedAt: number;
    failure: string;
    /** @param {Target} target */
    constructor(target: Target);
    /**
     * Connects.
     * @param {Endpoint} endpoint
     * @param {Listener} listener
     * @returns {Promise<void>}  rejected if no transport connects
     */
    connect(endpoint: Endpoint, listener: Listener): Promise<void>;
}
/** Cuts a stream of bytes into lines of limited length. */
export declare class Lines {
    onLine: (line: string) => void;
    decoder: TextDecoder;
    rest: string;
    /** @param {(line: string) => void} onLine */
    constructor(onLine: (line: string) => void);
    /**
     * Bytes have arrived.
     * @param {Uint8Array} bytes
     * @throws {Error}  if a line is too long
     */
    add(bytes: Uint8Array): void;
}
/** @param {unknown} error */
export declare function messageOf(error: unknown): string;
