import { execFile } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { built } from "./built.ts";

const program = built.program(fileURLToPath(new URL("ids-process.ts", import.meta.url)));
const run = promisify(execFile);
const each = 125_000;

async function fromProcess(): Promise<string[]> {
  const { stdout } = await run(process.execPath, [program, String(each)], {
    maxBuffer: 64 * 1_048_576,
  });
  return stdout.split("\n");
}

const fourAtOnce = () => Promise.all(Array.from({ length: 4 }, fromProcess));

test("a million ids of eight processes are unique, and sort by when they were made", async () => {
  const earlier = await fourAtOnce();
  const later = await fourAtOnce();
  const all = [...earlier, ...later];
  expect(all.map((ids) => ids.length)).toEqual(Array.from({ length: 8 }).fill(each));
  expect(new Set(all.flat()).size).toBe(8 * each);
  for (const ids of all) {
    const stray = ids.findIndex((id, at) => at > 0 && id <= ids[at - 1]!);
    expect(stray).toBe(-1);
  }
  // What these processes made before others were started sorts before all of theirs.
  const last = earlier
    .map((ids) => ids.at(-1)!)
    .toSorted()
    .at(-1)!;
  const first = later.map((ids) => ids[0]!).toSorted()[0]!;
  expect(last < first).toBe(true);
});
