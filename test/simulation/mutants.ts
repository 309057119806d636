/** All mutations, and copies of the source that have one. */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { flowMutations } from "./flows/mutations.ts";
import { type Edit, type Mutation, mutations } from "./mutation-list.ts";
import { sessionMutations } from "./sessions/mutations.ts";
import { throttleMutations } from "./throttles/mutations.ts";

export const allMutations: readonly Mutation[] = [
  ...mutations,
  ...throttleMutations,
  ...flowMutations,
  ...sessionMutations,
];

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Which edits of a mutation don't fit the source any more: each text must be there exactly once. */
export function misfits({ edits }: Mutation): string[] {
  return edits.flatMap(({ file, find }) => {
    const times = readFileSync(join(root, file), "utf8").split(find).length - 1;
    return times === 1 ? [] : [`${file} holds this ${times} times, not once: ${find}`];
  });
}

/** A copy of the source with these edits. */
export function copyWith(edits: readonly Edit[]): { program: string; [Symbol.dispose](): void } {
  const copy = mkdtempSync(join(tmpdir(), "flotilla-mutation-"));
  for (const part of ["src", "test/simulation", "package.json"]) {
    cpSync(join(root, part), join(copy, part), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  for (const { file, find, put } of edits) {
    const path = join(copy, file);
    const text = readFileSync(path, "utf8");
    writeFileSync(
      path,
      text.replace(find, () => put),
    );
  }
  return {
    program: join(copy, "test/simulation/seeds-process.ts"),
    [Symbol.dispose]: () => rmSync(copy, { recursive: true, force: true }),
  };
}
