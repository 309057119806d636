import { backoffMs } from "../../base/backoff.ts";
import { hasCode, storeWideCodes, untilStoreRecovers } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import { prepareTask } from "../../tasks/enqueue/options.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { RunFinish } from "../../tasks/sql/runs.ts";
import { childKey, childKeyPrefix, type RunDecision, type RunEffect } from "../decide/event.ts";
import { type HistoryEvent, type Run, type RunError, toEventRow } from "../decide/run.ts";
import { type RunColumns, toColumns } from "./load.ts";
import type { RunPark, RunWrite } from "../../tasks/sql/finish.ts";
import type { FinishResult } from "../../tasks/finish/finish-writer.ts";
import type { DriveResult, DriverHost, TaskAttempt, TaskContract } from "../../tasks/model.ts";
import type { RunReporter } from "./report.ts";

const writeBackoff = { baseMs: 1_000, maxMs: 60_000 };

/** A run as it was stored last, and the fences for its next write. */
export type FencedRun = {
  readonly taskId: string;
  readonly token: number;
  readonly seq: number;
  /** The `wake` that was read before the decision. */
  readonly wake: number;
  /** Whether the write fails if `wake` has changed, because the decision may be wrong then. */
  readonly boundToWake?: boolean;
  readonly columns: RunColumns;
  readonly hasDependents: boolean;
  readonly limited: { readonly scope: string | null } | undefined;
  /** The run's trace, where the row doesn't have it yet. */
  readonly trace: string | null;
  /** The same for the write that ends the run. */
  readonly traceEnded: string | null;
};

type Storable = Extract<RunDecision, { run: Run }>;

/** What the write of a decision stores besides the run. */
type RunEffects = {
  /** The runs that it starts. */
  readonly children?: readonly NewTask[];
  /** The name of the transition when it started the children it waits for. */
  readonly startedBy?: string | undefined;
  readonly step?: RunWrite["step"];
  readonly forgets?: RunWrite["forgets"];
};

/** The write of a decision. */
export function toRunFinish(
  fenced: FencedRun,
  decision: Storable,
  { children = [], startedBy, step, forgets = [] }: RunEffects,
): RunFinish {
  const { run: decided, events, effects } = decision;
  const columns = toColumns(decided);
  const write: RunWrite = {
    ...unchanged(fenced),
    version: columns.version,
    cursor: columns.cursor,
    state: columns.state === fenced.columns.state ? null : columns.state,
    intent: columns.intent,
    waiting: columns.waiting,
    stoppedAt: columns.stoppedAt,
    failures: columns.failures,
    moved: events.some(moves),
    stepped: events.some(({ type }) => type === "stepped"),
    step,
    forgets,
    events: events.map(toEventRow),
    children,
    cancelsChildren: effects.some(({ type }) => type === "cancel_children"),
    takes: effects.flatMap((effect) => (effect.type === "take_signal" ? [effect.signalId] : [])),
    park: toPark(decision, childKeyPrefix(fenced.taskId, startedBy ?? decided.cursor ?? "")),
  };
  const base = { taskId: fenced.taskId, token: fenced.token, event: null, run: write } as const;
  const limited = fenced.limited && { limited: fenced.limited };
  const wake = fenced.boundToWake ? fenced.wake : null;
  const nothing = { result: null, error: null, counted: 0, delayMs: null, wake } as const;
  switch (decision.type) {
    case "commit":
      return { ...base, ...nothing, status: "claimed" };
    case "park":
      return { ...base, ...nothing, ...limited, status: "pending", delayMs: 1, wake: fenced.wake };
    case "retry": {
      const error = JSON.stringify(errorOf(events));
      const retry = {
        status: "pending",
        error,
        counted: 1,
        delayMs: 1,
        wake: fenced.wake,
      } as const;
      return { ...base, ...nothing, ...limited, ...retry };
    }
    case "finish": {
      const { status } = decision;
      const result = status === "completed" ? JSON.stringify(decision.result) : null;
      const error = decision.error && JSON.stringify(decision.error);
      const hasDependents = fenced.hasDependents && { hasDependents: true };
      const run = { ...write, trace: fenced.traceEnded };
      return { ...base, run, ...nothing, ...limited, ...hasDependents, status, result, error };
    }
  }
}

/** Releases the run unchanged. Pods may claim it at once, or from `untilMs` on. */
export function releaseFinish(fenced: FencedRun, untilMs: number | null = null): RunFinish {
  return unchangedFinish(fenced, { for: "time", untilMs }, []);
}

/** Releases the run unchanged, blocked by a concurrency limit that it wasn't started under. */
export function blockedFinish(fenced: FencedRun, scope: string): RunFinish {
  return unchangedFinish(fenced, { for: "slot", scope }, []);
}

