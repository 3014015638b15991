// Shared by all canvases: their size in pixels, colours and numbers.

const NAMES = ["bg", "panel", "edge", "ink", "muted", "grid", "accent", "bad", "tube", "slot", "tcp"];

/** The colours of the style sheet in the system's current colour scheme. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = Object.fromEntries(NAMES.map((name) => [name, of(name)]));
  colours.sources = Array.from({ length: 8 }, (_, source) => of(`s${source}`));
  colours.sans = of("sans");
  return colours;
}

/** A canvas that is as fine as the screen: draw in CSS pixels within `width` and `height`. */
export class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.measure();
    new ResizeObserver(() => this.measure()).observe(canvas);
  }

  measure() {
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
  }

  /** An empty canvas. */
  begin() {
    const { canvas, context, width, height } = this;
    const scale = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }
}

/** A time in s as a number of ms with its unit. */
export const ms = (seconds) => `${number(seconds * 1000)} ms`;

/** A number with three significant digits. */
export function number(value) {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** Round values between two, of about that count. */
export function ticks(min, max, count) {
  const raw = (max - min) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const all = [];
  for (let value = Math.ceil(min / step) * step; value <= max + step * 1e-9; value += step) all.push(value);
  return all;
}

/** 1, 2 and 5 times the powers of ten between two values. */
export function logTicks(min, max) {
  const all = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += 1) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= min * 0.999 && value <= max * 1.001) all.push(value);
    }
  }
  return all;
}

export function text(context, colours, content, x, y, { colour = colours.muted, size = 12, weight = 400, align = "left", base = "middle" } = {}) {
  context.font = `${weight} ${size}px ${colours.sans}`;
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = base;
  context.fillText(content, x, y);
}

export function box(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}
