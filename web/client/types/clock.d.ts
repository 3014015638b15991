/** The browser's clock. All times of this library are ms of `performance.now()`; the protocol's are ns. */
/** ms of `performance.now()` as ns of the protocol. @param {number} ms */
export declare function toProtocol(ms: number): number;
/** ns of the protocol as ms of `performance.now()`. @param {number} ns */
export declare function fromProtocol(ns: number): number;
