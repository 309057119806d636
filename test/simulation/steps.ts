/**
 * What the steps of tasks have done outside, and what is stored of that. A step whose end was stored is
 * done, whether its row is still there or the step around it stands for it: no later claim begins it again.
 */
import { parked } from "../../src/tasks/sql/task-state.ts";
import type { Row } from "../../src/store/database.ts";
import type { Noted, TaskState } from "./audit.ts";
import type { Intent } from "./kinds.ts";
import type { World } from "./world.ts";

type Claim = { readonly taskId: string; readonly token: number };

/** One call of a step's function. */
export type StepCall = {
  /** What the step comes to, different for every call. */
  readonly value: string;
  /** How often it was called by now. */
  readonly times: number;
  /** It has done what it does outside. */
  done(): void;
  /** Its function has settled. */
  over(): void;
};

export type StepLedger = {
  /** The function of a step is called. */
  begins(claim: Claim, key: string, options?: { once: boolean }): StepCall;
  /** What the step of this key has done outside, if it came to that. */
  doneOutside(taskId: string, key: string): string | undefined;
  /** A step has returned this to its handler. */
  returned(claim: Claim, key: string, value: unknown): void;
  /** The model of a durable agent has said this, in the step of this key. */
  answered(claim: Claim, key: string, text: string): void;
  /** A tool of a durable agent begins, that the call of this key has asked for. */
  toolBegins(claim: Claim, tool: string, call: string): void;
  /** A model is called within a budget of so many calls, agents within tools included. */
  callBegins(claim: Claim, call: { readonly calls: number; readonly hasTools: boolean }): void;
  /** Judges a write by how tasks stood before it. */
  judge(
    intent: Intent,
    noted: readonly Noted[],
    stateOf: (taskId: string) => TaskState | undefined,
  ): void;
  /** Whether a claim has stored a step. */
  hasStepped(claim: Claim): boolean;
  /** Judges the result of a task that has completed, which names its steps with what they returned. */
  judgeResult(taskId: string, result: string): void;
};

const open = ["claimed", "pending"];

