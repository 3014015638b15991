/** The endpoint description of a gateway: the answer to `GET /api/endpoint`. */
export type Endpoint = {
    /**
     * of the gateway
     */
    version: string;
    webtransport: {
        port: number;
        path: string;
        hashes: Uint8Array[];
    } | null;
    /**
     * the path
     */
    websocket: string;
    /**
     * the topics that commands may go to
     */
    commands: string[];
};
/**
 * @typedef {object} Endpoint
 * @property {string} version  of the gateway
 * @property {{port: number, path: string, hashes: Uint8Array[]} | null} webtransport
 * @property {string} websocket  the path
 * @property {string[]} commands  the topics that commands may go to
 */
/** The gateway does not accept the token. */
export declare class Refused extends Error {
    constructor();
}
/**
 * Requests the endpoint description of a gateway.
 * @param {URL} url  of the gateway
 * @param {string} token
 * @param {AbortSignal} signal
 * @returns {Promise<Endpoint>}
 * @throws {Refused | Error}
 */
export declare function fetchEndpoint(url: URL, token: string, signal: AbortSignal): Promise<Endpoint>;
/**
 * Reads the answer; unknown fields are ignored.
 * @param {string} text
 * @returns {Endpoint | null}  `null` if a field is missing or of another type
 */
export declare function parseEndpoint(text: string): Endpoint | null;
/**
 * The hash of a certificate.
 * @param {string} hex  64 digits
 * @returns {Uint8Array | null}
 */
export declare function parseHash(hex: string): Uint8Array | null;
