/** Shows the state of a series: JSON, text, a picture, or bytes. */

import { byId, setText } from "./fields.js";
import { KINDS, contentOf } from "./payload.js";
import { formatBytes, showText } from "./text.js";

/** @typedef {import("../client/series.js").Series} Series */

export class StateView {
  constructor() {
    this.kind = byId("state-kind");
    this.text = byId("state-text");
    this.image = /** @type {HTMLImageElement} */ (byId("state-image"));
    /** The payload that is shown. @type {Uint8Array | null} */
    this.shown = null;
    this.url = "";
    this.isLoading = false;
    this.image.addEventListener("load", () => this.#onImage(true));
    this.image.addEventListener("error", () => this.#onImage(false));
  }

  /** Shows the newest state of a series, if it is another one. @param {Series} series */
  show(series) {
    const { payload } = series;
    if (payload === this.shown || this.isLoading) return;
    this.shown = payload;
    if (payload === null) return this.clear();
    const content = contentOf(payload);
    const lengths = series.isCut
      ? `the first ${formatBytes(payload.length)} of ${formatBytes(series.length)}`
      : formatBytes(payload.length);
    const isShort = content.kind !== "image" && content.isCut ? ", the beginning" : "";
    setText(this.kind, `${KINDS[content.kind]}, ${lengths}${isShort}`);
    this.text.hidden = content.kind === "image";
    this.image.hidden = content.kind !== "image";
    if (content.kind === "image") {
      this.#load(payload, content.type);
    } else {
      this.#release();
      this.text.classList.toggle("is-hex", content.kind === "hex");
      showText(this.text, content.text);
    }
  }

  /** Shows nothing. */
  clear() {
    this.shown = null;
    setText(this.kind, "No state has come yet.");
    [this.text.hidden, this.image.hidden] = [true, true];
    this.#release();
  }

  /**
   * @param {Uint8Array} payload
   * @param {string} type
   */
  #load(payload, type) {
    const before = this.url;
    this.isLoading = true;
    this.url = URL.createObjectURL(new Blob([/** @type {Uint8Array<ArrayBuffer>} */ (payload)], { type }));
    this.image.src = this.url;
    this.image.alt = `Picture, ${type}, ${formatBytes(payload.length)}`;
    if (before !== "") URL.revokeObjectURL(before);
  }

  /** @param {boolean} isGood */
  #onImage(isGood) {
    this.isLoading = false;
    if (this.url === "") return;
    const { naturalWidth, naturalHeight } = this.image;
    this.image.classList.toggle("is-large", naturalWidth > 240);
    const kind = (this.kind.textContent ?? "").replace(/, \d+ × \d+$|, damaged$/, "");
    setText(this.kind, isGood ? `${kind}, ${naturalWidth} × ${naturalHeight}` : `${kind}, damaged`);
  }

  #release() {
    this.isLoading = false;
    if (this.url === "") return;
    URL.revokeObjectURL(this.url);
    this.url = "";
    this.image.removeAttribute("src");
  }
}
