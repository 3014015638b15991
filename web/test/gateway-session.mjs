/**
 * A minimal gateway's end of one session with a browser: over a transport without losses, each newest state is sent
 * once. It has the four topics of the gateway and a key for each series and source.
 */

import { randomBytes } from "node:crypto";
import * as wire from "./wire.mjs";

const TOPICS = ["names", "states", "sources", "link"];
/** The maximum length of an update, in bytes. */
const MAX_UPDATE = 1200;
const SYMBOL = 1000;
/** The clock starts at one year. */
const YEAR = 31_536_000_000_000_000;
const DRIFT = 500e-6;

const now = () => Math.round(performance.now() * 1e6) + YEAR;

/** The sent state of a topic or a key. */
class Slot {
  constructor(number, topic, key) {
    Object.assign(this, { number, topic, key, named: null, isNamed: false });
    this.state = null;
    this.generatedAt = 0;
  }
}

export class GatewaySession {
  constructor(send) {
    this.send = send;
    this.session = randomBytes(8);
    this.seq = 0;
    this.isOpen = false;
    this.slots = new Map();
    this.changed = new Set();
    this.nextNumber = TOPICS.length;
    this.free = [];
    this.removed = [];
    this.offset = null;
    this.offsetAt = 0;
    this.rtt = Infinity;
    this.minRtt = Infinity;
    this.acked = 0;
    TOPICS.forEach((name, number) => this.slots.set(name, new Slot(number, name, null)));
  }

  /** Opens the session; the browser's ack begins it. */
  open() {
    this.#update([], true);
  }

  /** Sets the newest state of a topic, or of a key of it. `age` in ms. */
  set(topic, id, state, age = 0) {
    const place = id === null ? topic : `${topic} ${id}`;
    let slot = this.slots.get(place);
    if (slot === undefined) {
      const number = this.free.shift() ?? this.nextNumber++;
      slot = new Slot(number, topic, Uint8Array.from([id >> 8, id & 255]));
      this.slots.set(place, slot);
    }
    [slot.state, slot.generatedAt] = [state, now() - age * 1e6];
    this.changed.add(slot);
  }

  /** Removes a key. */
  remove(topic, id) {
    const slot = this.slots.get(`${topic} ${id}`);
    if (slot === undefined) return;
    this.slots.delete(`${topic} ${id}`);
    this.changed.delete(slot);
    this.removed.push(slot.number);
  }

  /** Sends all changes. */
  flush() {
    if (!this.isOpen) return;
    let [frames, length] = [[], 0];
    const put = (...more) => {
      const bytes = more.reduce((sum, it) => sum + it.length, 0);
      if (length + bytes > MAX_UPDATE - 40 && length > 0) {
        this.#update(frames);
        [frames, length] = [[], 0];
      }
      frames.push(...more);
      length += bytes;
    };
    for (const number of this.removed.splice(0)) {
      put(wire.removedFrame(number, 0, 0));
      this.free.push(number);
    }
    for (const slot of this.changed) {
      const age = Math.max(now() - slot.generatedAt, 0);
      if (slot.state.length > SYMBOL) {
        if (length > 0) this.#update(frames);
        [frames, length] = [[], 0];
        this.#parts(slot);
      } else if (slot.isNamed) {
        put(wire.stateFrame(slot.number, 0, age, slot.state));
      } else {
        put(this.#name(slot), wire.stateFrame(slot.number, 0, age, slot.state));
      }
    }
    this.changed.clear();
    if (length > 0) this.#update(frames);
  }

  /** A message of the browser has arrived. */
  onMessage(bytes) {
    const ack = wire.parseAck(bytes);
    if (ack === null) return bytes[3] === 4 ? "close" : "";
    const at = now();
    this.acked += 1;
    this.isOpen = true;
    this.rtt = at - ack.sentAt - ack.hold;
    const error = this.rtt / 2 + 500;
    if (this.offset === null || error < this.offset.error + DRIFT * (at - this.offsetAt)) {
      this.offset = { ns: ack.receivedAt - (ack.sentAt + this.rtt / 2), error };
      this.offsetAt = at;
    }
    this.minRtt = Math.min(this.minRtt, this.rtt);
    return "ack";
  }

  /** Ends the session. */
  close() {
    this.send(Uint8Array.from([0x46, 0x4c, 2, 4, ...this.session, 1, 0, 0, 0]));
  }

  /** The name of a topic or a key in the next update, which is the first one with it. */
  #name(slot) {
    slot.isNamed = true;
    return wire.nameFrame(slot.number, slot.topic, slot.key);
  }

  #parts(slot) {
    const name = slot.isNamed ? [] : [this.#name(slot)];
    const first = this.seq;
    const length = slot.state.length;
    for (let index = 0; index * SYMBOL < length; index++) {
      const sentAt = now();
      const symbol = slot.state.subarray(index * SYMBOL, (index + 1) * SYMBOL);
      const age = Math.max(sentAt - slot.generatedAt, 0);
      const part = wire.partFrame(slot.number, this.seq - first, age, { length, symbol: SYMBOL, index }, symbol);
      this.#update(index === 0 ? [...name, part] : [part], false, sentAt);
    }
  }

  #update(frames, opening = false, sentAt = now()) {
    const offset = this.offset;
    const error = offset === null ? 0 : offset.error + DRIFT * (sentAt - this.offsetAt);
    const options = { opening, offset: opening || offset === null ? null : { ns: offset.ns, error } };
    // Under load, every 8th update requests an ack.
    const wantsAck = opening || this.seq < 16 || this.seq % 8 === 0;
    this.send(wire.update(this.session, this.seq++, sentAt, frames, { ...options, wantsAck }));
  }
}
