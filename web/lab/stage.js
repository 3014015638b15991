// The journey: sources, queue, bottleneck, line and monitor, with their packets.

import { QUEUES } from "./controls.js";
import { Surface, box, ms, text } from "./draw.js";

// In the order of `Spot` in crates/wasm.
const [ACCESS, QUEUE, TRANSMISSION, LINE, RETURN_LINE] = [0, 1, 2, 3, 4];
const ROWS = 5;
const COLUMNS = 20;
const FALL_S = 0.9;

/** The sources and, if there is one, the TCP stream after them. */
const flowsOf = (settings) => settings.sources + (settings.cross_traffic === "tcp" ? 1 : 0);

const lerp = (from, to, fraction) => from + (to - from) * fraction;
const smooth = (x) => x * x * (3 - 2 * x);

export class Stage {
  constructor(canvas) {
    this.surface = new Surface(canvas);
    this.falling = [];
    this.shown = 0;
  }

  /** The place of each part, for the current size of the canvas. */
  layout(settings) {
    const { width, height } = this.surface;
    const top = 26;
    const bottom = height - 42;
    const middle = (top + bottom) / 2;
    const isSmall = width < 620;
    const left = Math.max(18, width * 0.045);
    const queue = { x: width * (isSmall ? 0.17 : 0.2), right: width * 0.44, y: middle - 56, height: 112 };
    const sources = flowsOf(settings);
    const gap = Math.min(34, (bottom - top - 20) / sources);
    const source = (number) => ({ x: left, y: middle + (number - (sources - 1) / 2) * gap });
    const monitorWidth = isSmall ? 76 : Math.max(116, Math.min(176, width * 0.15));
    const monitor = { x: width - monitorWidth - 4, width: monitorWidth, y: top - 6, height: bottom - top + 12 };
    return { width, height, isSmall, middle, queue, source, monitor, gap, back: height - 18, send: { x: queue.right, right: width * (isSmall ? 0.56 : 0.52) } };
  }

  draw({ packets, ages, ageMax, drops, settings, colours, seconds }) {
    const context = this.surface.begin();
    const places = this.layout(settings);
    if (places.width < 10) return;
    const byFlow = settings.queue === "fq_codel" || settings.queue === "ifc";
    const grouped = this.group(packets, settings);
    this.backdrop(context, colours, settings, places);
    this.queue(context, colours, settings, places, grouped.queued, byFlow);
    this.monitor(context, colours, settings, places, ages, ageMax);
    this.moving(context, colours, settings, places, grouped.moving);
    this.sources(context, colours, settings, places, grouped);
    this.drops(context, colours, places, drops, seconds);
  }

  group(packets, settings) {
    const queued = [];
    const moving = [];
    const leaving = new Array(settings.sources + 1).fill(0);
    for (let at = 0; at < packets.length; at += 3) {
      const [spot, fraction, flow] = [packets[at], packets[at + 1], packets[at + 2]];
      if (spot === QUEUE) queued.push(flow);
      else moving.push({ spot, fraction, flow });
      if (spot === ACCESS && fraction < 0.3) leaving[flow] = Math.max(leaving[flow], 1 - fraction / 0.3);
    }
    return { queued, moving, leaving };
  }

  colour(colours, settings, flow) {
    return flow >= settings.sources ? colours.tcp : colours.sources[flow];
  }

