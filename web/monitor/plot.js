/** Draws ages: the sawtooth of a series, with or without axes, and the distribution of its ages. */

import { BINS, EDGES } from "./ages.js";
import { formatMs } from "./text.js";
import { themeColours } from "./theme.js";

/** @typedef {import("./ages.js").Sawtooth} Sawtooth */
/** @typedef {import("./ages.js").AgeTimes} AgeTimes */

/** A rectangle in CSS pixels. @typedef {{x: number, y: number, width: number, height: number}} Box */

/** The time that small plots show, ms. */
export const SPARK_SPAN = 5_000;
const FONT = "11px system-ui, sans-serif";
const SMALL_FONT = "10px system-ui, sans-serif";
/** The width of the scale of a small plot. */
const LABEL = 44;

/** A canvas whose bitmap follows its size on the page. */
export class Surface {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.width = 0;
    this.height = 0;
    this.scale = 0;
  }

  /** Adopts the canvas's current size; reads layout, so call it when the layout may have changed. */
  measure() {
    const scale = Math.min(devicePixelRatio || 1, 3);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (width === this.width && height === this.height && scale === this.scale) return;
    [this.width, this.height, this.scale] = [width, height, scale];
    this.canvas.width = Math.max(Math.round(width * scale), 1);
    this.canvas.height = Math.max(Math.round(height * scale), 1);
  }

  /** Begins to draw, in CSS pixels. */
  begin() {
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    return this.context;
  }

  /** Begins an empty picture. */
  clear() {
    const context = this.begin();
    context.clearRect(0, 0, this.width, this.height);
    return context;
  }
}

/** Mantissas of the upper ends of axes. */
const STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

/**
 * The next round number that is not below.
 * @param {number} value
 */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  const step = STEPS.find((it) => it * power >= value * (1 - 1e-9)) ?? 10;
  return step * power;
}

/** The number of round intervals up to the round end of an axis. @param {number} top */
function partsOf(top) {
  const mantissa = Number((top / 10 ** Math.floor(Math.log10(top) + 1e-9)).toFixed(3));
  if ([1.5, 3, 6].includes(mantissa)) return 3;
  return [2.5, 5, 10].includes(mantissa) ? 5 : 4;
}

/**
 * The data of a drawn sawtooth.
 * @typedef {object} Ages
 * @property {Sawtooth} teeth
 * @property {number} generatedAt  of the newest state, ms of `performance.now()`; `NaN` if unknown
 * @property {number} now
 * @property {boolean} isStale
 */

/**
 * Draws the last seconds of a series, with its scale.
 * @param {CanvasRenderingContext2D} context
 * @param {Box} place
 * @param {Ages} ages
 */
export function drawSpark(context, place, ages) {
  const colours = themeColours();
  const top = topOf(ages, SPARK_SPAN, 10);
  const box = { ...place, width: place.width - LABEL };
  const bottom = box.y + box.height - 0.5;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(box.x, bottom);
  context.lineTo(box.x + box.width, bottom);
  context.stroke();
  // Filling areas costs most of the time, so only stale series have one.
  drawTeeth(context, box, ages, SPARK_SPAN, top, ages.isStale);
  context.fillStyle = colours.muted;
  context.font = SMALL_FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(labelOf(top), box.x + box.width + 6, box.y + box.height / 2);
}

/**
 * Draws the ages of the last `span` ms with axes.
 * @param {Surface} surface
 * @param {Ages} ages
 * @param {number} span
 */
export function drawAges(surface, ages, span) {
  const context = surface.clear();
  const top = topOf(ages, span, 10);
  const box = { x: 52, y: 8, width: surface.width - 60, height: surface.height - 30 };
  const parts = partsOf(top);
  const lines = Array.from({ length: parts + 1 }, (_, it) => ({ at: it / parts, label: labelOf((it / parts) * top) }));
  const seconds = [0, 0.2, 0.4, 0.6, 0.8, 1].map((it) => ({ at: it, label: it === 1 ? "now" : `−${Math.round(((1 - it) * span) / 1000)} s` }));
  drawAxes(context, box, lines, seconds);
  drawTeeth(context, box, ages, span, top, true);
}

/**
 * Draws for each age the share of time in which the age was at most that.
 * @param {Surface} surface
 * @param {AgeTimes} times
 */
