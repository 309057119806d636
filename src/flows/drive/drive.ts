import { hasCode, storeWideCodes } from "../../base/errors.ts";
import { encodeJson } from "../../base/json.ts";
import { dependencyFailedOutcome } from "../../tasks/dependencies.ts";
import type { StepWrite } from "../../steps/model.ts";
import type { FinishResult, StepResult } from "../../tasks/finish/finish-writer.ts";
import type { ClaimedRun } from "../../tasks/rows.ts";
import type { RunWrite } from "../../tasks/sql/finish.ts";
import type { RunFinish } from "../../tasks/sql/runs.ts";
import type { Flow } from "../flow.ts";
import { advanceRun } from "../decide/advance.ts";
import type { RunDecision, RunEvent, Now } from "../decide/event.ts";
import { draftOf, recordEvent } from "../decide/draft.ts";
import { type NextStep, findNextStep } from "../decide/next-step.ts";
import { readOutput } from "../decide/returned.ts";
import type { HistoryEvent, Run } from "../decide/run.ts";
import { classifyThrown } from "../decide/thrown.ts";
import { type CallablePart, type Machine, allNamesOf } from "../machine.ts";
import {
  type StepStore,
  type TransitionAttempt,
  initialize,
  runAttempt,
  createAttempt,
} from "./attempt.ts";
import {
  createRunWriter,
  setAsideFinish,
  blockedFinish,
  type FencedRun,
  releaseFinish,
  prepareChildren,
  toRunFinish,
} from "./save.ts";
import {
  openRun,
  readInput,
  storeRefusal,
  refuseInput,
  type RunColumns,
  runScopeOf,
  toColumns,
} from "./load.ts";
import { findChildRows, readChildren, findSignal } from "./lookup.ts";
import { type StepStart, type RunReporter, createRunReporter } from "./report.ts";
import type { DriveResult, DriverHost, TaskAttempt, TaskHandler } from "../../tasks/model.ts";

// Nothing was stored before the first claim of a run.
const firstToken = 1;

// The delay of a run that only a later version may advance, or whose writes the store refuses.
const refusedMs = 60_000;

/** A flow as a task handler: its runs are claimed like tasks, and then driven. */
export function flowHandler(flow: Flow): TaskHandler {
  const { name, input, output, queue, concurrency, tries, version } = flow;
  const limited = queue ? { limit: queue.limit } : concurrency;
  return {
    name,
    input,
    output,
    isFlow: true,
    ...(queue && { queue }),
    ...(limited && { concurrency: limited }),
    options: tries,
    run: () => undefined,
    flow: {
      version,
      drive: (running, parts) =>
        driveRun(flow, running, parts).catch((error: unknown) => ({ type: "not_stored", error })),
    },
  };
}

/** Whether a value is a complete flow, made by `.end()`. */
export function isFlow(value: unknown): value is Flow {
  const { isFlow: is, parts } = (value ?? {}) as Partial<Machine>;
  return is === true && Array.isArray(parts);
}

/**
 * Drives a claimed run: finds the next step, executes it, decides what it means, stores the decision, and
 * repeats until the run is released or has ended. It knows no more of the run than what was stored last.
 */
async function driveRun(
  machine: Machine,
  running: TaskAttempt,
  parts: DriverHost,
): Promise<DriveResult> {
  const report = createRunReporter(machine, running, parts);
  let result: DriveResult;
  try {
    result = await drive(machine, running, parts, report);
  } catch (error) {
    result = { type: "not_stored", error };
  }
  report.claimEnded(result);
  return result;
}

