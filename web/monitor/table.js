/**
 * The table of series. Only the rows in view are in the document, and they are reused: scrolling gives them
 * other series. Texts change five times per second, plots in each frame; one canvas over the column has all plots,
 * because many small ones cost browsers more.
 */

import { SPARK_SPAN, Surface, drawSpark } from "./plot.js";
import { lossOf } from "./row.js";
import { UNKNOWN, formatMs, formatNumber, formatShare, visible } from "./text.js";

/** @typedef {import("./row.js").Row} Row */
/** @typedef {import("./rows.js").Rows} Rows */
/** @typedef {import("./rows.js").Column} Column */

const ROW_HEIGHT = 28;
const HEAD_HEIGHT = 31;
/** Rows above and below the view. */
const SPARE = 3;
/** With more plots than that, each is drawn in every second frame. */
const MAX_PER_FRAME = 24;
/** The margins of a plot in its row: at the top and the bottom, and at either side. */
const [MARGIN_Y, MARGIN_X] = [3, 6];

/** @type {{id: Column | "plot", title: string, about: string, className: string}[]} */
const COLUMNS = [
  { id: "source", title: "Source", about: "", className: "name" },
  { id: "topic", title: "Topic", about: "", className: "" },
  { id: "key", title: "Key", about: "", className: "c-key soft" },
  { id: "plot", title: `Age, last ${SPARK_SPAN / 1000} s`, about: "", className: "plot" },
  { id: "age", title: "Age now", about: "Age of the newest state", className: "number age" },
  { id: "mean", title: "Mean", about: "Mean age over the last 30 to 60 s", className: "number c-mean soft" },
  { id: "p95", title: "p95", about: "95th percentile of the age over the last 30 to 60 s", className: "number c-p95 soft" },
  { id: "rate", title: "Rate", about: "States per second that have come here", className: "number c-rate soft" },
  { id: "loss", title: "Loss", about: "Share of the source's updates that have not come", className: "number c-loss soft" },
  { id: "silence", title: "Silence", about: "Time since the newest state came here", className: "number c-silence silence" },
];

/** A row in the document. */
class View {
  /**
   * @param {number} place
   * @param {HTMLElement} parent
   */
  constructor(place, parent) {
    this.element = document.createElement("div");
    this.element.id = `row-${place}`;
    this.element.className = "row";
    this.element.role = "row";
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    for (const { id, className } of COLUMNS) {
      const cell = document.createElement("div");
      cell.role = "gridcell";
      cell.className = `cell ${className}`;
      this.element.append(cell);
      this.cells.set(id, cell);
    }
    /** @type {Row | null} */
    this.row = null;
    this.index = -1;
    parent.append(this.element);
  }

  /**
   * Sets the text of a cell, if it has changed.
   * @param {string} id
   * @param {string} text
   */
  set(id, text) {
    const cell = /** @type {HTMLElement} */ (this.cells.get(id));
    if (cell.textContent !== text) cell.textContent = text;
  }
}

