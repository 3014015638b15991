// The age over time, and the mean age over the rate.

import { LAWS } from "./controls.js";
import { Surface, box, logTicks, ms, number, text, ticks } from "./draw.js";

const EDGE = { left: 46, right: 14, top: 12, bottom: 26 };
const POINTS = 60_000;

/** The ages of all sources in the last seconds of virtual time. */
export class AgeChart {
  constructor(canvas) {
    this.surface = new Surface(canvas);
    this.clear();
  }

  clear() {
    this.moments = [];
    this.max = 0.12;
  }

  /** Adds the result of `Lab.takeAges`. */
  add(ages, sources) {
    const stride = sources + 1;
    for (let at = 0; at < ages.length; at += stride) this.moments.push(ages.subarray(at, at + stride));
    if (this.moments.length > POINTS) this.moments.splice(0, this.moments.length - POINTS / 2);
  }

  draw({ now, span, sources, mean, colours }) {
    const context = this.surface.begin();
    const { width, height } = this.surface;
    const begin = now - span;
    let from = this.moments.length;
    let highest = 0.02;
    while (from > 0 && this.moments[from - 1][0] >= begin) {
      from -= 1;
      for (let source = 1; source <= sources; source += 1) highest = Math.max(highest, this.moments[from][source]);
    }
    from = Math.max(0, from - 1);
    this.max += (highest * 1.12 - this.max) * (highest * 1.12 > this.max ? 0.3 : 0.03);
    const across = (time) => EDGE.left + ((time - begin) / span) * (width - EDGE.left - EDGE.right);
    const down = (age) => height - EDGE.bottom - (age / this.max) * (height - EDGE.bottom - EDGE.top);
    for (const value of ticks(0, this.max * 1000, 4)) {
      rule(context, colours, EDGE.left, down(value / 1000), width - EDGE.right);
      text(context, colours, number0(value), EDGE.left - 8, down(value / 1000), { align: "right" });
    }
    for (const time of ticks(begin, now, 5)) {
      if (time >= 0 && across(time) > EDGE.left + 8) text(context, colours, `${+time.toFixed(2)} s`, across(time), height - 10, { align: "center" });
    }
    context.save();
    context.beginPath();
    context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, height - EDGE.bottom);
    context.clip();
    context.lineJoin = "round";
    for (let source = sources; source >= 1; source -= 1) {
      this.line(context, from, source, across, down);
      context.strokeStyle = colours.sources[source - 1];
      context.globalAlpha = source === 1 ? 1 : 0.55;
      context.lineWidth = source === 1 ? 2 : 1.25;
      context.stroke();
    }
    context.globalAlpha = 0.12;
    if (this.moments.length > from + 1) {
      context.lineTo(across(this.moments.at(-1)[0]), down(0));
      context.lineTo(across(this.moments[from][0]), down(0));
      context.fillStyle = colours.sources[0];
      context.fill();
    }
    context.globalAlpha = 1;
    if (mean) {
      context.setLineDash([5, 4]);
      context.strokeStyle = colours.ink;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(EDGE.left, down(mean));
      context.lineTo(width - EDGE.right, down(mean));
      context.stroke();
      context.setLineDash([]);
    }
    context.restore();
  }

  line(context, from, source, across, down) {
    context.beginPath();
    for (let at = from; at < this.moments.length; at += 1) {
      const moment = this.moments[at];
      const x = across(moment[0]);
      // A fresh update lowers the age at once: the line falls straight down.
      if (at > from && moment[source] < this.moments[at - 1][source]) context.lineTo(x, down(this.moments[at - 1][source]));
      context.lineTo(x, down(moment[source]));
    }
  }
}

/** The mean age over the rate of each source: the runs so far. */
export class Bowl {
  constructor(canvas, onRate) {
    this.surface = new Surface(canvas);
    this.clear();
    this.range = [1, 300];
    const rate = (event) => {
      const { width } = this.surface;
      const part = (event.offsetX - EDGE.left) / (width - EDGE.left - EDGE.right);
      const [min, max] = this.range;
      return +(min * (max / min) ** Math.min(1, Math.max(0, part))).toPrecision(3);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      onRate(rate(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) onRate(rate(event));
    });
  }

  clear() {
    this.trail = [];
    this.swept = [];
    this.before = [];
  }

  /** The conditions have changed: the swept curve stays as a dashed curve to compare with. */
  conditionsChanged() {
    if (this.swept.length > 2) this.before = this.swept;
    this.trail = [];
    this.swept = [];
  }

  /** Keeps a point of the running simulation. */
  keep(point) {
    this.trail.push(point);
    if (this.trail.length > 400) this.trail.shift();
  }

  addSwept(point) {
    this.swept = this.swept.filter(({ rate }) => rate !== point.rate);
    this.swept.push(point);
    this.swept.sort((a, b) => a.rate - b.rate);
  }

