import { openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

/**
 * What pods say they did, kept outside the store that the faults hit: one append-only file per
 * process, written synchronously, so that a killed process has said everything up to its death.
 */
export type Entry = { readonly atMs: number; readonly pod: string } & (
  | { readonly event: "hello"; readonly pid: number; readonly names: readonly string[] }
  | ({ readonly event: "start" | "abort" } & Attempt)
  | ({ readonly event: "end"; readonly ok: boolean } & Attempt)
  /** How far the handler's own transaction is, in which it completes its task. */
  | ({ readonly event: "written" | "committed" } & Attempt)
  /** Two beats of its own were this far apart, and it says so this long after the second one. */
  | { readonly event: "gap"; readonly gapMs: number; readonly lateMs: number }
  | { readonly event: "leading"; readonly leader: string | null }
  | { readonly event: "recovered"; readonly tasks: number }
  | { readonly event: "ended"; readonly outcome: string; readonly name: string }
);

export type Attempt = {
  readonly task: string;
  readonly name: string;
  readonly token: number;
  readonly attempt: number;
};

type Unstamped<Each> = Each extends unknown ? Omit<Each, "atMs" | "pod"> : never;
export type NewEntry = Unstamped<Entry>;

/** Milliseconds that only rise and mean the same in every process of this machine. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000;
}

export function openLedger(path: string, pod: string): (entry: NewEntry) => void {
  // In append mode each line goes to the end in one piece.
  const file = openSync(path, "a");
  return (entry) => {
    writeSync(file, `${JSON.stringify({ atMs: monotonicMs(), pod, ...entry })}\n`);
  };
}

/** What all processes wrote, in order of time. A line that a kill has torn was never said. */
export function readLedgers(folder: string): Entry[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".ledger"));
  const entries = files.flatMap((name) => {
    const lines = readFileSync(join(folder, name), "utf8").split("\n");
    // What follows the last line break is empty, or the line that a kill has torn.
    lines.pop();
    return lines.map((line) => JSON.parse(line) as Entry);
  });
  return entries.toSorted((a, b) => a.atMs - b.atMs);
}

/** The attempts that were started, in order of time. */
export function startsIn(ledger: readonly Entry[], task?: string) {
  return ledger.filter(
    (entry) => entry.event === "start" && (task === undefined || entry.task === task),
  ) as Extract<Entry, { event: "start" | "abort" }>[];
}