export class Table {
  /**
   * @param {Rows} rows
   * @param {(row: Row) => void} onOpen  the user opens the detail view of a row
   */
  constructor(rows, onOpen) {
    this.rows = rows;
    this.onOpen = onOpen;
    this.grid = /** @type {HTMLElement} */ (document.getElementById("grid"));
    this.body = /** @type {HTMLElement} */ (document.getElementById("body"));
    /** @type {View[]} */
    this.views = [];
    this.plots = new Surface(/** @type {HTMLCanvasElement} */ (document.getElementById("plots")));
    /** The index of the first row that the canvas covers, and how many it covers. */
    this.first = 0;
    this.count = 0;
    /** The row with the keyboard focus. @type {Row | null} */
    this.active = null;
    /** The row whose detail view is open. @type {Row | null} */
    this.selected = null;
    this.isMeasured = false;
    this.frame = 0;
    this.#makeHead();
    this.grid.addEventListener("keydown", (event) => this.#onKey(event));
    this.grid.addEventListener("scroll", () => this.place(), { passive: true });
    this.body.addEventListener("click", (event) => this.#onClick(event));
    new ResizeObserver(() => this.place()).observe(this.grid);
  }

  /** Assigns series to the rows in view, after the order, the size or the scroll position has changed. */
  place() {
    const { shown } = this.rows;
    const height = `${shown.length * ROW_HEIGHT}px`;
    if (this.body.style.height !== height) this.body.style.height = height;
    this.grid.ariaRowCount = String(shown.length + 1);
    const first = Math.max(Math.floor(this.grid.scrollTop / ROW_HEIGHT) - SPARE, 0);
    const last = Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / ROW_HEIGHT) + SPARE;
    const count = Math.max(Math.min(last, shown.length) - first, 0);
    while (this.views.length < count) this.views.push(new View(this.views.length, this.body));
    for (const view of this.views) {
      // The view of a row keeps it while scrolling.
      const index = first + mod(Number(view.element.id.slice(4)) - first, this.views.length);
      this.#assign(view, index < first + count ? index : -1);
    }
    [this.first, this.count, this.isMeasured] = [first, count, false];
    this.#mark();
    this.updateTexts(performance.now());
  }

  /** @param {View} view @param {number} index */
  #assign(view, index) {
    const row = this.rows.shown[index] ?? null;
    if (view.element.hidden !== (row === null)) view.element.hidden = row === null;
    if (row === null) {
      [view.row, view.index] = [null, -1];
      return;
    }
    if (view.index !== index) {
      view.index = index;
      view.element.ariaRowIndex = String(index + 2);
      view.element.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
    }
    if (view.row === row) return;
    view.row = row;
    const { source, topic, key } = row.series;
    view.set("source", visible(source));
    view.set("topic", topic === null ? UNKNOWN : visible(topic));
    view.set("key", key === null ? "" : visible(key));
    const name = [source, topic, key].filter((it) => it !== null).map((it) => visible(/** @type {string} */ (it)));
    view.element.title = name.join(" / ");
  }

