import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { contextKey } from "../../steps/key.ts";
import { type LaterHost, setLaterHost } from "../../steps/later.ts";
import type { ModelCallOptions } from "../../steps/model-calls.ts";
import type { Step, StepJournal, Steps, StepWrite, StoredStep } from "../../steps/model.ts";
import { createSteps } from "../../steps/steps.ts";
import { setUnfinished, type Unfinished } from "../../steps/unfinished.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { CommandResult } from "../conversation/command.ts";
import type { Turn } from "../conversation/header.ts";
import type { Reads } from "../log/journal.ts";
import type { Control } from "./parts.ts";

/**
 * The steps of one attempt of a turn. The session's owner stores them, under the turn's epoch and attempt:
 * steps of an attempt that is over are refused. A later attempt reads what is stored at its first step, and
 * the agent's function gets it in place of what the step would do again.
 */
type TurnSteps = {
  /** True once this attempt has stored one. */
  readonly hasStored: boolean;
  /** Steps for one call of the agent's function. */
  open(call: StepCall): CallSteps;
};

type CallSteps = {
  readonly step: Step;
  readonly take: Steps["take"];
  /** Waits for the steps that the function has not awaited. No step begins after that. */
  settle(returned: boolean): Promise<void>;
};

type StepCall = {
  readonly signal: AbortSignal;
  /** Called when the first of several steps begins to run, and when the last has ended. */
  readonly onBusy: (isBusy: boolean) => void;
  /** For tools whose outputs come later. */
  readonly later: LaterHost;
};

type TurnStepsParts = {
  readonly clock: Clock;
  readonly log: () => Logger;
  readonly sessionId: string;
  readonly turn: Pick<Turn, "epoch" | "attempt">;
  readonly control: Control;
  readonly journal: Pick<Reads, "steps" | "stepValue" | "turns">;
  /** The largest value of one step. */
  readonly maxValueBytes: number;
  /** Reads until the store answers. Returns undefined if the turn has to end meanwhile. */
  readonly read: <Found>(ask: () => Promise<Found>) => Promise<Found | undefined>;
  /** The tasks that start when the step with this key is stored. */
  readonly tasksOf: (key: string) => readonly NewTask[];
  /** Has the owner store these. */
  readonly store: (rows: readonly StepWrite[], tasks: readonly NewTask[]) => Promise<CommandResult>;
  /** Everything stored was answered, or a step runs: what the function emits from here on is new. */
  readonly onCaughtUp: () => void;
  readonly modelCalls?: ModelCallOptions;
  readonly unfinished: Unfinished;
};

export const turnStepLimits = { maxSteps: 1_000, maxBytes: 4 * 1024 * 1024 } as const;

/** Bounds one command. More rows wait for the next. */
const maxStoredTogetherChars = 1024 * 1024;
/** How long a step's function may take to settle after its signal has aborted. */
const graceMs = 5_000;

