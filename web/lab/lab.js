// The page: one simulation, driven by the frames of the screen, and its drawings.

import init, { Lab } from "./freshline.js";
import { AgeChart, Bowl } from "./charts.js";
import { Controls, fromAddress, toAddress } from "./controls.js";
import { ms, number, palette } from "./draw.js";
import { Stage } from "./stage.js";

const SPEEDS = [[0.02, "1/50"], [0.05, "1/20"], [0.1, "1/10"], [0.25, "1/4"], [1, "real time"], [4, "× 4"]];
/** Real seconds that the chart of ages shows. */
const CHART_S = 16;
/** The maximum step per frame: a page that was in the background does not catch up. */
const LONGEST_FRAME_S = 0.1;
/** Means over less than this much virtual time (in s) are not shown, and are kept only from the second one on. */
const SHOWN_FROM_S = 0.25;
const KEPT_FROM_S = 0.5;
/** Virtual time that passes at once when a simulation begins, so that the charts are full; its second half is measured. */
const AHEAD_S = 2;

const at = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.settings = fromAddress(location.hash);
    this.lab = new Lab(JSON.stringify(this.settings));
    this.speed = 0.1;
    this.newest = [];
    this.stage = new Stage(at("stage"));
    this.ages = new AgeChart(at("ages"));
    this.bowl = new Bowl(at("bowl"), (rate) => this.controls.set({ law: "fixed", rate }));
    this.controls = new Controls(this.settings, (settings) => this.change(settings));
    this.colours = palette();
    this.isPaused = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.frames = 0;
    this.numbersAt = 0;
    this.jobs = 0;
    this.buttons();
    this.tiles = tiles(at("tiles"), ["Mean age", "95 % below", "Rate of each source", "Round trip", "In the queue", "Dropped or lost"]);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours = palette(); });
    this.skip(AHEAD_S);
    this.readNumbers(0);
    this.showToml();
    requestAnimationFrame((time) => this.frame(time, time));
  }

  buttons() {
    const speed = at("speed");
    for (const [value, label] of SPEEDS) speed.add(new Option(label, value, value === this.speed, value === this.speed));
    speed.addEventListener("change", () => { this.speed = Number(speed.value); });
    at("pause").addEventListener("click", () => this.pause(!this.isPaused));
    at("skip").addEventListener("click", () => this.skip(10));
    at("restart").addEventListener("click", () => this.restart());
    at("sweep").addEventListener("click", () => this.sweep());
    at("clear").addEventListener("click", () => this.bowl.clear());
    at("copy").addEventListener("click", () => this.copy());
    at("run").addEventListener("click", () => this.runWhole());
    document.addEventListener("keydown", (event) => {
      if (event.code === "Space" && !event.target.closest("button, input, select, summary, pre")) {
        event.preventDefault();
        this.pause(!this.isPaused);
      }
    });
    this.pause(this.isPaused);
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    at("pause").textContent = isPaused ? "Run" : "Pause";
  }

  /** The controls have changed. */
  change(settings) {
    const before = this.settings;
    this.keepPoint();
    const hasRestarted = this.lab.set(JSON.stringify(settings));
    this.settings = settings;
    const conditions = ["sources", "bottleneck_kbit", "delay_ms", "jitter_ms", "loss", "queue", "cross_traffic"];
    if (conditions.some((field) => before[field] !== settings[field])) {
      this.bowl.conditionsChanged();
      this.stopWorker();
    }
    if (hasRestarted) {
      this.ages.clear();
      this.skip(AHEAD_S);
    } else if (settings.law === "fixed" && before.rate !== settings.rate) {
      this.compute(settings.rate);
    }
    this.readNumbers(performance.now());
    this.showToml();
    clearTimeout(this.addressLater);
    this.addressLater = setTimeout(() => history.replaceState(null, "", toAddress(settings)), 300);
  }

  restart() {
    this.keepPoint();
    this.lab.free();
    this.lab = new Lab(JSON.stringify(this.settings));
    this.ages.clear();
    this.readNumbers(performance.now());
  }

  /** Runs on without drawing, and measures the second half. */
  skip(seconds) {
    this.lab.advance(seconds / 2, this.step());
    this.lab.beginMeasuring();
    this.lab.advance(seconds / 2, this.step());
    this.takeAges();
    // Packets that were dropped meanwhile are not animated.
    this.lab.drops();
    this.readNumbers(performance.now());
  }

  span() {
    return CHART_S * this.speed;
  }

  step() {
    return Math.max(this.span() / 1600, 1e-4);
  }

  takeAges() {
    const { sources } = this.settings;
    const ages = this.lab.takeAges();
    this.ages.add(ages, sources);
    if (ages.length > sources) this.newest = ages.subarray(ages.length - sources);
  }

  frame(time, before) {
    requestAnimationFrame((next) => this.frame(next, time));
    const seconds = Math.min(LONGEST_FRAME_S, Math.max(0, (time - before) / 1000));
    if (!this.isPaused && seconds > 0) {
      this.lab.advance(seconds * this.speed, this.step());
      this.takeAges();
    }
    if (time - this.numbersAt > 200) this.readNumbers(time);
    this.draw(this.isPaused ? 0 : seconds);
    this.frames += 1;
  }

  draw(seconds) {
    const { lab, settings, colours } = this;
    const now = lab.now;
    at("clock").textContent = now.toFixed(2);
    this.stage.draw({ packets: lab.packets(), ages: this.newest, ageMax: this.ages.max, drops: lab.drops(), settings, colours, seconds });
    const mean = this.point?.age;
    this.ages.draw({ now, span: this.span(), sources: settings.sources, mean, colours });
    this.bowl.draw({ live: this.point, capacity: lab.capacity, settings, colours });
  }

  /** Reads the measurements since the last change. */
  readNumbers(time) {
    this.numbersAt = time;
    const numbers = JSON.parse(this.lab.numbers());
    const mean = (field) => {
      const known = numbers.sources.map((source) => source[field]).filter((value) => value !== null);
      return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
    };
    const [age, p95, rtt, rate, dropped] = ["age_mean_s", "age_p95_s", "rtt_mean_s", "updates_per_s", "dropped"].map(mean);
    this.measured = numbers.measured_s;
    this.point = age > 0 && rate > 0 && this.measured > SHOWN_FROM_S ? { rate, age, law: this.settings.law } : null;
    const packets = this.lab.packets();
    let queued = 0;
    for (let place = 0; place < packets.length; place += 3) queued += packets[place] === 1;
    const show = [age === null ? null : ms(age), p95 === null ? null : ms(p95), `${number(mean("law_rate"))} /s`,
      rtt === null ? null : ms(rtt), queued === 1 ? "1 packet" : `${queued} packets`,
      dropped === null ? null : `${number(dropped * 100)} %`];
    show.forEach((value, tile) => showValue(this.tiles[tile], value));
    this.explain({ rate, rtt, dropped, queued });
  }

  /** Stores the mean of the run so far as a point of the curve. */
  keepPoint() {
    this.readNumbers(performance.now());
    if (this.point && this.measured > KEPT_FROM_S) this.bowl.keep(this.point);
  }

  explain({ rate, rtt, dropped, queued }) {
    const words = insight(this.settings, { rate, rtt, dropped, queued, measured: this.measured, capacity: this.lab.capacity });
    if (at("insight").textContent !== words) at("insight").textContent = words;
  }

  showToml() {
    at("toml").textContent = this.lab.toml();
    at("document").hidden = true;
  }

  async copy() {
    await navigator.clipboard.writeText(at("toml").textContent);
    at("copy").textContent = "Copied";
    setTimeout(() => { at("copy").textContent = "Copy the scenario"; }, 1500);
  }

  /** Gives the worker a job; `onMessage` gets its answers until another kind of job replaces it. */
  startWorker(job, onMessage) {
    this.worker ??= new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.jobs += 1;
    const id = this.jobs;
    this.worker.onmessage = ({ data }) => {
      if (data.id !== this.jobs) return;
      if (data.failure) fail(new Error(data.failure));
      onMessage(data);
    };
    this.worker.postMessage({ ...job, id });
  }

  /** Later answers are ignored. */
  stopWorker() {
    this.jobs += 1;
    this.isComputing = false;
    this.pending = null;
    at("sweep").disabled = false;
    at("run").disabled = false;
  }

  sweep() {
    this.stopWorker();
    at("sweep").disabled = true;
    const rates = Array.from({ length: 31 }, (_, step) => +(300 ** (step / 30)).toPrecision(3));
    this.bowl.swept = [];
    this.startWorker({ settings: this.settings, rates }, ({ point, done, failure }) => {
      if (point) this.bowl.addSwept(point);
      if (done || failure) this.stopWorker();
    });
  }

  /** Adds the mean age at a rate that the dragged slider passes. Of several rates, only the last is computed. */
  compute(rate) {
    if (at("sweep").disabled || at("run").disabled) return;
    if (this.isComputing) {
      this.pending = rate;
      return;
    }
    this.isComputing = true;
    this.startWorker({ settings: this.settings, rates: [rate] }, ({ point, done, failure }) => {
      if (point) this.bowl.addSwept(point);
      if (!done && !failure) return;
      const { pending } = this;
      this.stopWorker();
      if (pending) this.compute(pending);
    });
  }

  runWhole() {
    this.stopWorker();
    at("run").disabled = true;
    this.startWorker({ toml: at("toml").textContent, seed: this.settings.seed }, (data) => {
      this.stopWorker();
      at("document").hidden = !data.document;
      at("document").textContent = data.document ?? "";
    });
  }
}