async function drive(
  machine: Machine,
  running: TaskAttempt,
  parts: DriverHost,
  report: RunReporter,
): Promise<DriveResult> {
  const { claim } = running;
  const { clock, random } = parts;
  const row: ClaimedRun = claim.run!;
  const claimedMs = running.startedMs;
  const { cursor, state, intent, waiting, stoppedAt } = row;
  const { failures, deaths } = claim;
  let columns: RunColumns = {
    version: row.version,
    cursor,
    state,
    intent,
    waiting,
    stoppedAt,
    failures,
    deaths,
  };
  let { seq } = row;
  let env: object | undefined;
  /** A write of the run with the first step of an attempt, which other steps wait for. */
  let stepping: Promise<void> | undefined;
  /** Whether the transition under way has stored steps, or an earlier attempt may have. */
  let hasSteps = false;
  running.cancelSeen = row.cancelRequested;
  // There is nothing to stop until a function runs.
  running.actAtMs = Infinity;

  const storeMs = () => row.claimedAtMs + Math.round(clock.monotonic() - claimedMs);
  const nowAt = (startedAtMs: number): Now => ({
    nowMs: storeMs(),
    startedAtMs,
    random,
    cancelRequested: running.cancelSeen,
  });
  const fenced = (): FencedRun => ({
    taskId: claim.taskId,
    token: claim.token,
    seq,
    wake: running.wake,
    columns,
    hasDependents: claim.hasDependents === true,
    limited: claim.limited,
    trace: report.trace(),
    traceEnded: report.endedTrace(),
  });
  const { write, release } = createRunWriter(running, parts, report);

  const opened = openRun(machine, columns);
  if (opened.type === "refuse") return release(releaseFinish(fenced(), storeMs() + refusedMs));
  if (opened.type === "set_aside") {
    report.setAside(opened);
    return release(setAsideFinish(fenced(), opened));
  }
  let run: Run = opened.run;
  const input = await readInput(machine, claim);
  const scope = !row.version && !claim.limited ? runScopeOf(machine, claim) : undefined;
  if (scope !== undefined) return release(blockedFinish(fenced(), scope));

  for (;;) {
    if (running.stopReason === "claim_lost") return lost(fenced());
    report.at(run);
    // A run that is ending can't be cancelled any more.
    if (run.intent !== null) running.cancelSeen = true;
    if (isStopping()) return release(releaseFinish(fenced()));
    const startedAtMs = storeMs();
    const startedMs = clock.monotonic();
    const now = nowAt(startedAtMs);
    try {
      const step = nextStep(now);
      const seenWake = running.wake;
      const event = await runStep(step, run);
      const driven = await decideAndStore(step, event, { startedAtMs, startedMs }, seenWake);
      if (driven) return driven;
    } catch (error) {
      if (parts.signal.aborted || hasCode(error, ...storeWideCodes)) throw error;
      // A bug of ours mustn't keep the run claimed for as long as this pod lives.
      report.driveFailed(error);
      return release(releaseFinish(fenced(), storeMs() + refusedMs));
    }
  }

  /**
   * Deaths belong to the part at the cursor. If pods died at a part that was removed, the move to the new
   * cursor is stored first, because that resets the count. Otherwise the deaths at the new cursor
   * wouldn't be counted.
   */
  function nextStep(now: Now): NextStep {
    if (columns.deaths <= run.deaths) return findNextStep(machine, run, now);
    return { type: "decided", decision: { type: "commit", ...draftOf(run) } };
  }

  /** Executes a step; undefined where there is nothing to execute. */
  async function runStep(step: NextStep, at: Run): Promise<RunEvent | undefined> {
    const { taskId, token } = claim;
    const { database } = parts;
    hasSteps = false;
    if (step.type === "decided") return undefined;
    if ("error" in input) return undefined;
    if (claim.dependencyFailed && at.intent === null && !at.waiting) {
      const ending = await dependencyFailedOutcome(database, taskId);
      return ending.type === "unmet"
        ? { type: "unmet", error: ending.error }
        : { type: "interrupted" };
    }
    try {
      switch (step.type) {
        case "see_signal":
          return await findSignal(database, taskId, step.part, allNamesOf(machine, step.part.name));
        case "see_children":
          return await readChildren(database, taskId, allNamesOf(machine, step.part.name));
        case "conclude":
          return await readOutput(machine, at.state);
        case "call": {
          const { part, attempt, outcome } = step;
          const startedBy = await earlierName(part, at);
          const interrupted = interruptedBy(at);
          if (interrupted) return interrupted;
          const isStepping = part.kind === "work" || part.kind === "finally";
          const attempted = createAttempt({
            running,
            parts,
            version: machine.version,
            transition: part.name,
            attempt,
            input: input.value,
            env,
            state: at.state,
            outcome,
            traceId: report.traceId,
            steps: isStepping ? stepStore(part) : undefined,
          });
          hasSteps = isStepping && token > firstToken && (seq === row.seq || at.stoppedAt !== null);
          const event = await report.traceAttempt(attempted, () => call(part, attempted));
          while (stepping) await stepping;
          return startedBy !== undefined && event.type === "children_requested"
            ? { ...event, startedBy }
            : event;
        }
      }
    } catch (error) {
      // A read failed. Nothing was executed, so the run is released and read again.
      report.readFailed(error);
      return { type: "interrupted" };
    }
  }

  /**
   * For a run that is started over: the name that the transition had when it first started its children.
   * Their keys are made of it, so that they are the same runs after the transition was renamed.
   */
  async function earlierName(part: CallablePart, at: Run): Promise<string | undefined> {
    if (part.kind !== "children" || at.stoppedAt === null) return undefined;
    const names = allNamesOf(machine, part.name);
    if (names.length === 1) return undefined;
    const { found, startedBy } = await findChildRows(parts.database, claim.taskId, names);
    return found.length > 0 ? startedBy : undefined;
  }

  /** Initializers belong to the first attempt on this pod: they share its failures and its timeout. */
  async function initialized(part: CallablePart, attempt: TransitionAttempt): Promise<RunEvent> {
    const ready = await initialize(machine, attempt, part.tries.timeoutMs);
    if ("event" in ready) return ready.event;
    ({ env } = ready);
    return interruptedBy(run) ?? call(part, attempt);
  }

  function isStopping(): boolean {
    return running.stopReason === "shutdown" || parts.stopping();
  }

  /**
   * Why a function must not be called any more: the pod may be stopping by now, or a cancel has come. That
   * an earlier attempt was stopped, by its timeout or a cancel, doesn't matter.
   */
  function interruptedBy(at: Run): RunEvent | undefined {
    if (running.stopReason === "claim_lost" || isStopping()) return { type: "interrupted" };
    if (at.intent === null && running.cancelSeen) return { type: "cancel_requested", reason: null };
    return undefined;
  }

  /** Where the steps of a part are stored, and found again under each name that it has had. */
  function stepStore({ name }: CallablePart): StepStore {
    const { taskId, token } = claim;
    const toStep = (step: StepWrite, part: string) => ({ taskId, token, step, run: { part, seq } });
    return {
      names: allNamesOf(machine, name),
      hasRows: token > firstToken,
      toStep(write, part) {
        hasSteps = true;
        return toStep(write, part);
      },
      async store(write, part) {
        hasSteps = true;
        while (stepping) await stepping;
        if (!stepChangesRun()) return parts.steps.storeStep(toStep(write, part));
        return storeStepped({ write, part });
      },
      async onCommitted() {
        while (stepping) await stepping;
        if (stepChangesRun()) await storeStepped();
      },
    };
  }

  /** Whether the run's row doesn't show yet that this version has got on with it. */
  function stepChangesRun(): boolean {
    const isCounted = run.failures + run.deaths + columns.deaths > 0;
    return isCounted || run.unnoted.length > 0 || run.version < machine.version;
  }

  /**
   * Stores the first step of an attempt together with the run: pods of lower versions leave it alone from
   * here on, and attempts and deaths count anew.
   */
  function storeStepped(step?: RunWrite["step"]): Promise<StepResult> {
    const storing = commitStepped(step);
    const over = () => void (stepping = undefined);
    stepping = storing.then(over, over);
    return storing;
  }

  async function commitStepped(step: RunWrite["step"]): Promise<StepResult> {
    const { version } = machine;
    const event = { type: "stepped", version, transition: run.cursor! } as const;
    const decision = { type: "commit", ...recordEvent(draftOf(run), event) } as const;
    const forgets = journalsOver(decision.events);
    const finished = await write(toRunFinish(fenced(), decision, { step, forgets }));
    if (finished.type !== "stored") return { type: "lost" };
    advanceTo(decision.run);
    report.stepped(decision.events, storeMs());
    return finished;
  }

  /**
   * The parts of the journal that these events leave behind. A run that stops keeps its steps, and goes on
   * behind them when it is started over.
   */
  function journalsOver(events: readonly HistoryEvent[]): string[] {
    return events.flatMap((event) => {
      if (event.type === "move") return event.why === "removed" ? [event.from] : [];
      const isOver =
        event.type === "complete" ||
        (event.type === "error" && event.retryAtMs === null && event.intent === undefined);
      return isOver && hasSteps ? allNamesOf(machine, event.transition) : [];
    });
  }

  /** Takes over what was stored of the run. */
  function advanceTo(stored: Run): void {
    running.runSeq = ++seq;
    run = stored;
    columns = toColumns(run);
  }

  function call(part: CallablePart, attempt: TransitionAttempt): Promise<RunEvent> {
    const isReady = env !== undefined || machine.initializers.length === 0;
    if (!isReady) return initialized(part, attempt);
    return runAttempt(machine, part, { ...attempt, env: env ?? {} });
  }

  /**
   * Decides what a step's event means, and stores the decision. Returns how the claim ended, where it did.
   * What was read counts only if the run's `wake` is the same as at the read: a signal may have come
   * since, or a child may have been started over.
   */
  async function decideAndStore(
    step: NextStep,
    firstEvent: RunEvent | undefined,
    begun: StepStart,
    seenWake: number,
  ): Promise<DriveResult | undefined> {
    let refusals = 0;
    let event = firstEvent;
    for (;;) {
      const now = nowAt(begun.startedAtMs);
      // The wake is taken before the decision, which doesn't know what happens to the row after this.
      const boundToWake = isBoundToWake(event);
      const knownWake = boundToWake ? seenWake : running.wake;
      const decision = decide(step, event, now);
      if (decision.type === "set_aside") {
        report.setAside(decision);
        return release(setAsideFinish(fenced(), decision));
      }
      if (!("run" in decision)) {
        return running.stopReason === "claim_lost"
          ? lost(fenced())
          : release(releaseFinish(fenced()));
      }
      let finish: RunFinish;
      let finished: FinishResult;
      try {
        // What functions return was checked against the limit already.
        if (step.type !== "call" && decision.run.state !== run.state) {
          const what = `the state after "${run.cursor}"`;
          encodeJson(what, decision.run.state, { maxBytes: parts.maxResultBytes });
        }
        const { tenant } = row;
        const { ids, maxResultBytes: maxPayloadBytes } = parts;
        const startedBy = event && "startedBy" in event ? event.startedBy : undefined;
        const children = decision.effects.some(({ type }) => type === "start_children")
          ? await prepareChildren(decision.effects, {
              ids,
              maxPayloadBytes,
              runId: claim.taskId,
              tenant,
              trace: report.childTrace(),
              startedBy,
            })
          : [];
        finish = toRunFinish({ ...fenced(), wake: knownWake, boundToWake }, decision, {
          children,
          startedBy,
          forgets: journalsOver(decision.events),
        });
        finished = await write(finish);
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, ...storeWideCodes)) throw error;
        refusals++;
        report.storeRefused(error);
        // A write that the store always refuses is the fault of its content, so it counts as thrown.
        if (refusals > 2) return release(releaseFinish(fenced(), storeMs() + refusedMs));
        event = { type: "threw", thrown: classifyThrown(storeRefusal(error, refusals)) };
        continue;
      }
      if (finished.type === "woken") {
        running.wake = finished.wake;
        if (finished.cancelRequested) running.cancelSeen = true;
        // After a read, read again: the signal may be there now. A function isn't called again.
        if (step.type !== "call") return undefined;
        continue;
      }
      if (finished.type === "lost") return { type: "driven", finish, finished };
      report.stored(decision, begun, storeMs());
      if (decision.type !== "commit") return { type: "driven", finish, finished };
      advanceTo(decision.run);
      const { held: isHeld = false, wake = running.wake, cancelRequested } = finished.run ?? {};
      running.wake = wake;
      if (cancelRequested === true) running.cancelSeen = true;
      // The pod was taken for dead. This step is stored, but another pod continues the run.
      return isHeld ? undefined : { type: "driven", finish, finished: { type: "lost" } };
    }
  }

  function decide(step: NextStep, event: RunEvent | undefined, now: Now): RunDecision {
    if (event === undefined && step.type !== "decided" && "error" in input) {
      return refuseInput(machine, run, input.error, now);
    }
    // A step without an event is decided again, where the run was woken meanwhile.
    if (event === undefined) {
      const again = nextStep(now);
      if (again.type === "decided") return again.decision;
      return { type: "release" };
    }
    return advanceRun(machine, run, event, now);
  }

  function lost(at: FencedRun): DriveResult {
    return { type: "driven", finish: releaseFinish(at), finished: { type: "lost" } };
  }
}

/** Whether a later wake may contradict the event: no signal was found, or children may be restarted. */
function isBoundToWake(event: RunEvent | undefined): boolean {
  if (event?.type === "signal_seen") return event.signal === null;
  return event?.type === "children_seen";
}