export function createTurnSteps(parts: TurnStepsParts): TurnSteps {
  const { clock, log, control, sessionId, turn } = parts;
  const { epoch, attempt } = turn;
  const ref = { sessionId, epoch };
  const ownerId = keyOwner(sessionId, epoch);
  /** False where nothing can be stored, so that nothing has to be read. */
  let hasRows = attempt > 1;
  let hasStored = false;

  const store = storeTogether(async (rows) => {
    hasRows = true;
    const tasks = rows.flatMap(({ key, kind }) =>
      kind === "done" ? parts.tasksOf(contextKey(ownerId, key)) : [],
    );
    const { done } = await parts.store(rows, tasks);
    hasStored ||= done !== false;
    if (done !== false) return;
    control.end({ keep: false });
    throw replaced(ref);
  });

  const read = async <Found>(ask: () => Promise<Found>): Promise<Found> => {
    const found = await parts.read(ask);
    if (found === undefined) throw noLongerWanted();
    return found;
  };

  /**
   * Rows are deleted in the record that ends the turn. A pod that was paused and begins an attempt after
   * that finds none, and must not run what was stored.
   */
  const hasEnded = async (): Promise<boolean> => {
    const [newest] = await parts.journal.turns(sessionId, { limit: 1 });
    if (!newest) return false;
    return newest.epoch === epoch ? newest.attempt >= attempt : newest.epoch > epoch;
  };

  /** How many stored steps were not answered yet. Inner ones are only asked for by a step that runs. */
  const isAnswer = ({ kind }: StoredStep) => kind === "done" || kind === "failed";

  const open = ({ signal, onBusy, later }: StepCall): CallSteps => {
    let unanswered = Infinity;
    let running = 0;
    let reading = 0;
    let isBusy = false;
    let isOver = false;
    /** A step was refused because the pod is stopping. */
    let isLeaving = false;

    const changed = (): void => {
      const busyNow = running + reading > 0;
      if (busyNow !== isBusy) onBusy((isBusy = busyNow));
      if (isLeaving && running === 0) control.handOver();
    };

    const journal: StepJournal = {
      read: hasRows
        ? async () => {
            reading++;
            changed();
            try {
              const rows = await read(() => parts.journal.steps(ref));
              if (rows.length === 0 && (await read(hasEnded))) {
                control.end({ keep: false });
                throw noLongerWanted();
              }
              unanswered = rows.filter(isAnswer).length;
              if (unanswered === 0) parts.onCaughtUp();
              return rows;
            } finally {
              reading--;
              changed();
            }
          }
        : undefined,
      async readValue(key) {
        const value = await read(async () => (await parts.journal.stepValue(ref, key)) ?? null);
        if (value !== null) return value;
        throw new FlotillaError("step_changed", `the stored step "${key}" is gone`, {
          details: { step: key },
        });
      },
      store,
      storeWithin: () => Promise.reject(noTransaction()),
      isStored: () => Promise.resolve(false),
    };

    const steps: Steps = createSteps({
      ownerId,
      journal,
      limits: { ...turnStepLimits, maxValueBytes: parts.maxValueBytes },
      clock,
      log,
      ...(parts.modelCalls && { modelCalls: parts.modelCalls }),
      signal: () => signal,
      graceMs,
      refusal() {
        if (isOver) return ended();
        if (signal.aborted || control.signal.aborted) return noLongerWanted();
        if (!control.leaving) return undefined;
        isLeaving = true;
        queueMicrotask(changed);
        return handedOver();
      },
      onRunning(count) {
        running = count;
        if (count > 0) parts.onCaughtUp();
        changed();
      },
      takes: true,
      onEnded(how) {
        if (how === "answered" && --unanswered === 0) parts.onCaughtUp();
      },
    });
    setUnfinished(steps.step, parts.unfinished);
    return {
      step: setLaterHost(steps.step, later),
      take: steps.take,
      async settle(returned) {
        await steps.settle(returned);
        isOver = true;
      },
    };
  };

  return {
    get hasStored() {
      return hasStored;
    },
    open,
  };
}

/** Stores rows in the order of their numbers. What ends while others are being stored goes together. */
function storeTogether(
  send: (rows: readonly StepWrite[]) => Promise<void>,
): (row: StepWrite) => Promise<void> {
  type Waiting = PromiseWithResolvers<void> & { readonly row: StepWrite };
  let waiting: Waiting[] = [];
  let isSending = false;

  const take = (): Waiting[] => {
    let chars = 0;
    const end = waiting.findIndex(
      ({ row }) => (chars += row.value.length) > maxStoredTogetherChars,
    );
    const count = end < 0 ? waiting.length : Math.max(1, end);
    const taken = waiting.slice(0, count);
    waiting = waiting.slice(count);
    return taken;
  };

  const sendAll = async (): Promise<void> => {
    while (waiting.length > 0) {
      const taken = take();
      try {
        await send(taken.map(({ row }) => row));
        for (const { resolve } of taken) resolve();
      } catch (error) {
        for (const { reject } of taken) reject(error);
      }
    }
    isSending = false;
  };

  return (row) => {
    const each = { ...Promise.withResolvers<void>(), row };
    waiting.push(each);
    if (!isSending) {
      isSending = true;
      // Steps that end in the same turn of the event loop go together.
      queueMicrotask(() => void sendAll());
    }
    return each.promise;
  };
}

const plainId = /^[\w.-]{1,100}$/;

/** What the keys of a turn's steps begin with: never the same for two turns, whatever their sessions' ids. */
function keyOwner(sessionId: string, epoch: number): string {
  const hash = () => createHash("sha256").update(sessionId).digest("base64url").slice(0, 27);
  return `turn/${plainId.test(sessionId) ? sessionId : `#${hash()}`}/${epoch}`;
}

export function replaced({
  sessionId,
  epoch,
}: {
  sessionId: string;
  epoch: number;
}): FlotillaError {
  const message = `turn ${epoch} of session ${sessionId} has ended or goes on at another pod: end this call`;
  return new FlotillaError("claim_lost", message);
}

function noLongerWanted(): FlotillaError {
  return new FlotillaError("cancelled", "the answer is no longer wanted: end this call");
}

function handedOver(): FlotillaError {
  const message = "this pod is stopping, and another goes on behind the last step: end this call";
  return new FlotillaError("cancelled", message);
}

function ended(): FlotillaError {
  return new FlotillaError("closed", "the answer has ended: await every step before you return");
}

function noTransaction(): FlotillaError {
  return new FlotillaError(
    "unsupported",
    "a step of a turn is stored by the session's owner and can't be part of your transaction: enqueue a task, and store the step there",
  );
}
