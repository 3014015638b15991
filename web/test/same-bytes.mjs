// Runs scenarios in WebAssembly: reads [{"name": …, "toml": …, "seed": …}, …] from standard input, and writes the documents as a
// list of texts to standard output.
//
//     node web/test/same-bytes.mjs FOLDER      where FOLDER has freshline.js and freshline_bg.wasm

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const folder = resolve(process.argv[2]);
const { initSync, run } = await import(pathToFileURL(`${folder}/freshline.js`));
initSync({ module: readFileSync(`${folder}/freshline_bg.wasm`) });
const scenarios = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(scenarios.map(({ name, toml, seed }) => run(name, toml, BigInt(seed)))));
