/** All views of the page, and one loop that keeps them up to date. */

import { Detail } from "./detail.js";
import { byId, setText } from "./fields.js";
import { LinkPanel, transportName } from "./link.js";
import { Rows } from "./rows.js";
import { Table } from "./table.js";
import { counted, visible } from "./text.js";

/** @typedef {import("../client/freshline.js").Monitor} Monitor */
/** @typedef {import("./row.js").Row} Row */

/** The interval at which texts, the order, and plots with reduced motion change, ms. */
const TEXT_EVERY = 200;
const ARRANGE_EVERY = 1_000;
const CALM_EVERY = 500;

export class Page {
  constructor() {
    this.rows = new Rows();
    this.table = new Table(this.rows, (row) => this.#openDetail(row));
    this.detail = new Detail(this.rows, () => this.#onDetailClosed());
    this.link = new LinkPanel();
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    /** @type {Monitor | null} */
    this.monitor = null;
    this.textAt = -Infinity;
    this.arrangedAt = -Infinity;
    this.drawnAt = -Infinity;
    const onFrame = () => {
      requestAnimationFrame(onFrame);
      this.#onFrame(performance.now());
    };
    requestAnimationFrame(onFrame);
  }

  /**
   * Shows what a monitor receives, from now on.
   * @param {Monitor} monitor
   * @returns {Promise<void>}  once its token was refused
   */
  follow(monitor) {
    this.monitor = monitor;
    this.rows.begin(monitor);
    this.detail.close();
    // States arrive only for subscriptions; the page receives them as events, and needs no loop.
    monitor.subscribe("*");
    monitor.on("state", (series) => this.rows.onState(series));
    monitor.on("removed", (series) => this.rows.onRemoved(series));
    this.#showStatus(monitor);
    return new Promise((resolve) => {
      monitor.on("status", () => {
        this.#showStatus(monitor);
        if (monitor.status === "refused") resolve();
      });
    });
  }

  /** @param {number} now */
  #onFrame(now) {
    const { rows, table, detail, monitor } = this;
    if (monitor === null) return;
    const every = rows.hasChanged ? TEXT_EVERY : rows.isLive ? ARRANGE_EVERY : Infinity;
    if (now - this.arrangedAt >= every) {
      this.arrangedAt = now;
      table.arrange();
    }
    if (now - this.textAt >= TEXT_EVERY) {
      this.textAt = now;
      table.updateTexts(now);
      detail.update(now);
      detail.drawSlow();
      this.link.update(monitor);
      this.#showTotals(monitor, now);
    }
    if (this.calm.matches && now - this.drawnAt < CALM_EVERY) return;
    this.drawnAt = now;
    table.draw(now, this.calm.matches);
    detail.draw(now);
  }

  /** @param {Row} row */
  #openDetail(row) {
    this.detail.open(row);
    this.table.select(row);
    this.table.place();
  }

  #onDetailClosed() {
    this.table.select(null);
    this.table.place();
    this.table.grid.focus({ preventScroll: true });
  }

  /**
   * @param {Monitor} monitor
   * @param {number} now
   */
  #showTotals(monitor, now) {
    const all = this.rows.bySeries.size;
    const shown = this.rows.shown.length;
    const stale = this.rows.countStale(now);
    const texts = [counted(monitor.sources().length, "source", "sources"), `${all.toLocaleString("en")} series`];
    if (shown !== all) texts.push(`${shown.toLocaleString("en")} shown`);
    if (stale > 0) texts.push(`${stale.toLocaleString("en")} stale`);
    setText(byId("totals"), texts.join(" · "));
    const empty = byId("empty");
    empty.hidden = shown > 0;
    setText(empty, this.#emptyText(monitor, all));
  }

  /**
   * Why no row is shown.
   * @param {Monitor} monitor
   * @param {number} all  series
   */
  #emptyText(monitor, all) {
    if (all > 0) return this.rows.onlyStale ? "No series is that old." : "No series matches the search.";
    return monitor.status === "open" ? "No source has sent a state yet." : "Waiting for the gateway…";
  }

  /** @param {Monitor} monitor */
  #showStatus(monitor) {
    const element = byId("status");
    element.dataset.status = monitor.status;
    const name = transportName(monitor);
    const texts = {
      connecting: "Connecting…",
      open: `Connected over ${name}`,
      reconnecting: "Reconnecting…",
      refused: "Token refused",
      closed: "Closed",
    };
    setText(byId("status-text"), texts[monitor.status]);
    element.title = visible(monitor.status === "open" ? `${name}: ${monitor.transportReason}` : monitor.reason);
  }
}
