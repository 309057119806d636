import type { Evidence } from "./checkers.ts";
import { dueKey } from "../handlers.ts";
import type { Operation } from "../history.ts";
import { startsIn } from "../ledger.ts";

/** How many tasks there were at one moment, beside how many were known to be stored around it. */
export type Snapshot = {
  readonly ackedBefore: number;
  readonly byStatus: Readonly<Record<string, number>>;
};

export type ProducerEvidence = Evidence & {
  readonly history: readonly Operation[];
  readonly snapshots: readonly Snapshot[];
};

// Clocks of the store and of processes are read to the millisecond.
const roundingMs = 2;
const backoffMs = 50;
const longestWaitMs = 60_000;

export const producerPromises: Readonly<Record<string, (evidence: ProducerEvidence) => string[]>> =
  {
    "T1: what was acked is there, and one key is one task": ackedIsThere,
    "T10: at every moment the tasks are pending, claimed or ended": everyTaskCounted,
    "T11: nothing runs before its time, and nothing waits for ever": onTime,
    "T13: a schedule has one task for each due time, and leaves none out": everyDueTimeOnce,
    "T4: what was waited for has ended for good": waitsTellTheEnd,
  };

export function producerViolations(evidence: ProducerEvidence): string[] {
  return Object.entries(producerPromises).flatMap(([promise, check]) =>
    check(evidence)
      .slice(0, 5)
      .map((violation) => `${promise}: ${violation}`),
  );
}

function ackedIsThere({ history, rows }: ProducerEvidence): string[] {
  const there = new Set(rows.map(({ task }) => task));
  const enqueued = history.filter(({ kind }) => kind === "enqueue");
  const acked = enqueued.filter(({ type }) => type === "ok");
  const lost = acked.flatMap(({ tasks }) =>
    tasks.filter((task) => !there.has(task)).map((task) => `${task} was acked and is gone`),
  );
  const byKey = new Map<string, Set<string>>();
  for (const { key, tasks } of acked) {
    if (key !== undefined) byKey.set(key, new Set([...(byKey.get(key) ?? []), ...tasks]));
  }
  const doubled = [...byKey]
    .filter(([, tasks]) => tasks.size > 1)
    .map(([key, tasks]) => `${key} names ${[...tasks].join(" and ")}`);
  const told = new Set(acked.flatMap(({ tasks }) => tasks));
  // A schedule's tasks are asked for by the pods themselves.
  const nobodys = rows.filter(({ task, name }) => name !== "due" && !told.has(task));
  const unknown = enqueued.filter(({ type }) => type === "unknown").length;
  const phantoms =
    nobodys.length > unknown
      ? nobodys.map(({ task }) => `${task} is there, but nobody asked for it`)
      : [];
  return [...lost, ...doubled, ...phantoms];
}

function everyDueTimeOnce({ rows }: ProducerEvidence): string[] {
  const dues = rows.filter(({ name }) => name === "due");
  const byKey = new Map(dues.map((row) => [row.key, row]));
  const doubled = dues.filter((row) => byKey.get(row.key) !== row);
  const left = dues.map((_, at) => dueKey(at)).filter((key) => !byKey.has(key));
  const undone = dues.filter(({ status }) => status !== "completed");
  return [
    ...doubled.map(({ key }) => `${key} has two tasks`),
    ...(doubled.length === 0 ? left.map((key) => `${key} was left out`) : []),
    ...undone.map(({ key, status }) => `${key} is ${status}`),
  ];
}

function everyTaskCounted({ snapshots }: ProducerEvidence): string[] {
  return snapshots.flatMap(({ ackedBefore, byStatus }) => {
    const counted = Object.values(byStatus).reduce((sum, count) => sum + count, 0);
    return counted < ackedBefore ? [`${ackedBefore} were acked, ${counted} are there`] : [];
  });
}

function onTime({ history, ledger }: ProducerEvidence): string[] {
  const wrong: string[] = [];
  const starts = startsIn(ledger);
  const firstMs = new Map(starts.toReversed().map(({ task, atMs }) => [task, atMs]));
  for (const { kind, type, tasks, askedMs, toldMs, delayMs = 0, key } of history) {
    if (kind !== "enqueue" || type !== "ok" || key !== undefined) continue;
    for (const task of tasks) {
      const startMs = firstMs.get(task);
      if (startMs === undefined) continue;
      const early = askedMs + delayMs - roundingMs - startMs;
      if (early > 0) wrong.push(`${task} ran ${early} ms before its time`);
      const waited = startMs - toldMs - delayMs;
      if (waited > longestWaitMs) wrong.push(`${task} waited ${waited} ms`);
    }
  }
  const failedMs = new Map<string, number>();
  for (const entry of ledger) {
    if (entry.event === "end" && !entry.ok) {
      failedMs.set(`${entry.task} ${entry.attempt}`, entry.atMs);
    }
    if (entry.event !== "start") continue;
    const before = failedMs.get(`${entry.task} ${entry.attempt - 1}`);
    if (before !== undefined && entry.atMs < before + backoffMs - roundingMs) {
      wrong.push(`${entry.task} was tried again after ${entry.atMs - before} ms`);
    }
  }
  return wrong;
}

function waitsTellTheEnd({ history, rows, ledger }: ProducerEvidence): string[] {
  const byTask = new Map(rows.map((row) => [row.task, row]));
  const starts = startsIn(ledger);
  return history.flatMap(({ kind, type, tasks: [task], said }) => {
    if (kind !== "wait" || type !== "ok") return [];
    const { token } = said as { token: number };
    const row = byTask.get(task!);
    if (row?.status !== "completed" || row.token !== token) {
      return [
        `${task} was said to be completed by ${token}, and is ${row?.status} by ${row?.token}`,
      ];
    }
    // A start with an older token is a pod waking up over a claim that it has lost: judged elsewhere.
    const again = starts.some((start) => start.task === task && start.token > token);
    return again ? [`${task} ran again after its result was given`] : [];
  });
}
