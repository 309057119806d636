import type { Command } from "commander";
import { FlotillaError } from "../base/errors.ts";
import { groupVersion } from "../dead-letters/fingerprint.ts";
import type { Selection } from "../dead-letters/redrive.ts";
import type { StoreFlags } from "./flags.ts";

/** Flags of commands that are about some failed tasks. */
export type SelectFlags = StoreFlags & { json?: true; name?: string; all?: true };

export function withSelection(command: Command): Command {
  return command
    .option("--name <name>", "all failed tasks of this name")
    .option("--all", "all failed tasks");
}

/** What a command is about: a group and a task are told apart by how they look. */
export function selectionOf(given: string | undefined, { name, all }: SelectFlags): Selection {
  const named = [given, name, all].filter((each) => each !== undefined);
  if (named.length !== 1) {
    throw new FlotillaError("invalid_option", "name a group, a task, --name <name> or --all: one");
  }
  if (given === undefined) return name === undefined ? { all: true } : { name };
  return isGroup(given) ? { group: given } : { taskId: given };
}

/** Whether a group is meant rather than a task. What was shortened or misspelt finds neither. */
export function isGroup(given: string): boolean {
  if (groupVersion(given) !== undefined) return true;
  if (!/^g\d+-/i.test(given)) return false;
  throw new FlotillaError(
    "invalid_option",
    `${JSON.stringify(given.slice(0, 40))} is no whole group id, which is like g1-79ef601d010c6cb2: \`flotilla dlq list\` shows those there are`,
  );
}
