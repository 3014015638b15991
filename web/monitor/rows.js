/** The rows of the table: all series, of which some are shown, in some order. */

import { Row, lossOf } from "./row.js";

/** @typedef {import("../client/freshline.js").Monitor} Monitor */
/** @typedef {import("../client/series.js").Series} Series */
/** @typedef {"source" | "topic" | "key" | "age" | "mean" | "p95" | "rate" | "loss" | "silence"} Column */

const collator = new Intl.Collator("en", { numeric: true });

/** Columns of text; others have numbers that change. @type {ReadonlySet<Column>} */
const TEXTS = new Set(/** @type {Column[]} */ (["source", "topic", "key"]));

export class Rows {
  constructor() {
    /** The origin of the series. @type {Monitor | null} */
    this.monitor = null;
    /** @type {Map<Series, Row>} */
    this.bySeries = new Map();
    /** The rows that are shown, in order. @type {Row[]} */
    this.shown = [];
    this.column = /** @type {Column} */ ("source");
    this.isDescending = false;
    this.words = /** @type {string[]} */ ([]);
    this.onlyStale = false;
    /** Ages above this count as stale, ms. */
    this.limit = 1000;
    /** Whether rows were added or removed since the last `arrange`. */
    this.hasChanged = false;
  }

  /**
   * Shows the series of this monitor instead of those of the previous one.
   * @param {Monitor} monitor
   */
  begin(monitor) {
    this.monitor = monitor;
    this.bySeries.clear();
    this.hasChanged = true;
  }

  /**
   * The source of a row, if the gateway has described it.
   * @param {Row} row
   */
  sourceOf({ series }) {
    return this.monitor?.sourceOf(series) ?? null;
  }

  /**
   * The series of a topic without keys, or `null`.
   * @param {string} source
   * @param {string} topic
   */
  find(source, topic) {
    for (const series of this.bySeries.keys()) {
      if (series.topic === topic && series.source === source && series.key === null) return series;
    }
    return null;
  }

  /** A series has a newer state. @param {Series} series */
  onState(series) {
    let row = this.bySeries.get(series);
    if (row === undefined) {
      row = new Row(series, performance.now());
      this.bySeries.set(series, row);
      this.hasChanged = true;
    }
    row.onState();
  }

  /** A series has ended. @param {Series} series */
  onRemoved(series) {
    this.hasChanged = this.bySeries.delete(series) || this.hasChanged;
  }

  /** Shows only rows with all words of a text. @param {string} text */
  search(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  }

  /**
   * Orders rows by a column; a second call with the same column reverses the order.
   * @param {Column} column
   */
  sortBy(column) {
    const isSame = this.column === column;
    // The worst value comes first; names are in alphabetical order.
    this.isDescending = isSame ? !this.isDescending : !TEXTS.has(column);
    this.column = column;
  }

  /** Whether the order changes by itself. */
  get isLive() {
    return this.onlyStale || !TEXTS.has(this.column);
  }

  /** Chooses and orders the rows that are shown. @param {number} now */
  arrange(now) {
    this.hasChanged = false;
    const rows = [...this.bySeries.values()].filter((row) => this.#isShown(row, now));
    const keyed = rows.map((row) => ({ row, key: this.#key(row, now) }));
    keyed.sort((one, other) => this.#compare(one, other));
    this.shown = keyed.map(({ row }) => row);
  }

  /** The number of rows whose state is stale. @param {number} now */
  countStale(now) {
    let count = 0;
    for (const row of this.bySeries.values()) if (row.isStale(now, this.limit)) count += 1;
    return count;
  }

  /**
   * @param {Row} row
   * @param {number} now
   */
  #isShown(row, now) {
    if (this.onlyStale && !row.isStale(now, this.limit)) return false;
    if (this.words.length === 0) return true;
    const text = `${row.series.path} ${row.series.key ?? ""}`.toLowerCase();
    return this.words.every((word) => text.includes(word));
  }

  /**
   * @param {Row} row
   * @param {number} now
   * @returns {string | number | null}
   */
  #key(row, now) {
    const { series } = row;
    switch (this.column) {
      case "source":
        return series.source;
      case "topic":
        return series.topic;
      case "key":
        return series.key;
      case "age":
        return row.age(now);
      case "mean":
        return row.mean(now);
      case "p95":
        return row.percentile(now);
      case "rate":
        return row.rate(now);
      case "loss":
        return lossOf(this.sourceOf(row));
      case "silence":
        return row.silence(now);
    }
  }

  /**
   * Unknown values come last in either direction; equal ones are ordered by name.
   * @param {{row: Row, key: string | number | null}} one
   * @param {{row: Row, key: string | number | null}} other
   */
  #compare(one, other) {
    const sign = this.isDescending ? -1 : 1;
    if (one.key !== other.key) {
      if (one.key === null) return 1;
      if (other.key === null) return -1;
      const isText = typeof one.key === "string" && typeof other.key === "string";
      const order = isText ? collator.compare(/** @type {string} */ (one.key), /** @type {string} */ (other.key)) : Number(one.key) - Number(other.key);
      if (order !== 0) return sign * order;
    }
    const [a, b] = [one.row.series, other.row.series];
    return collator.compare(a.path, b.path) || collator.compare(a.key ?? "", b.key ?? "");
  }
}