  /** Shows which row is active, and which is selected. */
  #mark() {
    let id = "";
    for (const { element, row } of this.views) {
      const isActive = row !== null && row === this.active;
      if (isActive) id = element.id;
      element.classList.toggle("active", isActive);
      element.ariaSelected = String(row !== null && row === this.selected);
    }
    if (id === "") this.grid.removeAttribute("aria-activedescendant");
    else this.grid.setAttribute("aria-activedescendant", id);
  }

  /** Shows the numbers of the rows in view. @param {number} now */
  updateTexts(now) {
    for (const view of this.views) {
      const { row } = view;
      if (row === null) continue;
      view.set("age", formatMs(row.age(now)));
      view.set("mean", formatMs(row.mean(now)));
      view.set("p95", formatMs(row.percentile(now)));
      const rate = row.rate(now);
      view.set("rate", rate === null ? UNKNOWN : `${formatNumber(rate)} /s`);
      view.set("loss", formatShare(lossOf(this.rows.sourceOf(row))));
      const [silence, { limit }] = [row.silence(now), this.rows];
      view.set("silence", formatMs(silence));
      view.element.classList.toggle("stale", row.isStale(now, limit));
      view.element.classList.toggle("silent", silence !== null && silence > limit);
    }
  }

  /** Draws the plots in view. @param {number} now @param {boolean} all  also those whose turn is the next frame */
  draw(now, all) {
    if (!this.isMeasured) {
      this.#measure();
      this.plots.clear();
      all = true;
    }
    this.frame += 1;
    const isEach = all || this.count <= MAX_PER_FRAME;
    const context = this.plots.begin();
    const { width } = this.plots;
    for (const { row, index } of this.views) {
      if (row === null || (!isEach && (index + this.frame) % 2 === 0)) continue;
      const top = (index - this.first) * ROW_HEIGHT;
      context.clearRect(0, top, width, ROW_HEIGHT);
      const box = { x: MARGIN_X, y: top + MARGIN_Y, width: width - 2 * MARGIN_X, height: ROW_HEIGHT - 2 * MARGIN_Y };
      const { teeth, generatedAt } = row;
      drawSpark(context, box, { teeth, generatedAt, now, isStale: row.isStale(now, this.rows.limit) });
    }
  }

  /** Puts the canvas over the column of plots. */
  #measure() {
    this.isMeasured = true;
    const { canvas } = this.plots;
    const cell = this.views[0]?.row == null ? this.views.find((it) => it.row !== null) : this.views[0];
    canvas.hidden = cell === undefined;
    if (cell === undefined) return;
    const { offsetLeft, clientWidth } = /** @type {HTMLElement} */ (cell.cells.get("plot"));
    canvas.style.transform = `translate(${offsetLeft}px, ${this.first * ROW_HEIGHT}px)`;
    canvas.style.width = `${clientWidth}px`;
    canvas.style.height = `${this.count * ROW_HEIGHT}px`;
    this.plots.measure();
  }

  /** Selects a row, or none. @param {Row | null} row */
  select(row) {
    this.selected = row;
    if (row !== null) this.active = row;
    this.#mark();
  }

  /** Chooses and orders the rows again. */
  arrange() {
    this.rows.arrange(performance.now());
    if (this.active !== null && !this.rows.bySeries.has(this.active.series)) this.active = null;
    this.place();
  }

  #makeHead() {
    const head = /** @type {HTMLElement} */ (document.getElementById("head"));
    for (const { id, title, about, className } of COLUMNS) {
      const cell = document.createElement("div");
      cell.role = "columnheader";
      cell.className = `${className} head-${id}`;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = title;
      if (about !== "") button.title = about;
      // Plots are ordered by their last value.
      const column = id === "plot" ? "age" : id;
      button.addEventListener("click", () => this.#sort(column));
      if (id === "plot") cell.classList.add("is-plot");
      cell.append(button);
      head.append(cell);
    }
    this.#showSort();
  }

  /** @param {Column} column */
  #sort(column) {
    this.rows.sortBy(column);
    this.#showSort();
    this.grid.scrollTop = 0;
    this.arrange();
  }

  #showSort() {
    const { column, isDescending } = this.rows;
    for (const { id } of COLUMNS) {
      const cell = /** @type {HTMLElement} */ (document.querySelector(`.head-${id}`));
      if (id === column) cell.ariaSort = isDescending ? "descending" : "ascending";
      else cell.removeAttribute("aria-sort");
    }
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const element = event.target instanceof Element ? event.target.closest(".row") : null;
    const view = this.views.find((it) => it.element === element);
    if (view?.row) this.onOpen(view.row);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.target !== this.grid || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") {
      if (this.active !== null) this.onOpen(this.active);
      event.preventDefault();
      return;
    }
    const { shown } = this.rows;
    const page = Math.max(Math.floor(this.grid.clientHeight / ROW_HEIGHT) - 2, 1);
    const at = this.active === null ? -1 : shown.indexOf(this.active);
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at === -1 ? 0 : at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to === undefined || shown.length === 0) return;
    event.preventDefault();
    this.#activate(Math.min(Math.max(to, 0), shown.length - 1));
  }

  /** @param {number} index */
  #activate(index) {
    this.active = this.rows.shown[index];
    const top = index * ROW_HEIGHT;
    const room = this.grid.clientHeight - HEAD_HEIGHT;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + ROW_HEIGHT > this.grid.scrollTop + room) this.grid.scrollTop = top + ROW_HEIGHT - room;
    this.place();
  }
}

/**
 * @param {number} value
 * @param {number} modulus
 */
function mod(value, modulus) {
  return ((value % modulus) + modulus) % modulus;
}
