/**
 * Display of untrusted text, and of numbers.
 *
 * Characters that control how text is shown, or that cannot be seen, are replaced by their code, as \u{202e}.
 */

// C0, DEL, C1; invisible and bidirectional format characters; separators; tags; lone halves of surrogate pairs.
const CONTROL =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Cs}/gu;

/**
 * Text with visible control characters.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(CONTROL, escapeOf);
}

/** Characters that are marked in a text; further ones are replaced without a mark. */
const MAX_MARKS = 500;

/** @param {string} character */
function escapeOf(character) {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}

/**
 * Shows text with its lines in an element; replaced characters are marked, so that they differ from the same
 * characters in the text.
 * @param {Element} element
 * @param {string} text
 */
export function showText(element, text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(CONTROL)) {
    const [character] = match;
    if (character === "\n" || character === "\t") continue;
    if (nodes.length > 2 * MAX_MARKS) break;
    if (match.index > from) nodes.push(text.slice(from, match.index));
    from = match.index + character.length;
    const mark = document.createElement("span");
    mark.className = "escape";
    mark.textContent = escapeOf(character);
    nodes.push(mark);
  }
  nodes.push(text.slice(from).replace(CONTROL, (it) => (it === "\n" || it === "\t" ? it : escapeOf(it))));
  element.replaceChildren(...nodes);
}

/** The text for an unknown number. */
export const UNKNOWN = "–";

/**
 * A time as `4.2 ms`, `1.3 s` or `5 min`.
 * @param {number | null | undefined} ms
 */
export function formatMs(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return UNKNOWN;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 119_500) return `${(ms / 1000).toFixed(0)} s`;
  if (ms < 7_170_000) return `${(ms / 60_000).toFixed(0)} min`;
  return `${(ms / 3_600_000).toFixed(0)} h`;
}

/**
 * A number with three digits.
 * @param {number | null | undefined} value
 */
export function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value === 0 || Math.abs(value) >= 99.95) return Math.round(value).toLocaleString("en");
  return value.toFixed(Math.abs(value) < 9.995 ? 2 : 1);
}

/**
 * A share as a percentage.
 * @param {number | null | undefined} share  0 to 1
 */
export function formatShare(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
  const percent = share * 100;
  return `${percent === 0 || percent >= 9.95 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

/** A number of bytes. @param {number} count */
export function formatBytes(count) {
  if (count === 1) return "1 byte";
  if (count < 10_000) return `${count.toLocaleString("en")} bytes`;
  return count < 1_000_000 ? `${(count / 1000).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

/**
 * A count with its noun.
 * @param {number} count
 * @param {string} one  such as `source`
 * @param {string} many  such as `sources`
 */
export function counted(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/**
 * A number of JSON; `null` if the value is not a number.
 * @param {unknown} value
 */
export function numberOf(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/**
 * A short text of JSON with visible control characters; empty if the value is not a text.
 * @param {unknown} value
 */
export function textOf(value) {
  return typeof value === "string" ? visible(value.slice(0, 100)) : "";
}

/**
 * The fields of a JSON object; empty if the value is not an object.
 * @param {unknown} value
 * @returns {Record<string, unknown>}
 */
export function objectOf(value) {
  return typeof value === "object" && value !== null ? /** @type {Record<string, unknown>} */ (value) : {};
}
