// The controls: the settings, their ranges and their texts.

/** The first settings; the names of the fields are those of `Settings` in crates/wasm. */
export const DEFAULTS = Object.freeze({
  seed: 1, sources: 3, bottleneck_kbit: 1000, delay_ms: 50, jitter_ms: 0, loss: 0,
  law: "fixed", rate: 15, queue: "fifo", cross_traffic: "none",
});

export const LAWS = {
  fixed: { name: "Fixed", hint: "A constant rate, whatever the path does. Find the best one by hand." },
  lazy: { name: "Lazy", hint: "One update per round trip: it never fills a queue, and leaves capacity unused." },
  tenth: { name: "Tenth", hint: "Holds the number of its queued updates at about a tenth. Sources pause together now and then." },
  "acp+d": { name: "ACP+D", hint: "The default law: ACP+ with the backlog that each update met as it left, and losses bridged." },
  "acp+": { name: "ACP+", hint: "As published: seeks the rate at which the mean age is smallest, by backlog and age." },
  acp: { name: "ACP", hint: "The predecessor of ACP+, with epochs as long as ten round trips." },
};

export const QUEUES = {
  fifo: { name: "Drop-tail", hint: "First in, first out, 100 packets. A packet that meets a full queue is dropped." },
  lifo: { name: "Newest first", hint: "The newest packet goes first, and old ones wait behind it." },
  fq_codel: { name: "FQ-CoDel", hint: "A queue for each flow, served in turns; CoDel keeps each of them short." },
  ifc: { name: "IFC", hint: "Freshness control: a newer update replaces the queued one of its source." },
};

const kbit = (value) => (value >= 1000 ? `${(value / 1000).toPrecision(3)} Mbit/s` : `${value} kbit/s`);

const SLIDERS = [
  { field: "rate", label: "Rate of each source", min: 1, max: 300, log: true, round: 3, text: (v) => `${v} /s`, at: "law" },
  { field: "sources", label: "Number of sources", min: 1, max: 8, round: 1, text: (v) => `${v}`, at: "law", whole: true },
  { field: "bottleneck_kbit", label: "Rate of the bottleneck", min: 100, max: 10000, log: true, round: 2, text: kbit, at: "path" },
  { field: "delay_ms", label: "Delay, one way", min: 2, max: 300, log: true, round: 2, text: (v) => `${v} ms`, at: "path" },
  { field: "jitter_ms", label: "Jitter", min: 0, max: 100, square: true, text: (v) => `± ${v} ms`, at: "path" },
  { field: "loss", label: "Loss", min: 0, max: 0.3, square: true, text: (v) => `${+(v * 100).toPrecision(2)} %`, at: "path" },
];
const STEPS = 600;

function valueAt(slider, position) {
  const x = position / STEPS;
  if (slider.whole) return Math.round(slider.min + x * (slider.max - slider.min));
  if (slider.log) return +(slider.min * (slider.max / slider.min) ** x).toPrecision(slider.round);
  return +(slider.min + x * x * (slider.max - slider.min)).toPrecision(2);
}

function positionOf(slider, value) {
  const x = slider.log
    ? Math.log(value / slider.min) / Math.log(slider.max / slider.min)
    : (value - slider.min) / (slider.max - slider.min);
  return Math.round(STEPS * (slider.square ? Math.sqrt(x) : x));
}

/** Jitter is at most the delay behind the bottleneck, four fifths of the whole. */
export function within(settings) {
  const jitter_ms = Math.min(settings.jitter_ms, Math.floor(settings.delay_ms * 80) / 100);
  return { ...settings, jitter_ms };
}

/** Settings from the part of the address after `#`; unreadable settings keep their defaults. */
export function fromAddress(hash) {
  const settings = { ...DEFAULTS };
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  for (const slider of SLIDERS) {
    const value = given.has(slider.field) ? Number(given.get(slider.field)) : NaN;
    if (value >= slider.min && value <= slider.max) {
      settings[slider.field] = slider.whole || slider.field === "bottleneck_kbit" ? Math.round(value) : value;
    }
  }
  if (Object.hasOwn(LAWS, given.get("law"))) settings.law = given.get("law");
  if (Object.hasOwn(QUEUES, given.get("queue"))) settings.queue = given.get("queue");
  if (["none", "tcp"].includes(given.get("cross_traffic"))) settings.cross_traffic = given.get("cross_traffic");
  return within(settings);
}

/** The part of an address after `#` for these settings, without the defaults. */
export function toAddress(settings) {
  const other = Object.entries(settings).filter(([field, value]) => DEFAULTS[field] !== value);
  return other.length ? `#${new URLSearchParams(other)}` : "#";
}

const element = (tag, fields, ...children) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
};

/** Builds the controls. `onChange` gets the settings of each change. */
export class Controls {
  constructor(settings, onChange) {
    this.settings = settings;
    this.onChange = onChange;
    this.sliders = new Map();
    this.choices = { law: LAWS, queue: QUEUES };
    for (const [field, list] of Object.entries(this.choices)) {
      const group = document.getElementById(field);
      for (const [value, { name }] of Object.entries(list)) {
        const input = element("input", { type: "radio", name: field, value });
        input.addEventListener("change", () => this.set({ [field]: value }));
        group.append(element("label", {}, input, element("span", { textContent: name })));
      }
    }
    for (const slider of SLIDERS) this.addSlider(slider);
    this.cross = document.getElementById("cross");
    this.cross.addEventListener("change", () => this.set({ cross_traffic: this.cross.checked ? "tcp" : "none" }));
    document.getElementById("defaults").addEventListener("click", () => this.set(DEFAULTS));
    document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
    this.show();
  }

  addSlider(slider) {
    const id = `slider-${slider.field}`;
    const max = slider.whole ? slider.max : STEPS;
    const input = element("input", { type: "range", id, min: slider.whole ? slider.min : 0, max, step: 1 });
    const output = element("output", {});
    output.setAttribute("for", id);
    const label = element("label", { textContent: slider.label, htmlFor: id });
    const row = element("div", { className: "slider" }, label, output, input);
    input.addEventListener("input", () => {
      const value = slider.whole ? Number(input.value) : valueAt(slider, Number(input.value));
      const law = slider.field === "rate" ? { law: "fixed" } : {};
      this.set({ [slider.field]: value, ...law });
    });
    document.getElementById(`sliders-${slider.at}`).append(row);
    this.sliders.set(slider.field, { slider, input, output, row });
  }

  /** Changes some of the settings. */
  set(changes) {
    this.settings = within({ ...this.settings, ...changes });
    this.show();
    this.onChange(this.settings);
  }

  show() {
    const { settings } = this;
    for (const [field, { slider, input, output, row }] of this.sliders) {
      const value = settings[field];
      const position = slider.whole ? value : positionOf(slider, value);
      // A dragged slider keeps its position, which has a finer resolution than the value.
      if (document.activeElement !== input || valueAt(slider, Number(input.value)) !== value) input.value = position;
      output.textContent = slider.text(value);
      input.setAttribute("aria-valuetext", slider.text(value));
      row.classList.toggle("idle", field === "rate" && settings.law !== "fixed");
    }
    for (const [field, list] of Object.entries(this.choices)) {
      for (const input of document.getElementsByName(field)) input.checked = input.value === settings[field];
      document.getElementById(`${field}-hint`).textContent = list[settings[field]].hint;
    }
    this.cross.checked = settings.cross_traffic === "tcp";
  }
}