  backdrop(context, colours, settings, places) {
    const { middle, queue, monitor, send, back, source, isSmall } = places;
    context.lineCap = "round";
    context.lineWidth = 1.5;
    context.strokeStyle = colours.edge;
    for (let number = 0; number < flowsOf(settings); number += 1) {
      const from = source(number);
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.bezierCurveTo(lerp(from.x, queue.x, 0.55), from.y, lerp(from.x, queue.x, 0.45), middle, queue.x, middle);
      context.stroke();
    }
    // The reverse path.
    context.setLineDash([2, 5]);
    context.beginPath();
    context.moveTo(monitor.x + monitor.width / 2, monitor.y + monitor.height);
    context.quadraticCurveTo(monitor.x + monitor.width / 2, back, monitor.x - 10, back);
    context.lineTo(source(0).x + 46, back);
    context.quadraticCurveTo(source(0).x, back, source(0).x, source(flowsOf(settings) - 1).y + 16);
    context.stroke();
    context.setLineDash([]);
    // The neck, and the line behind it.
    context.fillStyle = colours.tube;
    context.beginPath();
    context.moveTo(send.x, queue.y + 6);
    context.bezierCurveTo(lerp(send.x, send.right, 0.35), queue.y + 6, lerp(send.x, send.right, 0.1), middle - 12, lerp(send.x, send.right, 0.4), middle - 12);
    context.lineTo(send.right, middle - 12);
    context.lineTo(send.right, middle + 12);
    context.lineTo(lerp(send.x, send.right, 0.4), middle + 12);
    context.bezierCurveTo(lerp(send.x, send.right, 0.1), middle + 12, lerp(send.x, send.right, 0.35), queue.y + queue.height - 6, send.x, queue.y + queue.height - 6);
    context.fill();
    box(context, send.right, middle - 22, monitor.x - send.right, 44, 8);
    context.fill();
    const label = { align: "center", size: 12 };
    const rate = settings.bottleneck_kbit;
    const shown = rate >= 1000 ? `${+(rate / 1000).toPrecision(3)} Mbit/s` : `${rate} kbit/s`;
    text(context, colours, shown, isSmall ? send.right + 2 : lerp(send.x, send.right, 0.62), isSmall ? middle + 36 : middle - 26, { ...label, weight: 620, colour: colours.ink });
    const line = [`${+settings.delay_ms.toPrecision(3)} ms`];
    if (settings.jitter_ms > 0 && !isSmall) line.push(`± ${settings.jitter_ms} ms`);
    if (settings.loss > 0 && !isSmall) line.push(`${+(settings.loss * 100).toPrecision(2)} % lost`);
    text(context, colours, line.join(", "), (send.right + monitor.x) / 2, middle - 36, label);
    text(context, colours, "acknowledgements", (send.right + queue.x) / 2, back - 11, label);
    text(context, colours, "Sources", 4, 9, { weight: 600 });
    text(context, colours, QUEUES[settings.queue].name, queue.x, queue.y - 14, { weight: 600 });
  }

