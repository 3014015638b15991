/** The type of a state, detected from its content, and its display. */

/** The maximum number of bytes that are shown. */
const MAX_TEXT = 16 << 10;
const MAX_HEX = 4 << 10;
/** JSON is indented up to this depth, and cut at this length, so that nested brackets cannot make a long text. */
const MAX_DEPTH = 24;
const MAX_INDENTED = 64 << 10;

/** The first bytes of image formats. @type {[string, number[], number][]} */
const IMAGES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a], 0],
  ["image/jpeg", [0xff, 0xd8, 0xff], 0],
  ["image/gif", [0x47, 0x49, 0x46, 0x38], 0],
  ["image/webp", [0x57, 0x45, 0x42, 0x50], 8],
];

/**
 * @typedef {{kind: "image", type: string} | {kind: "json" | "text" | "hex", text: string, isCut: boolean}} Content
 */

/**
 * The type of a state, detected from its bytes.
 * @param {Uint8Array} bytes
 * @returns {Content}
 */
export function contentOf(bytes) {
  const image = IMAGES.find(([, magic, at]) => magic.every((byte, index) => bytes[at + index] === byte));
  if (image !== undefined) return { kind: "image", type: image[0] };
  const isCut = bytes.length > MAX_TEXT;
  const text = decode(bytes.subarray(0, MAX_TEXT), isCut);
  if (text === null) return { kind: "hex", text: hexDump(bytes.subarray(0, MAX_HEX)), isCut: bytes.length > MAX_HEX };
  if (!isCut && isJson(text)) {
    const indented = indent(text);
    return { kind: "json", text: indented.slice(0, MAX_INDENTED), isCut: indented.length > MAX_INDENTED };
  }
  return { kind: "text", text, isCut };
}

/**
 * The text of bytes that are UTF-8 with few control characters; otherwise `null`.
 * @param {Uint8Array} bytes
 * @param {boolean} isCut  the last character may be incomplete
 */
function decode(bytes, isCut) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
  } catch {
    return null;
  }
  const controls = text.match(/[\u0000-\u0008\u000e-\u001a\u001c-\u001f\u007f]/g)?.length ?? 0;
  return controls > 2 && controls > text.length * 0.1 ? null : text;
}

/** Whether a text is an object or an array in JSON. @param {string} text */
function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * JSON with a line for each member. Only white space between tokens changes: numbers stay as they are written.
 * @param {string} json  valid JSON
 */
export function indent(json) {
  const out = [];
  let depth = 0;
  const line = () => out.push("\n", "  ".repeat(Math.min(depth, MAX_DEPTH)));
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "{" || token === "[") {
      out.push(token);
      depth += 1;
      line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      // An empty one stays on its line.
      if (/^[{[]$/.test(out.at(-3) ?? "")) out.splice(-2);
      else line();
      out.push(token);
    } else if (token === ",") {
      out.push(",");
      line();
    } else {
      out.push(token === ":" ? ": " : token);
    }
  }
  return out.join("");
}

/**
 * Bytes in hexadecimal digits, 8 per line, and as characters.
 * @param {Uint8Array} bytes
 */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 8) {
    const part = [...bytes.subarray(at, at + 8)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const characters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(23)}  ${characters}`);
  }
  return lines.join("\n");
}

/** Displayed names of kinds. */
export const KINDS = Object.freeze({ image: "image", json: "JSON", text: "text", hex: "binary" });
