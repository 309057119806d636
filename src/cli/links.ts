import type { Links, StartedBy } from "../links/links.ts";
import { columns, oneLine, paint, print } from "./output.ts";

const kinds: Readonly<Record<StartedBy["what"], string>> = {
  session: "a turn of session",
  run: "run",
  task: "task",
  follow_up: "the failure of task",
  schedule: "schedule",
};

/** The line that tells what started a task or run, if anything did. */
export function startedByFacts({ startedBy }: Pick<Links, "startedBy">): [string, string][] {
  if (startedBy === null) return [];
  const { what, id, atMs } = startedBy;
  // A server of a later release may know more kinds.
  const kind = kinds[what] ?? oneLine(what, 40);
  return [["started by", `${kind} ${oneLine(id, 200)}, ${new Date(atMs).toISOString()}`]];
}

/** Prints the copies of a task that were run. */
export function printCopies({ copies }: Pick<Links, "copies">): void {
  if (copies.length === 0) return;
  print("\ncopies");
  print(
    columns(
      copies.map(({ taskId, name, status }) => [
        `  ${oneLine(taskId, 100)}`,
        oneLine(name ?? "gone", 60),
        oneLine(status ?? "", 20),
      ]),
    ),
  );
}

/** Prints the tasks and runs that were started. */
export function printStarted({ started, hasMore }: Pick<Links, "started" | "hasMore">): void {
  if (started.length === 0) return;
  print("\nstarted");
  print(
    columns(
      started.map(({ taskId, name, status, what, atMs }) => [
        `  ${oneLine(taskId, 100)}`,
        oneLine(name ?? "gone", 60),
        oneLine(status ?? "", 20),
        paint("dim", what === "follow_up" ? "after its failure" : ""),
        paint("dim", new Date(atMs).toISOString()),
      ]),
    ),
  );
  if (hasMore) print(paint("dim", "  and more"));
}