  queue(context, colours, settings, places, queued, byFlow) {
    const { queue } = places;
    const width = queue.right - queue.x;
    // The number is smoothed, as it would flicker with each packet.
    this.shown += (queued.length - this.shown) * 0.12;
    const count = Math.round(this.shown);
    const below = places.isSmall ? queue.y + queue.height + 13 : queue.y - 14;
    text(context, colours, count === 1 ? "1 packet" : `${count} packets`, queue.right, below, { align: "right" });
    context.fillStyle = colours.panel;
    context.strokeStyle = colours.edge;
    context.lineWidth = 1.5;
    box(context, queue.x, queue.y, width, queue.height, 10);
    context.fill();
    context.stroke();
    const flows = flowsOf(settings);
    const rows = byFlow ? flows : ROWS;
    const inner = { x: queue.x + 7, y: queue.y + 7, width: width - 14, height: queue.height - 14 };
    const [across, down] = [inner.width / COLUMNS, inner.height / rows];
    const size = { width: Math.max(2, across - 2), height: Math.max(3, Math.min(down - 3, 18)) };
    const cell = (row, column) => [
      inner.x + inner.width - (column + 1) * across + 1,
      inner.y + row * down + (down - size.height) / 2,
    ];
    context.fillStyle = colours.slot;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < COLUMNS; column += 1) {
        box(context, ...cell(row, column), size.width, size.height, 2);
        context.fill();
      }
    }
    const filled = new Array(flows).fill(0);
    const order = settings.queue === "lifo" ? queued.toReversed() : queued;
    order.forEach((flow, number) => {
      const [row, column] = byFlow ? [flow, filled[flow]] : [number % ROWS, Math.floor(number / ROWS)];
      filled[flow] += 1;
      if (column >= COLUMNS) return;
      context.fillStyle = this.colour(colours, settings, flow);
      box(context, ...cell(row, column), size.width, size.height, 2);
      context.fill();
    });
    if (!byFlow) return;
    filled.forEach((count, flow) => {
      if (count > COLUMNS) {
        text(context, colours, `+${count - COLUMNS}`, inner.x + 2, inner.y + (flow + 0.5) * down, { size: 11, weight: 600, colour: colours.ink });
      }
    });
  }

  moving(context, colours, settings, places, moving) {
    const { middle, queue, monitor, send, back, source } = places;
    const flows = settings.sources;
    const lane = (flow) => (flows < 2 || flow >= flows ? 0 : (flow / (flows - 1) - 0.5) * 22);
    for (const { spot, fraction, flow } of moving) {
      context.fillStyle = this.colour(colours, settings, flow);
      if (spot === ACCESS) {
        const from = source(flow);
        packet(context, lerp(from.x, queue.x, fraction), lerp(from.y, middle, smooth(fraction)));
      } else if (spot === TRANSMISSION) {
        const start = lerp(send.x, send.right, 0.36);
        const width = send.right - start - 4;
        context.globalAlpha = 0.3;
        box(context, start, middle - 7, width, 14, 7);
        context.fill();
        context.globalAlpha = 1;
        box(context, start, middle - 7, Math.max(14, width * fraction), 14, 7);
        context.fill();
      } else if (spot === LINE) {
        packet(context, lerp(send.right, monitor.x, fraction), middle + lane(flow));
      } else {
        if (flow >= flows) continue;
        context.globalAlpha = 0.85;
        const turn = monitor.x + monitor.width / 2;
        const x = spot === RETURN_LINE ? lerp(turn, queue.x, fraction) : lerp(queue.x, source(0).x + 20, fraction);
        const y = spot === RETURN_LINE && fraction < 0.12 ? lerp(monitor.y + monitor.height, back, Math.sqrt(fraction / 0.12)) : back;
        context.beginPath();
        context.arc(x, y, 3, 0, 2 * Math.PI);
        context.fill();
        context.globalAlpha = 1;
      }
    }
  }

  sources(context, colours, settings, places, { leaving }) {
    const radius = Math.max(6, Math.min(12, places.gap / 2 - 3));
    for (let number = 0; number < flowsOf(settings); number += 1) {
      const { x, y } = places.source(number);
      context.fillStyle = this.colour(colours, settings, number);
      context.globalAlpha = 0.25 * leaving[number];
      context.beginPath();
      context.arc(x, y, radius + 7 * leaving[number], 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      const name = number < settings.sources ? `${number + 1}` : "TCP";
      if (radius > 8) text(context, colours, name, x, y + 0.5, { align: "center", size: number < settings.sources ? 11 : 8.5, weight: 700, colour: colours.panel });
    }
  }

  monitor(context, colours, settings, places, ages, ageMax) {
    const { monitor, isSmall } = places;
    text(context, colours, isSmall ? "Age now" : "Monitor: age now", monitor.x, 9, { weight: 600 });
    context.fillStyle = colours.panel;
    context.strokeStyle = colours.edge;
    context.lineWidth = 1.5;
    box(context, monitor.x, monitor.y, monitor.width, monitor.height, 10);
    context.fill();
    context.stroke();
    const down = Math.min(40, (monitor.height - 12) / settings.sources);
    const first = monitor.y + (monitor.height - down * settings.sources) / 2;
    const inset = isSmall ? 7 : 12;
    const width = monitor.width - 2 * inset;
    for (let number = 0; number < settings.sources; number += 1) {
      const age = ages[number] ?? 0;
      const y = first + down * (number + 0.5);
      const thin = down < 26 && !isSmall;
      const height = down < 26 && isSmall ? 4 : 7;
      const bar = thin ? y - 3 : y + (down < 26 ? 6 : 4);
      context.fillStyle = colours.slot;
      box(context, monitor.x + inset, bar, thin ? width - 58 : width, height, height / 2);
      context.fill();
      context.fillStyle = colours.sources[number];
      const whole = thin ? width - 58 : width;
      box(context, monitor.x + inset, bar, Math.max(height, whole * Math.min(1, age / ageMax)), height, height / 2);
      context.fill();
      text(context, colours, ms(age), monitor.x + inset + width, thin ? y : y - 6, { align: "right", weight: 620, colour: colours.ink, size: down < 26 ? 11 : 12 });
      if (!thin && !isSmall) text(context, colours, `Source ${number + 1}`, monitor.x + inset, y - 6, { size: 12 });
    }
  }

  drops(context, colours, { queue, middle, send }, [full, replaced, lost], seconds) {
    const add = (count, fields) => {
      for (let one = 0; one < Math.min(count, 6) && this.falling.length < 30; one += 1) {
        this.falling.push({ age: one * 0.03, push: (Math.random() - 0.5) * 46, ...fields });
      }
    };
    add(full, { x: queue.x - 2, y: middle, fill: true });
    add(replaced, { x: queue.right - 30, y: queue.y + queue.height, fill: false });
    add(lost, { x: send.right + 14, y: middle + 12, fill: true });
    this.falling = this.falling.filter((drop) => drop.age < FALL_S);
    context.lineWidth = 1.5;
    for (const drop of this.falling) {
      drop.age += seconds;
      const part = drop.age / FALL_S;
      context.globalAlpha = Math.max(0, 1 - part);
      context.fillStyle = colours.bad;
      context.strokeStyle = colours.muted;
      box(context, drop.x + drop.push * part - 5, drop.y + 62 * part * part - 3.5, 10, 7, 2);
      if (drop.fill) context.fill();
      else context.stroke();
    }
    context.globalAlpha = 1;
  }
}

function packet(context, x, y) {
  box(context, x - 5.5, y - 4, 11, 8, 2.5);
  context.fill();
}
