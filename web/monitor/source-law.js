/** The law and the paths of a source, which the source reports in a topic of its own (`freshline source --status`). */

import { byId, showFields } from "./fields.js";
import { UNKNOWN, formatMs, formatNumber, formatShare, numberOf, objectOf, textOf } from "./text.js";

/** @typedef {import("../client/series.js").Series} Series */

/** The topic in which a source describes its law. */
export const STATUS_TOPIC = "freshline.status";

/** The maximum number of paths shown, which is that of a source. */
const MAX_PATHS = 8;

const HEADS = ["Path", "To", "State", "Share", "Updates", "RTT", "One way", "Lost", "Silences"];

const utf8 = new TextDecoder();

export class SourceLaw {
  constructor() {
    this.section = byId("law-section");
    this.fields = byId("law-fields");
    this.table = /** @type {HTMLTableElement} */ (byId("law-paths"));
    this.payload = /** @type {Uint8Array | null} */ (null);
    const row = (this.table.tHead ?? this.table.createTHead()).insertRow();
    for (const name of HEADS) {
      const head = row.appendChild(document.createElement("th"));
      head.scope = "col";
      head.textContent = name;
    }
  }

  /** Shows the newest state of this series. @param {Series | null} series */
  show(series) {
    const payload = series?.payload ?? null;
    if (payload === this.payload) return;
    this.payload = payload;
    const status = payload === null ? null : statusOf(payload);
    this.section.hidden = status === null;
    if (status === null) return;
    const limited = textOf(status.limited_by);
    showFields(this.fields, [
      ["Law", textOf(status.law) || UNKNOWN, textOf(status.phase)],
      ["Rate", `${formatNumber(numberOf(status.rate))} /s`, limited === "" ? "" : `limited by ${limited}`],
      ["Smoothed RTT", formatMs(numberOf(status.srtt_ms))],
      ["Minimum RTT", formatMs(numberOf(status.rtt_min_ms))],
      ["Backlog, mean", formatNumber(numberOf(status.backlog_mean)), "updates"],
      ["Sent", formatNumber(numberOf(status.sent))],
      ["Acknowledged", formatNumber(numberOf(status.acked))],
      ["Late acks", formatNumber(numberOf(status.late_acks))],
      ["Sessions", formatNumber(numberOf(status.opened))],
    ]);
    this.#showPaths(Array.isArray(status.paths) ? status.paths.slice(0, MAX_PATHS) : []);
  }

  /** @param {unknown[]} paths */
  #showPaths(paths) {
    this.table.hidden = paths.length === 0;
    const body = this.table.tBodies[0] ?? this.table.createTBody();
    const rows = paths.map((it) => {
      const path = objectOf(it);
      const texts = [
        textOf(path.via) || UNKNOWN,
        textOf(path.monitor) || UNKNOWN,
        textOf(path.state) || UNKNOWN,
        formatShare(numberOf(path.share)),
        `${formatNumber(numberOf(path.updates_per_s))} /s`,
        formatMs(numberOf(path.srtt_ms)),
        formatMs(numberOf(path.one_way_delay_ms)),
        formatNumber(numberOf(path.lost)),
        formatNumber(numberOf(path.silences)),
      ];
      const row = document.createElement("tr");
      for (const text of texts) row.appendChild(document.createElement("td")).textContent = text;
      return row;
    });
    body.replaceChildren(...rows);
  }
}

/**
 * A status; `null` if the payload is not a status.
 * @param {Uint8Array} payload
 */
function statusOf(payload) {
  try {
    return objectOf(JSON.parse(utf8.decode(payload)));
  } catch {
    return null;
  }
}
