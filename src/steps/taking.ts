import { AsyncLocalStorage } from "node:async_hooks";
import type { Clock } from "../base/clock.ts";
import type { Json } from "../base/json.ts";
import type { OpenJournal } from "./journal.ts";
import { takenKey } from "./key.ts";
import type { StoredStep, StepWrite, TakeLook } from "./model.ts";
import { takenWithin } from "./refusals.ts";
import type { Call, Ended, Scope } from "./scope.ts";

/** A step whose function runs. Code that goes on after it, such as that of a stream, is within it no more. */
type RunningStep = {
  readonly owner: object;
  readonly outer: RunningStep | undefined;
  isRunning: boolean;
};

const runningStep = new AsyncLocalStorage<RunningStep>();

function innermost(): RunningStep | undefined {
  let step = runningStep.getStore();
  while (step && !step.isRunning) step = step.outer;
  return step;
}

function isWithin(owner: object): boolean {
  for (let step = innermost(); step; step = step.outer) {
    if (step.isRunning && step.owner === owner) return true;
  }
  return false;
}

type TakingParts = {
  readonly rows: OpenJournal;
  readonly scope: () => Scope;
  /** Throws if nothing may begin any more. */
  readonly enter: () => void;
  /** The rows of earlier attempts were read. */
  readonly onRead: () => void;
  readonly answer: (row: StoredStep) => Promise<Json>;
  readonly store: (call: Call, ended: Ended) => Promise<void>;
  readonly encode: (path: string, value: Json) => string;
  /** One more or one less runs. Throws if no more may. */
  readonly running: (change: 1 | -1) => void;
  readonly onStored: () => void;
  readonly clock: Clock;
};

/** What comes from outside while an attempt runs: taken by the numbers of rows, not by how often it is asked for. */
export function createTaking(parts: TakingParts) {
  const { rows } = parts;
  let taken = 0;
  let last: Promise<unknown> = Promise.resolve();

  const takeNext = async (look: TakeLook): Promise<Json | undefined> => {
    const reading = rows.reading();
    if (reading) await reading.then(parts.onRead);
    parts.enter();
    const path = takenKey(taken + 1);
    const seq = rows.seqOf(path);
    if (rows.isBehind(seq ?? Infinity)) return undefined;
    if (seq !== undefined) {
      taken++;
      return parts.answer(rows.find(path)!);
    }
    parts.running(1);
    try {
      return await takeFresh(path, look);
    } finally {
      parts.running(-1);
    }
  };

  const takeFresh = async (path: string, look: TakeLook): Promise<Json | undefined> => {
    const startedMs = parts.clock.monotonic();
    const found = await look();
    if (!found) return undefined;
    const call: Call = { name: "taken", path, scope: parts.scope(), hash: null };
    const storeAs = async (write: StepWrite) => {
      if (!(await found.store(write))) throw new NothingTaken();
    };
    try {
      const value = parts.encode(path, found.value);
      await parts.store(call, { kind: "done", value, startedMs, storeAs });
    } catch (error) {
      if (error instanceof NothingTaken) return undefined;
      throw error;
    }
    taken++;
    parts.onStored();
    return found.value;
  };

  return {
    /** One after the other, so that each is numbered once. */
    take(look: TakeLook): Promise<Json | undefined> {
      if (isWithin(rows)) throw takenWithin();
      parts.enter();
      const next = last.then(() => takeNext(look));
      last = next.catch(() => {});
      return next;
    },
    /** Runs a step, within which nothing is taken. */
    async runStep(run: () => Promise<Json>): Promise<Json> {
      const step: RunningStep = { owner: rows, outer: innermost(), isRunning: true };
      try {
        return await runningStep.run(step, run);
      } finally {
        step.isRunning = false;
      }
    },
  };
}

/** What could be taken was gone when it was to be stored. */
class NothingTaken extends Error {}