/** Sets the run aside unchanged. No pod claims it until it is resumed or a later version tries. */
export function setAsideFinish(
  fenced: FencedRun,
  setAside: Extract<RunDecision, { type: "set_aside" }>,
): RunFinish {
  const { reason, message, byVersion } = setAside;
  const why = JSON.stringify({ reason, message });
  return unchangedFinish(fenced, { for: "people", why, byVersion }, [toEventRow(setAside)]);
}

function unchangedFinish(fenced: FencedRun, park: RunPark, events: RunWrite["events"]): RunFinish {
  return {
    taskId: fenced.taskId,
    token: fenced.token,
    status: "pending",
    result: null,
    error: null,
    counted: 0,
    delayMs: (park.for === "time" && park.untilMs === null) || park.for === "slot" ? 0 : 1,
    wake: null,
    event: null,
    ...(fenced.limited && { limited: fenced.limited }),
    run: { ...unchanged(fenced), park, events },
  };
}

function unchanged({ seq, columns, trace }: FencedRun): RunWrite {
  return {
    seq,
    version: null,
    cursor: columns.cursor,
    state: null,
    intent: columns.intent,
    waiting: columns.waiting,
    stoppedAt: columns.stoppedAt,
    failures: columns.failures,
    moved: false,
    stepped: false,
    forgets: [],
    trace,
    park: { for: "time", untilMs: null },
    events: [],
    children: [],
    cancelsChildren: false,
    takes: [],
  };
}

/** Whether the event moves the cursor to another part. */
function moves(event: HistoryEvent): boolean {
  switch (event.type) {
    case "complete":
    case "cancel":
    case "finish":
      return true;
    case "error":
      return event.retryAtMs === null;
    case "move":
      return event.why === "removed";
    case "start":
    case "park":
    case "stepped":
    case "set_aside":
    case "given_up":
    case "resume":
    case "pod_died":
    case "retried":
    case "redriven":
      return false;
  }
}

function toPark(decision: Storable, keys: string): RunPark {
  if (decision.type !== "park") {
    return { for: "time", untilMs: decision.type === "retry" ? decision.untilMs : null };
  }
  const { run, untilMs } = decision;
  switch (run.waiting?.for) {
    case "children":
      return { for: "children", keys };
    case "signal":
      return { for: "signal", name: run.cursor!, untilMs };
    case "sleep":
    case undefined:
      return { for: "time", untilMs };
  }
}

function errorOf(events: readonly HistoryEvent[]): RunError | null {
  const event = events.findLast(({ type }) => type === "error");
  return event?.type === "error" ? event.error : null;
}

type ChildrenParts = {
  ids: Ids;
  maxPayloadBytes: number;
  runId: string;
  tenant: string;
  trace: string | null;
  /** The name of the transition when it started them before, where it was another. */
  startedBy?: string | undefined;
};

/** The rows of the runs that a decision starts. Rejects where one of them is invalid. */
export async function prepareChildren(
  effects: readonly RunEffect[],
  { runId, tenant, trace, startedBy, ...parts }: ChildrenParts,
): Promise<NewTask[]> {
  const rows: NewTask[] = [];
  for (const effect of effects) {
    if (effect.type !== "start_children") continue;
    for (const [position, { flow, input, options }] of effect.children.entries()) {
      const key = childKey(runId, startedBy ?? effect.transition, position);
      const taskOptions = { tenant, ...options, key };
      const row = await prepareTask(flow as TaskContract, input, taskOptions, parts, trace);
      rows.push({ ...row, parentId: runId, origin: { id: runId, what: "run" } });
    }
  }
  return rows;
}

/** Writes a run to the store. */
export function createRunWriter(running: TaskAttempt, parts: DriverHost, report: RunReporter) {
  const { clock, random, signal } = parts;
  const waitMs = (tries: number) => backoffMs(tries, random, writeBackoff);
  const retryOptions = { clock, random, signal, waitMs };

  /** No other pod writes the outcome of this claim, so it is sent again until its result is known. */
  const send = (finish: RunFinish) =>
    callUntilAnswered(
      () =>
        new Promise<FinishResult>((resolve, reject) =>
          parts.finishWriter.put(finish, resolve, reject),
        ),
      { ...retryOptions, codes: untilStoreRecovers },
    );
  const write = (finish: RunFinish) => {
    const { progress } = parts;
    // The next attempt may read this progress, so it is stored first. After a move it is dropped.
    if (!finish.run.moved && progress.isUnsaved(running)) {
      return progress.leave(running).then(() => send(finish));
    }
    progress.forget(running);
    return send(finish);
  };

  /** Releases the run as it is. Where the store refuses even that, it is retried. */
  const release = async (finish: RunFinish): Promise<DriveResult> => {
    const finished = await callUntilAnswered(() => write(finish), {
      ...retryOptions,
      mayRetry: (error) => !hasCode(error, ...storeWideCodes),
      onFailed: ({ error }) => report.releaseFailed(error),
    });
    return { type: "driven", finish, finished };
  };

  return { write, release };
}
