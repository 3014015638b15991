/** The detail view of a series: its ages, its state, and its source. */

import { AgeTimes, Sawtooth } from "./ages.js";
import { byId, setText, showFields } from "./fields.js";
import { Surface, drawAges, drawShares } from "./plot.js";
import { lossOf } from "./row.js";
import { STATUS_TOPIC, SourceLaw } from "./source-law.js";
import { StateView } from "./state-view.js";
import { UNKNOWN, formatMs, formatNumber, formatShare, visible } from "./text.js";

/** @typedef {import("./row.js").Row} Row */
/** @typedef {import("./rows.js").Rows} Rows */

/** The time that the large plot shows, ms; teeth within `SPACING` are merged. */
const SPAN = 30_000;
const TEETH = 2048;
const SPACING = 16;

export class Detail {
  /**
   * @param {Rows} rows
   * @param {() => void} onClose
   */
  constructor(rows, onClose) {
    this.rows = rows;
    this.onClose = onClose;
    this.element = byId("detail");
    this.title = byId("detail-title");
    this.figures = byId("detail-figures");
    this.source = byId("source-fields");
    this.ages = new Surface(/** @type {HTMLCanvasElement} */ (byId("age-plot")));
    this.shares = new Surface(/** @type {HTMLCanvasElement} */ (byId("cdf-plot")));
    this.state = new StateView();
    this.law = new SourceLaw();
    this.times = new AgeTimes();
    this.teeth = new Sawtooth(TEETH, SPACING);
    /** @type {Row | null} */
    this.row = null;
    byId("detail-close").addEventListener("click", () => this.close());
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  /** Shows a row. @param {Row} row */
  open(row) {
    if (this.row !== null) this.row.fineTeeth = null;
    this.row = row;
    this.teeth = new Sawtooth(TEETH, SPACING);
    this.teeth.copyFrom(row.teeth);
    row.fineTeeth = this.teeth;
    this.#showTitle(row);
    byId("main").classList.add("has-detail");
    this.element.hidden = false;
    this.element.scrollTop = 0;
    this.state.clear();
    this.update(performance.now());
    this.#measure();
    this.title.focus({ preventScroll: true });
  }

  /** Closes the view. */
  close() {
    if (this.row === null) return;
    this.row.fineTeeth = null;
    this.row = null;
    this.state.clear();
    this.element.hidden = true;
    byId("main").classList.remove("has-detail");
    this.onClose();
  }

  /** Shows the numbers and the state as they are now. @param {number} now */
  update(now) {
    const { row } = this;
    if (row === null) return;
    const { series } = row;
    const limit = this.rows.limit;
    const [age, rate] = [row.age(now), row.rate(now)];
    const error = series.uncertainty;
    const note = series.isGone ? "the series has ended" : Number.isFinite(error) ? `± ${formatMs(error)}` : "";
    showFields(this.figures, [
      ["Age now", formatMs(age), note, row.isStale(now, limit) ? "stale" : ""],
      ["Mean", formatMs(row.mean(now)), "last 30 to 60 s"],
      ["p95", formatMs(row.percentile(now)), "last 30 to 60 s"],
      ["Rate", rate === null ? UNKNOWN : `${formatNumber(rate)} /s`, `${series.count.toLocaleString("en")} states`],
    ]);
    this.state.show(series);
    this.#showSource(row, now);
    this.law.show(this.rows.find(series.source, STATUS_TOPIC));
    row.allTimes(now, this.times);
    const seen = formatMs(this.times.total);
    const median = formatMs(this.times.quantile(0.5));
    setText(byId("cdf-caption"), `Share of time with at most this age, as seen here for ${seen}; median ${median}`);
  }

  /** Draws the plots. @param {number} now */
  draw(now) {
    const { row } = this;
    if (row === null) return;
    const isStale = row.isStale(now, this.rows.limit);
    drawAges(this.ages, { teeth: this.teeth, generatedAt: row.generatedAt, now, isStale }, SPAN);
  }

  /** Draws the shares of time, which change slowly. */
  drawSlow() {
    if (this.row !== null) drawShares(this.shares, this.times);
  }

  #measure() {
    if (this.row === null) return;
    this.ages.measure();
    this.shares.measure();
    this.draw(performance.now());
    this.drawSlow();
  }

  /** @param {Row} row */
  #showTitle({ series }) {
    const parts = [series.source, series.topic, series.key].filter((it) => it !== null);
    const nodes = parts.flatMap((text, index) => {
      const part = document.createElement("span");
      part.className = "part";
      part.textContent = visible(/** @type {string} */ (text));
      if (index === 0) return [part];
      const slash = document.createElement("span");
      slash.className = "slash";
      slash.textContent = " / ";
      return [slash, part];
    });
    this.title.replaceChildren(...nodes);
  }

  /**
   * @param {Row} row
   * @param {number} now
   */
  #showSource(row, now) {
    const source = this.rows.sourceOf(row);
    if (source === null) {
      return showFields(this.source, [["Counters", "not known yet"]]);
    }
    const silence = source.silence === null ? null : source.silence * 1000 + (now - source.receivedAt);
    showFields(this.source, [
      ["Address", source.address === "" ? UNKNOWN : visible(source.address)],
      ["Updates", source.rate === null ? UNKNOWN : `${formatNumber(source.rate)} /s`],
      ["Silent for", formatMs(silence)],
      ["Fresh", countOf(source.fresh)],
      ["Stale", countOf(source.stale)],
      ["Missing", `${countOf(source.missing)} (${formatShare(lossOf(source))})`],
      ["Age, mean", formatMs(source.ageMean)],
      ["Age, p95", formatMs(source.ageP95)],
      ["Age, max", formatMs(source.ageMax)],
      ["Topics", countOf(source.topics)],
      ["Stale topics", countOf(source.staleTopics)],
      ["Replaced states", countOf(source.replaced)],
      ["DSCP", countOf(source.dscp)],
      ["Newest update", countOf(source.seq)],
    ]);
  }
}

/** @param {number | null} count */
function countOf(count) {
  return count === null ? UNKNOWN : count.toLocaleString("en");
}