/** A description of the picture in words. */
function insight(settings, { rate, rtt, dropped, queued, measured, capacity }) {
  const base = (2 * settings.delay_ms) / 1000;
  if (measured < SHOWN_FROM_S || rate === null) return "Measuring …";
  const waits = rtt !== null && rtt > 1.5 * base + 0.02;
  const byFlow = settings.queue === "fq_codel" || settings.queue === "ifc";
  if (byFlow && waits) {
    return "Each flow has a queue of its own. Updates wait behind those of their own source, not behind the packets of others: a lower rate would make them younger.";
  }
  if (settings.cross_traffic === "tcp" && waits) {
    return "The download fills the queue, and updates wait behind its packets. FQ-CoDel or IFC lets them pass.";
  }
  if (settings.law === "fixed" && settings.rate > capacity && settings.cross_traffic === "none") {
    return settings.queue === "ifc"
      ? "The sources send more than the bottleneck carries, but newer updates replace queued ones: the age stays low, and the rest is wasted."
      : `The sources send more than the bottleneck carries (${number(capacity)} /s each): the queue grows until it overflows, and every update arrives old.`;
  }
  if (waits) return `${queued} packets are queued, so updates wait before they are sent: a lower rate would make them younger.`;
  if (settings.law === "fixed" && settings.rate < 0.5 * capacity) {
    return "Updates pass without waiting, but are rare: between them the age grows. A higher rate would keep the monitor fresher.";
  }
  if (dropped > 0.02 && settings.loss > 0) return "Lost updates leave the monitor with its old state until the next one arrives.";
  if (dropped > 0.02 && settings.queue === "ifc") return "Newer updates replace queued ones of the same source, so the updates that arrive are fresh.";
  if (settings.law === "fixed") return "Close to the best rate: updates are frequent, and hardly any of them waits.";
  return `The law sends ${number(rate)} updates/s per source: it found that rate from the acknowledgements alone, and follows when you change the path.`;
}

function tiles(list, names) {
  return names.map((name) => {
    const tile = document.createElement("div");
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    tile.append(term, value);
    list.append(tile);
    return value;
  });
}

function showValue(tile, value) {
  const [amount, ...unit] = (value ?? "–").split(" ");
  const small = document.createElement("small");
  small.textContent = unit.join(" ");
  tile.replaceChildren(amount, small);
}

function fail(error) {
  at("failure").hidden = false;
  at("failure").textContent = `The simulation cannot run: ${error.message ?? error}`;
}

init().then(() => {
  const page = new Page();
  // For tests: the progress of the page and its simulation.
  window.freshlineLab = { get frames() { return page.frames; }, get now() { return page.lab.now; }, get settings() { return page.settings; } };
}, fail);