export function drawShares(surface, times) {
  const context = surface.clear();
  const box = { x: 52, y: 8, width: surface.width - 60, height: surface.height - 30 };
  const [low, high] = [times.quantile(0.001), times.quantile(0.999)];
  if (low === null || high === null) return;
  const from = Math.floor(Math.log10(Math.max(low, 0.1)) * 3) / 3;
  const to = Math.max(Math.ceil(Math.log10(Math.max(high, 0.1)) * 3) / 3, from + 1 / 3);
  const placeOf = (/** @type {number} */ age) => (Math.log10(Math.max(age, 0.1)) - from) / (to - from);
  const shares = [0, 0.25, 0.5, 0.75, 1].map((it) => ({ at: it, label: `${it * 100} %` }));
  drawAxes(context, box, shares, ageTicks(from, to).map((age) => ({ at: placeOf(age), label: labelOf(age) })));
  const colours = themeColours();
  context.save();
  context.beginPath();
  context.rect(box.x, box.y - 1, box.width, box.height + 2);
  context.clip();
  context.beginPath();
  let sum = 0;
  context.moveTo(box.x, box.y + box.height);
  for (let bin = 0; bin < BINS && EDGES[bin] < 10 ** to; bin++) {
    sum += times.bins[bin];
    const age = Math.min(EDGES[bin + 1], 1e6);
    context.lineTo(box.x + placeOf(age) * box.width, box.y + box.height * (1 - sum / times.total));
  }
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.stroke();
  context.restore();
}

/** Ages for the ticks of a logarithmic axis. @param {number} from @param {number} to  decimal logarithms of ms */
function ageTicks(from, to) {
  const ticks = [];
  const steps = to - from > 3 ? [1] : to - from > 1.5 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(from); power <= to; power++) {
    for (const step of steps) {
      const age = step * 10 ** power;
      if (Math.log10(age) >= from - 1e-9 && Math.log10(age) <= to + 1e-9) ticks.push(age);
    }
  }
  return ticks;
}

/** @param {number} ms */
function labelOf(ms) {
  if (ms === 0) return "0";
  if (ms < 1000) return `${Number(ms.toFixed(ms < 10 ? 1 : 0))} ms`;
  return ms < 120_000 ? `${Number((ms / 1000).toFixed(1))} s` : formatMs(ms);
}

/**
 * The upper end of the axis.
 * @param {Ages} ages
 * @param {number} span
 * @param {number} lowest
 */
function topOf({ teeth, generatedAt, now }, span, lowest) {
  const open = Number.isNaN(generatedAt) ? 0 : now - generatedAt;
  return roundUp(Math.max(teeth.peak(now - span), open, lowest));
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Box} box
 * @param {{at: number, label: string}[]} horizontal  from 0 (bottom) to 1
 * @param {{at: number, label: string}[]} vertical  from 0 (left) to 1
 */
function drawAxes(context, box, horizontal, vertical) {
  const colours = themeColours();
  context.font = FONT;
  context.fillStyle = colours.muted;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.beginPath();
  for (const { at, label } of horizontal) {
    const y = Math.round(box.y + box.height * (1 - at)) + 0.5;
    context.moveTo(box.x, y);
    context.lineTo(box.x + box.width, y);
    context.fillText(label, box.x - 7, y);
  }
  context.stroke();
  context.textBaseline = "top";
  for (const { at, label } of vertical) {
    context.textAlign = at > 0.97 ? "right" : at < 0.03 ? "left" : "center";
    context.fillText(label, box.x + box.width * at, box.y + box.height + 6);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Box} box
 * @param {Ages} ages
 * @param {number} span
 * @param {number} top
 * @param {boolean} hasArea  whether the area below the line is filled
 */
function drawTeeth(context, box, { teeth, generatedAt, now, isStale }, span, top, hasArea) {
  const colours = themeColours();
  const bottom = box.y + box.height;
  const xOf = (/** @type {number} */ at) => box.x + box.width * (1 - (now - at) / span);
  const yOf = (/** @type {number} */ age) => bottom - (box.height * age) / top;
  const line = new Path2D();
  let [isDown, start, last] = [false, 0, 0];
  // One tooth from before the plot, so that it begins at its edge.
  const from = Math.max(teeth.firstSince(now - span) - 1, teeth.first);
  for (let it = from; it < teeth.count; it++) {
    const place = it % teeth.capacity;
    const [x, before] = [xOf(teeth.at[place]), teeth.before[place]];
    if (isDown && !Number.isNaN(before)) line.lineTo(x, yOf(before));
    const y = yOf(teeth.after[place]);
    if (isDown) line.lineTo(x, y);
    else [isDown, start] = (line.moveTo(x, y), [true, x]);
    last = x;
  }
  if (isDown && !Number.isNaN(generatedAt)) line.lineTo((last = xOf(now)), yOf(now - generatedAt));
  if (!isDown) return;
  context.save();
  context.beginPath();
  context.rect(box.x, box.y - 2, box.width, box.height + 3);
  context.clip();
  const colour = isStale ? colours.warn : colours.accent;
  if (hasArea) {
    const area = new Path2D(line);
    area.lineTo(last, bottom);
    area.lineTo(start, bottom);
    area.closePath();
    context.globalAlpha = 0.16;
    context.fillStyle = colour;
    context.fill(area);
    context.globalAlpha = 1;
  }
  context.strokeStyle = colour;
  // Many teeth on few pixels would fill the plot.
  context.lineWidth = (teeth.count - from) * 3 > box.width ? 0.8 : 1.25;
  context.lineJoin = "round";
  context.stroke(line);
  context.restore();
}
