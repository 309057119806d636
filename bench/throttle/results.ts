import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { type Row, sameRound } from "./rows.ts";

/** What is kept of the last full run, for the tables of the documentation. */
export type Results = {
  readonly day: string;
  readonly commit: string;
  readonly contenders: Readonly<Record<string, string>>;
  readonly costUs: number | undefined;
  readonly rows: readonly Row[];
};

const path = fileURLToPath(new URL("../results/throttle.json", import.meta.url));

/** Keeps what was found, beside what earlier runs found in rounds that weren't played this time. */
export function saveThrottle(found: Omit<Results, "day" | "commit">): void {
  const day = new Date().toISOString().slice(0, 10);
  const asked = spawnSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" });
  const commit = asked.status === 0 ? asked.stdout.trim() : "no commit";
  const { rows: played, ...about } = found;
  const before = (loadThrottle()?.rows ?? []).filter(
    (row) => !played.some((each) => same(each, row)),
  );
  const rows = [...played, ...before];
  const head = JSON.stringify({ day, commit, ...about }, null, 2).slice(0, -2);
  // One line for each row, so that a change of one can be seen.
  const lines = rows.map((row) => `    ${JSON.stringify(row, rounded)}`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${head},\n  "rows": [\n${lines.join(",\n")}\n  ]\n}\n`);
}

export function loadThrottle(): Results | undefined {
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Results) : undefined;
}

function same(a: Row, b: Row): boolean {
  return a.contender === b.contender && sameRound(a, b);
}

function rounded(_key: string, value: unknown): unknown {
  return typeof value === "number" ? Number(value.toPrecision(5)) : value;
}
