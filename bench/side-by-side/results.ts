import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import type { Measure } from "../report.ts";
import type { Work } from "./figures.ts";
import type { About } from "./open.ts";

/** What is kept of runs: every round of every system, so that tables and pictures can be made of it. */
export type Results = About & { readonly works: readonly SavedWork[] };

/** All rounds of one kind of work are of one run; other kinds may be of another. */
export type SavedWork = Work & { readonly day: string; readonly commit: string };

/** The file that results are kept in, by what was measured on what. */
export type ResultsName =
  | "tasks-postgres"
  | "flows-postgres"
  | "flows-sqlite"
  | "steps-postgres"
  | "steps-sqlite"
  | "sessions-postgres"
  | "sessions-sqlite"
  | "agents-postgres"
  | "agents-sqlite"
  | "server-postgres"
  | "server-sqlite"
  | "cluster-postgres";

/** A measure of ours that no other system has, as it was saved. */
export type SavedMeasure = Measure & { readonly day: string; readonly commit: string };
export type MeasuresName =
  | "tasks-sqlite"
  | "tasks-postgres-alone"
  | "dashboard-sqlite"
  | "dashboard-postgres"
  // Of a store with ten times as many rows.
  | "dashboard-sqlite-large"
  | "dashboard-postgres-large";

function pathOf(name: ResultsName | MeasuresName): string {
  return fileURLToPath(new URL(`../results/${name}.json`, import.meta.url));
}

/** Keeps what this run has found, in place of what an earlier one found of the same work. */
export function saveResults(
  works: readonly Work[],
  about: About,
  name: ResultsName = "tasks-postgres",
): void {
  const before = findResults(name);
  const now = { day: today(), commit: commitNow() };
  const kept = (before?.works ?? []).filter(
    ({ metric }) => !works.some((work) => work.metric === metric),
  );
  const results: Results = {
    machine: about.machine,
    servers: { ...before?.servers, ...about.servers },
    systems: { ...before?.systems, ...about.systems },
    works: [...kept, ...works.map((work) => ({ ...rounded(work), ...now }))],
  };
  write(name, results);
}

/** Keeps measures of ours, in place of earlier ones of the same name. */
export function saveMeasures(measures: readonly Measure[], name: MeasuresName): void {
  const now = { day: today(), commit: commitNow() };
  const kept = findMeasures(name).filter(
    ({ metric }) => !measures.some((measure) => measure.metric === metric),
  );
  write(name, [...kept, ...measures.map((measure) => ({ ...measure, ...now }))]);
}

export function findMeasures(name: MeasuresName): readonly SavedMeasure[] {
  const path = pathOf(name);
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as SavedMeasure[]) : [];
}

function write(name: ResultsName | MeasuresName, results: unknown): void {
  const path = pathOf(name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(results, null, 2)}\n`);
}

export function findResults(name: ResultsName): Results | undefined {
  const path = pathOf(name);
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Results) : undefined;
}

export function loadResults(): Results {
  const results = findResults("tasks-postgres");
  if (!results) {
    throw new Error(
      "there are no results yet: run `npm run bench -- tasks --store postgres --save`",
    );
  }
  return results;
}

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

function commitNow(): string {
  const asked = spawnSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" });
  return asked.status === 0 ? asked.stdout.trim() : "no commit";
}

function rounded(work: Work): Work {
  const figures = Object.entries(work.figures).map(([key, rounds]) => [
    key,
    rounds.map((figure) => ({ ...figure, value: Number(figure.value.toPrecision(5)) })),
  ]);
  return { ...work, figures: Object.fromEntries(figures) };
}