export function createStepLedger(world: World): StepLedger {
  const { violate, count, scheduler, store } = world;
  /** All steps whose end was ever stored. */
  const done = new Map<string, Row>();
  /** The rows that are stored now, of each task. */
  const stored = new Map<string, Map<string, Row>>();
  /** Claims that have stored a step. */
  const stepped = new Set<string>();
  const outside = new Map<string, string>();
  const calls = new Map<string, number>();
  /** How many functions run in a claim. */
  const running = new Map<string, number>();
  /** The steps that have taken signals. */
  const taken = new Map<string, string>();

  const judgeWritten = (before: Row | undefined, after: Row, state: TaskState | undefined) => {
    const { owner_id: taskId, key, token, seq, kind, value } = after;
    const name = nameOf(taskId, key);
    if (state?.token !== token || !open.includes(state!.status)) {
      const at = `${state?.status}@${state?.token}`;
      violate("T17", `${name} of claim ${token} is stored while its task is ${at}`);
    }
    if (before && before["seq"] >= seq) {
      violate("T16", `${name} with number ${seq} takes the place of number ${before["seq"]}`);
    }
    const last = done.get(name);
    const isCopy = last?.["seq"] === seq && last?.["token"] === token && last?.["value"] === value;
    // A write that lands once more, behind the step around it, leaves a row that no attempt asks for.
    if (isCopy && !before) count("step: a late copy of one that was forgotten");
    else if (last) violate("T16", `${name} was ${last["value"]}, and becomes ${kind} ${value}`);
    if (kind === "done") {
      done.set(name, after);
      judgeTaken(taskId, key, value);
    }
    if (before?.["kind"] === "round") count("step: a further round");
    if (before?.["kind"] === "begun") count("step: at most once");
    stepped.add(claimOf({ taskId, token }));
    const ofTask = stored.get(taskId) ?? new Map<string, Row>();
    stored.set(taskId, ofTask.set(key, after));
  };

  /** A signal is taken by one step. */
  const judgeTaken = (taskId: string, key: string, value: string): void => {
    if (!value.startsWith(`"${signalWord} `)) return;
    const name = nameOf(taskId, value);
    const other = taken.get(name);
    if (other !== undefined) violate("T19", `${name} is taken by ${other} and by ${key}`);
    taken.set(name, key);
  };

  /** What is forgotten is within a step that is stored by the same write. */
  const judgeForgotten = (intent: Intent, forgotten: readonly Row[], written: readonly Row[]) => {
    for (const row of forgotten) {
      const { owner_id: taskId, key, kind } = row;
      stored.get(taskId)?.delete(key);
      if (kind === "failed" && ["retry", "redrive_step", "bulk_batch"].includes(intent.kind))
        continue;
      count("step: forgotten");
      const isAround = (each: Row, ...kinds: string[]): boolean =>
        each["owner_id"] === taskId && isWithin(key, each["key"]) && kinds.includes(each["kind"]);
      // A late copy of the write that has stored it takes along what a late copy has left behind.
      const outer =
        written.some((each) => isAround(each, "done", "failed", "round")) ||
        [...(stored.get(taskId)?.values() ?? [])].some((each) => isAround(each, "done", "failed"));
      if (!outer) violate("T16", `${nameOf(taskId, key)} is forgotten before what it is within`);
    }
    for (const { owner_id: taskId, key, kind } of written) {
      if (kind !== "done" && kind !== "round") continue;
      for (const inner of stored.get(taskId)!.keys()) {
        if (isWithin(inner, key)) violate("T16", `${nameOf(taskId, inner)} outlives ${key}`);
      }
    }
  };

  const judgeParked = (intent: Intent, noted: readonly Noted[]): void => {
    for (const { table, before, after } of noted) {
      if (table !== "task" || !after || after["status"] !== "pending") continue;
      const { task_id: taskId, awaits } = after;
      const waits = [parked.untilSignal, parked.untilDue].includes(after["parked"]);
      if (awaits !== null && waits && hasSignal(taskId, awaits)) {
        violate("T19", `${taskId.slice(-6)} is parked though its signal "${awaits}" is there`);
      }
      const finish = intent.rows.find((row) => row["task_id"] === taskId);
      if (intent.kind !== "finish" || before?.["status"] !== "claimed" || !waits) continue;
      // A failure is put off too, and counted.
      if (finish?.["counted"] !== 0) continue;
      count(awaits === null ? "step: parked for a time" : "step: parked for a signal");
      const token = before["claim_token"];
      if ((running.get(claimOf({ taskId, token })) ?? 0) > 0) {
        violate("T19", `${taskId.slice(-6)}@${token} is parked while a step runs`);
      }
    }
  };
  const hasSignal = (taskId: string, awaited: string): boolean => {
    for (const { task_id, name, taken: isTaken } of store.rows("task_signal")) {
      if (task_id === taskId && name === awaited && isTaken === 0) return true;
    }
    return false;
  };

  const countFences = (
    { steps = [] }: Intent,
    written: readonly Row[],
    stateOf: (taskId: string) => TaskState | undefined,
  ): void => {
    for (const row of steps) {
      const isWritten = written.some(
        ({ owner_id, key }) => owner_id === row["task_id"] && key === row["key"],
      );
      if (isWritten) continue;
      const state = stateOf(row["task_id"] as string);
      const fence =
        state?.token !== row["token"] ? "token" : open.includes(state!.status) ? "seq" : "status";
      count(`fence: step, ${fence}`);
    }
  };

  return {
    begins(claim, key, { once } = { once: false }) {
      const name = nameOf(claim.taskId, key);
      const times = (calls.get(name) ?? 0) + 1;
      calls.set(name, times);
      scheduler.note(`step ${name} of claim ${claim.token}, call ${times}`);
      const before = done.get(name);
      // A pod that doesn't know yet that its claim has passed may do what another has done.
      if (before && before["token"] <= claim.token) {
        violate("T16", `${name} begins again in claim ${claim.token}, of ${before["token"]}`);
      }
      if (times > 1) count("step: begun again");
      if (once && times > 1) violate("T18", `${name} is called once more`);
      const row = stored.get(claim.taskId)?.get(key);
      if (once && row?.["kind"] !== "begun") violate("T18", `${name} begins before that is stored`);
      const value = `${key} of ${claim.token}, call ${times}`;
      const add = (more: number) =>
        running.set(claimOf(claim), (running.get(claimOf(claim)) ?? 0) + more);
      add(1);
      return { value, times, done: () => outside.set(name, value), over: () => add(-1) };
    },

    doneOutside(taskId, key) {
      const found = outside.get(nameOf(taskId, key));
      count(found === undefined ? "step: looked, and not found" : "step: looked, and found");
      return found;
    },

    returned({ taskId, token }, key, value) {
      const name = nameOf(taskId, key);
      const row = done.get(name);
      if (row?.["value"] !== JSON.stringify(value)) {
        const is = `${row?.["value"]} is stored`;
        violate("T16", `${name} returned ${JSON.stringify(value)} to claim ${token}, and ${is}`);
      }
      count(row?.["token"] === token ? "step: stored" : "step: answered from the journal");
    },

    answered({ taskId, token }, key, text) {
      const name = nameOf(taskId, key);
      const row = done.get(name);
      if (!row?.["value"].includes(JSON.stringify(text))) {
        violate("T16", `${name} said ${text} to claim ${token}, and ${row?.["value"]} is stored`);
      }
      count(row?.["token"] === token ? "agent: called" : "agent: answered from the journal");
    },

    toolBegins({ taskId, token }, tool, call) {
      if (done.has(nameOf(taskId, call))) return;
      violate("T20", `${nameOf(taskId, tool)} of claim ${token} begins before ${call} is stored`);
    },

    callBegins({ taskId, token }, { calls: most, hasTools }) {
      // What a pod has stored that has the task by now, this one doesn't know.
      const known = [...done.values()].filter(
        (row) => row["owner_id"] === taskId && isCall(row["key"]) && row["token"] <= token,
      );
      const isSpent = known.length >= most;
      if (isSpent) count("agent: its budget is spent");
      if (isSpent !== hasTools) return;
      const what = `has ${hasTools ? "" : "no "}tools, and ${known.length} of ${most} calls are stored`;
      violate("T20", `a call of ${taskId.slice(-6)}@${token} ${what}`);
    },

    judge(intent, noted, stateOf) {
      const written: Row[] = [];
      const forgotten: Row[] = [];
      for (const { table, before, after } of noted) {
        if (table !== "step_journal") continue;
        if (!after) {
          forgotten.push(before!);
          continue;
        }
        judgeWritten(before, after, stateOf(after["owner_id"]));
        written.push(after);
      }
      if (written.length + forgotten.length > 0) judgeForgotten(intent, forgotten, written);
      if (intent.steps) countFences(intent, written, stateOf);
      judgeParked(intent, noted);
    },

    hasStepped: (claim) => stepped.has(claimOf(claim)),

    judgeResult(taskId, result) {
      const { steps = {} } = JSON.parse(result) as { steps?: Record<string, unknown> };
      for (const [key, value] of Object.entries(steps)) {
        const name = nameOf(taskId, key);
        const row = done.get(name);
        if (row?.["value"] === JSON.stringify(value)) continue;
        violate(
          "result",
          `${name} is ${row?.["value"]}, and its task's result says ${JSON.stringify(value)}`,
        );
      }
    },
  };
}

/** What the payloads of signals begin with. */
export const signalWord = "signal";

/** Whether a key is that of a model's call, in an agent or in one within a tool of it. */
function isCall(key: string): boolean {
  return /(^|\/)model\[/.test(key);
}

/** Whether a key is that of a step within another, or in a round of it. */
function isWithin(key: string, outer: string): boolean {
  return key.startsWith(`${outer}/`) || key.startsWith(`${outer}@`);
}

function nameOf(taskId: string, key: string): string {
  return `${taskId.slice(-6)} ${key}`;
}

function claimOf({ taskId, token }: Claim): string {
  return `${taskId}@${token}`;
}
