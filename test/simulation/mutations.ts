/**
 * `npm run test:mutations`: takes out one fence at a time, in a copy of the source, and lets the
 * simulation look for what that breaks. A fence whose loss nobody notices is either not needed or
 * not tested; either way the script fails. First every seed of the suite is run twice on the source
 * as it is, and must do the same both times.
 *
 * Names of mutations as arguments run only those.
 */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Hunted } from "./hunt.ts";
import { flowMutations } from "./flows/mutations.ts";
import { type Edit, mutations } from "./mutation-list.ts";
import { sessionMutations } from "./sessions/mutations.ts";
import { throttleMutations } from "./throttles/mutations.ts";

const seedLimit = 2_000;
/** How many seeds are run twice. Those of throttles have up to 32 pods, and take longer. */
const sameTwice = { tasks: 500, throttles: 100, flows: 200, sessions: 100 };
const root = fileURLToPath(new URL("../..", import.meta.url));

const wanted = process.argv.slice(2);
const all = [...mutations, ...throttleMutations, ...flowMutations, ...sessionMutations];
const chosen = all.filter(
  ({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)),
);
let missed = 0;

const scenarios = wanted.length === 0 ? Object.keys(sameTwice) : [];
for (const scenario of scenarios as (keyof typeof sameTwice)[]) {
  const to = sameTwice[scenario];
  const { found, differing } = await hunt([], { to, twice: true, scenario });
  const shown = found ? `${found.invariant} at seed ${found.seed}` : "nothing violated";
  row(
    `${scenario} as they are, ${to} seeds twice`,
    differing === undefined ? "same" : `${differing}`,
    shown,
  );
  if (found || differing !== undefined) missed++;
}
for (const { name, edits, by, scenario } of chosen) {
  const { found } = await hunt(edits, { to: seedLimit, twice: false, by, scenario });
  if (!found) missed++;
  row(
    name,
    found ? `seed ${found.seed}` : "NOT FOUND",
    found ? `${found.invariant}: ${found.what}` : "",
  );
}
process.exitCode = missed > 0 ? 1 : 0;

function row(...cells: [string, string, string]): void {
  const [first, second, third] = cells;
  console.log(`${first.padEnd(56)} ${second.padEnd(10)} ${third}`);
}

type HuntOptions = {
  to: number;
  twice: boolean;
  by?: string | undefined;
  scenario?: string | undefined;
};

/** Runs seeds on a changed copy of the source, in a process of its own. */
async function hunt(
  edits: readonly Edit[],
  { to, twice, by = "", scenario = "tasks" }: HuntOptions,
): Promise<Hunted> {
  const copy = mkdtempSync(join(tmpdir(), "flotilla-mutation-"));
  try {
    for (const part of ["src", "test/simulation", "package.json"]) {
      cpSync(join(root, part), join(copy, part), { recursive: true });
    }
    symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
    for (const edit of edits) change(copy, edit);
    const script = join(copy, "test/simulation/hunt.ts");
    const args = [
      "--conditions=flotilla:source",
      script,
      "1",
      `${to}`,
      twice ? "twice" : "once",
      by,
      scenario,
    ];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    for await (const chunk of child.stdout) output += String(chunk);
    return JSON.parse(output) as Hunted;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function change(copy: string, { file, find, put }: Edit): void {
  const path = join(copy, file);
  const before = readFileSync(path, "utf8");
  const times = before.split(find).length - 1;
  if (times !== 1) throw new Error(`${file} holds this ${times} times, not once: ${find}`);
  writeFileSync(
    path,
    before.replace(find, () => put),
  );
}
