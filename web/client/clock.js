/** The browser's clock. All times of this library are ms of `performance.now()`; the protocol's are ns. */

/** The start of the protocol's clock, ns: no state is older, and a `Number` represents every ns exactly. */
const START = 2 ** 50;

/** ms of `performance.now()` as ns of the protocol. @param {number} ms */
export function toProtocol(ms) {
  return Math.round(ms * 1e6) + START;
}

/** ns of the protocol as ms of `performance.now()`. @param {number} ns */
export function fromProtocol(ns) {
  return (ns - START) / 1e6;
}
