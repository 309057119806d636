import { describe, expect, test } from "vitest";
import { type Evidence, promises, type TaskRow, violations } from "./checkers.ts";
import type { Entry } from "../ledger.ts";
import {
  type ProducerEvidence,
  producerPromises,
  producerViolations,
} from "./producer-checkers.ts";
import type { Transition } from "../witness.ts";

const run = { task: "t", name: "work", token: 1, attempt: 1 };
const hello: Entry = { event: "hello", atMs: 0, pod: "a", pid: 1, names: ["work"] };
const start: Entry = { event: "start", atMs: 20, pod: "a", ...run };
const end: Entry = { event: "end", ok: true, atMs: 30, pod: "a", ...run };
const claim: Transition = {
  seq: 1,
  atMs: 10,
  task: "t",
  from: "pending",
  to: "claimed",
  fromToken: 0,
  toToken: 1,
  fromPod: null,
  toPod: "a",
  deaths: 0,
  failures: 0,
  result: null,
};
const completion: Transition = {
  ...claim,
  seq: 2,
  atMs: 40,
  from: "claimed",
  to: "completed",
  fromToken: 1,
  fromPod: "a",
  result: { pod: "a", token: 1 },
};
const recovery: Transition = {
  ...completion,
  to: "pending",
  toPod: null,
  deaths: 1,
  result: null,
};
const row: TaskRow = {
  task: "t",
  name: "work",
  key: null,
  status: "completed",
  token: 1,
  failures: 0,
  deaths: 0,
  maxAttempts: null,
  error: null,
};
const good: ProducerEvidence = {
  rows: [row],
  transitions: [claim, completion],
  ledger: [hello, start, end],
  faults: [],
  deadAfterMs: 500,
  history: [
    { kind: "enqueue", type: "ok", askedMs: 1, toldMs: 5, tasks: ["t"] },
    { kind: "wait", type: "ok", askedMs: 6, toldMs: 50, tasks: ["t"], said: { token: 1 } },
  ],
  snapshots: [{ ackedBefore: 1, byStatus: { completed: 1 } }],
};

test("evidence of a task that went well speaks against nothing", () => {
  expect([...violations(good), ...producerViolations(good)]).toEqual([]);
});

const planted: Record<string, Partial<Evidence>[]> = {
  T2: [
    { transitions: [claim, { ...completion, toToken: 0 }] },
    { ledger: [hello, start, start, end] },
    { ledger: [hello, { ...start, token: 2 }] },
    { transitions: [claim, { ...completion, to: "claimed", from: "completed", toToken: 2 }] },
  ],
  T3: [
    { transitions: [claim, { ...completion, toToken: 2 }] },
    { ledger: [hello, start, { ...end, ok: false }] },
  ],
  T4: [
    { transitions: [claim, completion, { ...recovery, from: "completed", seq: 3 }] },
    { ledger: [hello, start, end, { ...start, atMs: 1_000, token: 2 }] },
  ],
  T5: [
    { transitions: [claim, recovery, { ...recovery, seq: 3, deaths: 2 }] },
    { transitions: [claim, { ...recovery, from: "pending" }] },
  ],
  T6: [
    { rows: [{ ...row, failures: 4 }] },
    { rows: [{ ...row, status: "failed", deaths: 5 }] },
    { rows: [{ ...row, status: "failed", deaths: 2, error: `{"code":"pod_died"}` }] },
  ],
  T7: [{ rows: [{ ...row, status: "claimed" }] }, { rows: [{ ...row, status: "pending" }] }],
  T8: [
    { transitions: [claim, recovery] },
    {
      transitions: [claim, recovery],
      ledger: [...good.ledger, { event: "gap", atMs: 50, pod: "a", gapMs: 300, lateMs: 0 }],
    },
    {
      transitions: [claim, recovery],
      faults: [{ kind: "pause", podId: "b", fromMs: 0, toMs: 600 }],
    },
  ],
  T9: [{ ledger: [...good.ledger, { ...hello, pid: 2 }] }],
  T14: [{ ledger: [{ ...hello, names: [] }, start, end] }],
  T15: [{ rows: [{ ...row, after: ["u"] }] }],
};

const plantedForProducers: Record<string, Partial<ProducerEvidence>[]> = {
  T1: [
    { rows: [] },
    { rows: [row, { ...row, task: "phantom" }] },
    {
      rows: [row, { ...row, task: "u" }],
      history: ["t", "u"].map((task) => ({ ...good.history[0]!, key: "k", tasks: [task] })),
    },
  ],
  T4: [
    { rows: [{ ...row, status: "failed" }] },
    { rows: [{ ...row, token: 2 }] },
    { ledger: [hello, start, end, { ...start, atMs: 60, token: 2 }] },
  ],
  T10: [{ snapshots: [{ ackedBefore: 2, byStatus: { completed: 1 } }] }],
  T13: [
    { rows: ["due-0", "due-2"].map((key) => ({ ...row, name: "due", key })) },
    { rows: ["due-0", "due-0"].map((key) => ({ ...row, name: "due", key })) },
    { rows: [{ ...row, name: "due", key: "due-0", status: "failed" }] },
  ],
  T11: [
    { history: [{ ...good.history[0]!, delayMs: 100 }] },
    { ledger: [hello, { ...start, atMs: 100_000 }] },
    {
      ledger: [hello, start, { ...end, ok: false }, { ...start, token: 2, attempt: 2, atMs: 40 }],
    },
  ],
};

describe.each([
  ...cases(Object.keys(promises), planted, (part) => violations({ ...good, ...part })),
  ...cases(Object.keys(producerPromises), plantedForProducers, (part) =>
    producerViolations({ ...good, ...part }),
  ),
])("$promise", ({ found }) => {
  test("is seen to be broken where it is", () => {
    expect(found.length).toBeGreaterThan(0);
    expect(found).not.toContain("nothing");
  });
});

/** Each promise with what its own checker says of each planted break, or that it says nothing. */
function cases<Part>(
  known: readonly string[],
  plants: Record<string, Part[]>,
  judge: (part: Part) => string[],
) {
  return known.map((promise) => {
    const number = /^T\d+/.exec(promise)![0];
    const found = (plants[number] ?? []).map(
      (part) => judge(part).find((violation) => violation.startsWith(promise)) ?? "nothing",
    );
    return { promise, found };
  });
}

test("a task that was taken from a pod that was paused, dead or without beats is no violation", () => {
  const taken = { ...good, transitions: [claim, recovery], rows: [] };
  const explained: Partial<Evidence>[] = [
    { faults: [{ kind: "pause", podId: "a", fromMs: 0, toMs: 600 }] },
    { faults: [{ kind: "exit", podId: "a", fromMs: 0, toMs: Infinity }] },
    { ledger: [...good.ledger, { event: "gap", atMs: 50, pod: "a", gapMs: 600, lateMs: 0 }] },
    {
      ledger: [...good.ledger, { event: "gap", atMs: 2_050, pod: "a", gapMs: 600, lateMs: 2_000 }],
    },
  ];
  expect(explained.flatMap((part) => violations({ ...taken, ...part }))).toEqual([]);
});