  draw({ live, capacity, settings, colours }) {
    const context = this.surface.begin();
    const { width, height } = this.surface;
    const ages = [...this.trail, ...this.swept, ...this.before, ...(live ? [live] : [])].map((point) => point.age);
    const lowest = Math.min(settings.delay_ms / 1000, ...ages) * 0.8;
    const highest = Math.min(60, Math.max(lowest * 12, ...ages) * 1.25);
    const part = (value, min, max) => Math.log(value / min) / Math.log(max / min);
    const across = (rate) => EDGE.left + part(rate, ...this.range) * (width - EDGE.left - EDGE.right);
    const down = (age) => height - EDGE.bottom - part(age, lowest, highest) * (height - EDGE.bottom - EDGE.top);
    for (const age of logTicks(lowest * 1000, highest * 1000)) {
      rule(context, colours, EDGE.left, down(age / 1000), width - EDGE.right);
      text(context, colours, number0(age), EDGE.left - 8, down(age / 1000), { align: "right" });
    }
    for (const rate of logTicks(...this.range)) {
      text(context, colours, `${rate}`, across(rate), height - 10, { align: "center" });
    }
    if (settings.cross_traffic === "none") this.capacity(context, colours, capacity, across);
    curve(context, this.before, across, down, { stroke: colours.muted, alpha: 0.4, dash: [4, 4] });
    curve(context, this.swept, across, down, { stroke: colours.muted, alpha: 1, dash: [] });
    for (const point of this.swept) dot(context, across(point.rate), down(point.age), 2.5, colours.muted);
    this.trail.forEach((point, at) => {
      context.globalAlpha = 0.25 + (0.6 * (at + 1)) / this.trail.length;
      dot(context, across(point.rate), down(point.age), 3.5, lawColour(colours, point.law));
    });
    context.globalAlpha = 1;
    if (live) this.live(context, colours, across(live.rate), down(live.age), live);
    this.legend(context, colours, live);
  }

  /** Draws the newest point of each law, below the curve, if there is room. */
  legend(context, colours, live) {
    const newest = new Map([...this.trail, ...(live ? [live] : [])].map((point) => [point.law, point]));
    const { height } = this.surface;
    [...newest.values()].reverse().forEach((point, row) => {
      const y = height - EDGE.bottom - 14 - row * 18;
      dot(context, EDGE.left + 12, y, 4, lawColour(colours, point.law));
      plate(context, colours, `${LAWS[point.law].name}: ${ms(point.age)} at ${number(point.rate)} /s`, EDGE.left + 18, y, point === live);
    });
  }

  capacity(context, colours, rate, across) {
    if (rate < this.range[0] || rate > this.range[1]) return;
    const { height } = this.surface;
    context.strokeStyle = colours.bad;
    context.globalAlpha = 0.7;
    context.lineWidth = 1;
    context.setLineDash([3, 4]);
    context.beginPath();
    context.moveTo(across(rate), EDGE.top);
    context.lineTo(across(rate), height - EDGE.bottom);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    text(context, colours, "capacity", across(rate) - 5, EDGE.top + 6, { align: "right", size: 11, colour: colours.bad });
  }

  live(context, colours, x, y, live) {
    const colour = lawColour(colours, live.law);
    context.globalAlpha = 0.22;
    dot(context, x, y, 12, colour);
    context.globalAlpha = 1;
    dot(context, x, y, 6, colour);
  }
}

/** Each law has the colour of one source. */
function lawColour(colours, law) {
  return colours.sources[Object.keys(LAWS).indexOf(law)];
}

const number0 = (value) => `${+value.toPrecision(3)}`;

function rule(context, colours, left, y, right) {
  context.strokeStyle = colours.grid;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(left, Math.round(y) + 0.5);
  context.lineTo(right, Math.round(y) + 0.5);
  context.stroke();
}

function dot(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function curve(context, points, across, down, { stroke, alpha, dash }) {
  if (points.length < 2) return;
  context.strokeStyle = stroke;
  context.globalAlpha = alpha;
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.setLineDash(dash);
  context.beginPath();
  for (const point of points) context.lineTo(across(point.rate), down(point.age));
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** A text on a plate of its own, so that lines behind it do not cross it. */
function plate(context, colours, content, x, y, isStrong) {
  const weight = isStrong ? 620 : 400;
  context.font = `${weight} 12px ${colours.sans}`;
  context.fillStyle = colours.panel;
  context.globalAlpha = 0.85;
  box(context, x, y - 9, context.measureText(content).width + 10, 18, 5);
  context.fill();
  context.globalAlpha = 1;
  text(context, colours, content, x + 4, y + 0.5, { colour: isStrong ? colours.ink : colours.muted, weight });
}
