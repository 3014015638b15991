/** Simulated sources, with all kinds of payloads that a page must show, and names that must not become markup. */

import { deflateSync } from "node:zlib";

/** Names and payloads that try to become markup, or to confuse. */
export const HOSTILE = {
  source: "<img src=x onerror=globalThis.injected=1>",
  topic: "\u202eevil\u0007",
  payload: "line one\nbell \u0007, escape \u001b[31m, bidi \u202egnp.exe, nul \u0000, <script>globalThis.injected=1</script>",
};

const KINDS = ["pose", "battery", "camera", "log", "cloud"];

/** A series: the time and the content of its next state. */
class Simulated {
  constructor(id, source, topic, key, rate, kind) {
    Object.assign(this, { id, source, topic, key, rate, kind });
    this.nextAt = Math.random() * (1000 / rate);
    this.count = 0;
    this.delay = 4 + Math.random() * 20;
  }

  /** ms from generation to the gateway. */
  age() {
    return this.delay * (0.6 + 0.8 * Math.random()) + (Math.random() < 0.03 ? 60 * Math.random() : 0);
  }

  state() {
    this.count += 1;
    const phase = this.count / (this.rate * 4);
    switch (this.kind) {
      case "battery":
        return text(`${(80 + 15 * Math.sin(phase)).toFixed(1)} %`);
      case "camera":
        return picture(this.count);
      case "log":
        return text(HOSTILE.payload);
      case "status":
        return text(JSON.stringify(statusOf(this.count)));
      case "cloud":
        return Uint8Array.from({ length: 96 }, (_, at) => (at * 37 + this.count) & 255);
      default:
        return text(
          JSON.stringify({
            frame: this.count,
            position: [Math.cos(phase), Math.sin(phase), 0.25].map((it) => Number(it.toFixed(3))),
            heading: Number(((phase * 57.3) % 360).toFixed(1)),
            mode: "auto",
          }),
        );
    }
  }
}

/** The status of a law over two paths, as `freshline source --status` sends it; the second path has a hostile name. */
function statusOf(count) {
  const path = { monitor: "192.0.2.7:3774", state: "live", share: 0.5, updates_per_s: 40, srtt_ms: 31.5, one_way_delay_ms: 14, lost: 2, silences: 0 };
  const law = { law: "tenth", phase: "steering", rate: 80.5, limited_by: null, srtt_ms: 31.5, rtt_min_ms: 28, backlog_mean: 2.4 };
  const paths = [{ ...path, via: "wlan0" }, { ...path, via: "<b>wwan0\u202e", state: "silent" }];
  return { ...law, sent: count, acked: count - 1, late_acks: 0, opened: 1, paths };
}

const text = (it) => new TextEncoder().encode(it);

/**
 * Makes sources with topics.
 * @param {{sources: number, topics: number, rate: number, plain?: boolean}} options  `rate`: states per second of a
 *   series; `plain`: only small states, and no hostile source
 */
export function simulate({ sources, topics, rate, plain = false }) {
  const all = [];
  for (let at = 0; at < sources; at++) {
    for (let topic = 0; topic < topics; topic++) {
      const kind = plain ? "pose" : KINDS[topic % KINDS.length];
      const own = kind === "camera" ? Math.min(rate, 2) : plain ? rate : rate * [1, 0.25, 1, 0.5, 0.5][topic % 5];
      const key = !plain && kind === "cloud" ? `lidar ${at % 3}` : undefined;
      const name = topic === 0 || (!plain && topic < KINDS.length) ? kind : `${kind}-${topic}`;
      all.push(new Simulated(all.length, `robot-${String(at).padStart(2, "0")}`, name, key, own, kind));
    }
  }
  if (!plain) all.push(new Simulated(all.length, "robot-02", "freshline.status", undefined, 0.5, "status"));
  if (!plain) all.push(new Simulated(all.length, HOSTILE.source, HOSTILE.topic, undefined, 2, "log"));
  return all;
}

/** A PNG of 48 × 32 pixels: a bar that moves. */
function picture(count) {
  const [width, height] = [48, 32];
  const rows = Buffer.alloc((width * 3 + 1) * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const isBar = (x + count * 2) % width < 8;
      rows.set(isBar ? [240, 180, 60] : [30 + 2 * y, 60 + y, 90 + 2 * x], y * (width * 3 + 1) + 1 + x * 3);
    }
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const chunks = [chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))];
  return new Uint8Array(Buffer.concat([signature, ...chunks]));
}

function chunk(name, content) {
  const body = Buffer.concat([Buffer.from(name, "latin1"), content]);
  const framed = Buffer.alloc(8);
  framed.writeUInt32BE(content.length, 0);
  framed.writeUInt32BE(crc(body), 4);
  return Buffer.concat([framed.subarray(0, 4), body, framed.subarray(4)]);
}

function crc(bytes) {
  let it = 0xffffffff;
  for (const byte of bytes) {
    it ^= byte;
    for (let bit = 0; bit < 8; bit++) it = it & 1 ? (it >>> 1) ^ 0xedb88320 : it >>> 1;
  }
  return (it ^ 0xffffffff) >>> 0;
}
