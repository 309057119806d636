import { openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { monotonicMs } from "../ledger.ts";

/**
 * What the pods of a test report that they did with runs, kept outside the store. It is written synchronously, so
 * that a killed process has reported everything up to its death.
 */
export type Report = { readonly atMs: number; readonly pod: string } & NewReport;

export type NewReport =
  /** A function of a flow was called, or has ended; `value` is what it came to. */
  | ({ readonly event: "start" } & Called)
  | ({ readonly event: "end"; readonly ok: boolean; readonly value: string } & Called)
  /** One more write of a run was stored, with these events. */
  | {
      readonly event: "stored";
      readonly key: string;
      readonly runId: string;
      readonly events: readonly string[];
    }
  /** A write was refused, because another pod has the run. */
  | { readonly event: "lost"; readonly key: string; readonly runId: string }
  /** A run was given back as it was. */
  | {
      readonly event: "released";
      readonly key: string;
      readonly runId: string;
      readonly why: string;
    }
  /** A run goes no further in this process. */
  | { readonly event: "halted"; readonly key: string; readonly runId: string };

export type Called = {
  /** Which run it is, by a name that means the same in every process. */
  readonly key: string;
  readonly runId: string;
  readonly flow: string;
  readonly transition: string;
  readonly attempt: number;
  readonly version: number;
};

export function openReports(path: string, pod: () => string): (report: NewReport) => void {
  // In append mode each line goes to the end in one piece.
  const file = openSync(path, "a");
  return (report) =>
    void writeSync(file, `${JSON.stringify({ atMs: monotonicMs(), pod: pod(), ...report })}\n`);
}

/** What all processes reported, in order of time. A line that a kill has torn was never reported. */
export function readReports(folder: string): Report[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".reports"));
  const all = files.flatMap((name) => {
    const lines = readFileSync(join(folder, name), "utf8").split("\n");
    lines.pop();
    return lines.map((line) => JSON.parse(line) as Report);
  });
  return all.toSorted((a, b) => a.atMs - b.atMs);
}

export function callsIn(reports: readonly Report[]) {
  return reports.filter((each) => each.event === "start");
}
