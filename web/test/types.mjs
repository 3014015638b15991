/** Checks that client/types is equal to tsc's output for the library; `npm run types` writes it. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const web = new URL("..", import.meta.url).pathname;
const made = mkdtempSync(join(tmpdir(), "freshline-types-"));
try {
  execFileSync("npx", ["tsc", "-p", "client", "--outDir", made], { cwd: web, stdio: "inherit" });
  const kept = join(web, "client", "types");
  const [ours, theirs] = [kept, made].map((folder) => readdirSync(folder).sort());
  const isSame = (name) => readFileSync(join(kept, name), "utf8") === readFileSync(join(made, name), "utf8");
  const wrong = [...new Set([...ours, ...theirs])].filter(
    (name) => !ours.includes(name) || !theirs.includes(name) || !isSame(name),
  );
  if (wrong.length > 0) {
    console.error(`client/types differs from the library in ${wrong.join(", ")}; run \`npm run types\``);
    process.exitCode = 1;
  }
} finally {
  rmSync(made, { recursive: true });
}
