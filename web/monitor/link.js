/** The link between gateway and browser: its law, its transport, and commands. */

import { byId, setText, showFields } from "./fields.js";
import { UNKNOWN, formatMs, formatNumber, formatShare, numberOf, textOf, visible } from "./text.js";

/** @typedef {import("../client/freshline.js").Monitor} Monitor */

const TRANSPORTS = Object.freeze({ webtransport: "WebTransport", websocket: "WebSocket" });

/** The name of the transport in use. @param {Monitor} monitor */
export function transportName({ transport }) {
  return transport === null ? "none" : TRANSPORTS[transport];
}

export class LinkPanel {
  constructor() {
    this.summary = byId("link-summary");
    this.why = byId("link-why");
    this.fields = byId("link-fields");
    this.panel = byId("link-panel");
    this.command = /** @type {HTMLFormElement} */ (byId("command"));
    this.topics = /** @type {HTMLSelectElement} */ (byId("command-topic"));
    this.text = /** @type {HTMLInputElement} */ (byId("command-text"));
    this.result = byId("command-result");
    this.offered = "";
    /** @type {Monitor | null} */
    this.monitor = null;
    const toggle = byId("link-toggle");
    toggle.addEventListener("click", () => {
      this.panel.hidden = !this.panel.hidden;
      toggle.ariaExpanded = String(!this.panel.hidden);
      setText(toggle, this.panel.hidden ? "Details" : "Hide details");
      if (this.monitor !== null) this.update(this.monitor);
    });
    this.command.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  /** Shows the link as it is now. @param {Monitor} monitor */
  update(monitor) {
    this.monitor = monitor;
    const link = monitor.link ?? {};
    const rate = numberOf(link.rate);
    const summary = [
      `${transportName(monitor)} (${monitor.transportReason})`,
      textOf(link.law),
      rate === null ? "" : `${formatNumber(rate)} updates/s`,
      `RTT ${formatMs(numberOf(link.srtt_ms))}`,
      `backlog ${formatNumber(numberOf(link.backlog))}`,
      `loss ${formatShare(numberOf(link.lost_part))}`,
    ];
    const isOpen = monitor.status === "open";
    setText(this.summary, isOpen ? summary.filter((it) => it !== "").join("  ·  ") : "no connection");
    if (this.panel.hidden) return;
    setText(this.why, isOpen ? `${transportName(monitor)}: ${monitor.transportReason}.` : "There is no connection to the gateway.");
    this.#showFields(monitor, link);
    this.#offer(monitor.endpoint?.commands ?? []);
  }

  /**
   * @param {Monitor} monitor
   * @param {Record<string, unknown>} link
   */
  #showFields(monitor, link) {
    const { fresh, stale, missing } = monitor.counts;
    const limited = textOf(link.limited_by);
    const leftOut = numberOf(link.left_out);
    showFields(this.fields, [
      ["Law", textOf(link.law) || UNKNOWN],
      ["Rate", `${formatNumber(numberOf(link.rate))} updates/s`],
      ["Limited by", limited === "" ? "nothing" : limited],
      ["Smoothed RTT", formatMs(numberOf(link.srtt_ms))],
      ["Minimum RTT", formatMs(numberOf(link.rtt_min_ms))],
      ["Backlog", `${formatNumber(numberOf(link.backlog))} updates`],
      ["Updates sent", formatNumber(numberOf(link.sent))],
      ["Acknowledged", formatNumber(numberOf(link.acked))],
      ["Lost", formatShare(numberOf(link.lost_part))],
      ["Fresh here", formatNumber(fresh)],
      ["Stale here", formatNumber(stale)],
      ["Missing here", formatNumber(missing)],
      ["Series left out", formatNumber(leftOut), leftOut ? "the gateway sends a browser at most 1,300" : ""],
      ["Gateway", visible(monitor.endpoint?.version ?? UNKNOWN)],
    ]);
  }

  /** @param {string[]} commands */
  #offer(commands) {
    const offered = JSON.stringify(commands);
    this.command.hidden = commands.length === 0;
    if (offered === this.offered) return;
    this.offered = offered;
    const options = commands.map((topic) => {
      const option = document.createElement("option");
      option.value = topic;
      option.textContent = visible(topic);
      return option;
    });
    this.topics.replaceChildren(...options);
  }

  async #send() {
    if (this.monitor === null) return;
    setText(this.result, "…");
    try {
      await this.monitor.command(this.topics.value, this.text.value);
      setText(this.result, "The gateway has taken it.");
      this.text.value = "";
    } catch (error) {
      setText(this.result, `Refused: ${visible(error instanceof Error ? error.message : String(error))}`);
    }
  }
}
