/** All mutations, and copies of the source that have one. */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { archiveMutations } from "./archive/mutations.ts";
import { beatMutations } from "./beats/mutations.ts";
import { flowMutations } from "./flows/mutations.ts";
import { forkMutations } from "./forks/mutations.ts";
import { markers } from "./kinds.ts";
import { type Edit, type Mutation } from "./mutation.ts";
import { mutations } from "./mutation-list.ts";
import { sessionMutations } from "./sessions/mutations.ts";
import { streamMutations } from "./streams/mutations.ts";
import { throttleMutations } from "./throttles/mutations.ts";

export const allMutations: readonly Mutation[] = [
  ...mutations,
  ...throttleMutations,
  ...flowMutations,
  ...sessionMutations,
  ...forkMutations,
  ...streamMutations,
  ...archiveMutations,
  ...beatMutations,
];

export const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Which edits of a mutation don't fit: each text must be in the source exactly once, and what the simulation
 * tells writes by must stay, because a copy without it can't be loaded.
 */
export function misfits({ edits }: Mutation): string[] {
  return edits.flatMap(({ file, find, put }) => {
    const times = readFileSync(join(root, file), "utf8").split(find).length - 1;
    const lost = markersIn(find).filter((each) => !markersIn(put).includes(each));
    return [
      ...(times === 1 ? [] : [`${file} holds this ${times} times, not once: ${find}`]),
      ...lost.map((each) => `the simulation tells a write by this: ${each}`),
    ];
  });
}

function markersIn(source: string): string[] {
  const template = source.replaceAll(/\$\{[^}]*\}/g, "?");
  return markers.filter((each) => template.includes(each));
}

/** What a run of seeds needs of the repository. */
const simulationParts = ["src", "test/simulation", "package.json"];

/** A copy of the source with these edits, and the program in it that runs seeds. */
export function copyWith(
  edits: readonly Edit[],
  parts: readonly string[] = simulationParts,
): { folder: string; program: string; [Symbol.dispose](): void } {
  const copy = mkdtempSync(join(tmpdir(), "flotilla-mutation-"));
  for (const part of parts) {
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
    folder: copy,
    program: join(copy, "test/simulation/seeds-process.ts"),
    [Symbol.dispose]: () => rmSync(copy, { recursive: true, force: true }),
  };
}
