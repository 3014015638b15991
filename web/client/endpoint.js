/** The endpoint description of a gateway: the answer to `GET /api/endpoint`. */

/** The maximum length of an answer, in bytes. */
const MAX_ANSWER = 64 << 10;
const TIMEOUT = 5_000;

/**
 * @typedef {object} Endpoint
 * @property {string} version  of the gateway
 * @property {{port: number, path: string, hashes: Uint8Array[]} | null} webtransport
 * @property {string} websocket  the path
 * @property {string[]} commands  the topics that commands may go to
 */

/** The gateway does not accept the token. */
export class Refused extends Error {
  constructor() {
    super("the gateway does not accept the token; copy the address that it printed when it started");
    this.name = "Refused";
  }
}

/**
 * Requests the endpoint description of a gateway.
 * @param {URL} url  of the gateway
 * @param {string} token
 * @param {AbortSignal} signal
 * @returns {Promise<Endpoint>}
 * @throws {Refused | Error}
 */
export async function fetchEndpoint(url, token, signal) {
  const response = await fetch(new URL("/api/endpoint", url), {
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)]),
  });
  if (response.status === 401 || response.status === 403) throw new Refused();
  if (!response.ok) throw new Error(`the gateway answers with status ${response.status}`);
  const endpoint = parseEndpoint(await readText(response));
  if (endpoint === null) throw new Error("the answer is not that of a Freshline gateway; check the address");
  return endpoint;
}

/** @param {Response} response  Reads at most `MAX_ANSWER` bytes. */
async function readText(response) {
  const decoder = new TextDecoder();
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  let text = "";
  for (let length = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text;
    length += value.length;
    if (length > MAX_ANSWER) {
      await reader.cancel();
      throw new Error(`the gateway's answer is longer than ${MAX_ANSWER} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

/**
 * Reads the answer; unknown fields are ignored.
 * @param {string} text
 * @returns {Endpoint | null}  `null` if a field is missing or of another type
 */
export function parseEndpoint(text) {
  /** @type {any} */
  let fields;
  try {
    fields = JSON.parse(text);
  } catch {
    return null;
  }
  const { version, webtransport = null, websocket, commands = [] } = fields ?? {};
  if (typeof version !== "string" || !isPath(websocket) || !isTexts(commands)) return null;
  if (webtransport === null) return { version, webtransport, websocket, commands };
  const { port, path, hashes } = webtransport;
  const isPort = Number.isInteger(port) && port > 0 && port < 65536;
  if (!isPort || !isPath(path) || !isTexts(hashes)) return null;
  const read = hashes.map(parseHash);
  if (read.includes(null)) return null;
  const known = /** @type {Uint8Array[]} */ (read);
  return { version, webtransport: { port, path, hashes: known }, websocket, commands };
}

/**
 * The hash of a certificate.
 * @param {string} hex  64 digits
 * @returns {Uint8Array | null}
 */
export function parseHash(hex) {
  if (!/^[0-9a-fA-F]{64}$/.test(hex)) return null;
  return Uint8Array.from({ length: 32 }, (_, at) => Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16));
}

/** @param {unknown} value @returns {value is string} */
function isPath(value) {
  return typeof value === "string" && value.startsWith("/") && value.length <= 256;
}

/** @param {unknown} value @returns {value is string[]} */
function isTexts(value) {
  return Array.isArray(value) && value.length <= 256 && value.every((it) => typeof it === "string");
}
