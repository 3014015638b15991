// Whole runs, apart from the page that draws: the sweep of the rates, and the document of a scenario.

import init, { pointOfSweep, run } from "./freshline.js";

const ready = init();

self.addEventListener("message", async ({ data }) => {
  const { id } = data;
  try {
    await ready;
    if (data.toml) {
      self.postMessage({ id, document: run("page", data.toml, BigInt(data.seed)) });
      return;
    }
    for (const rate of data.rates) {
      self.postMessage({ id, point: { rate, age: pointOfSweep(JSON.stringify(data.settings), rate) } });
    }
    self.postMessage({ id, done: true });
  } catch (error) {
    self.postMessage({ id, failure: String(error.message ?? error) });
  }
});
