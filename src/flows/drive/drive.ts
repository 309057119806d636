import { backoffMs } from "../../base/backoff.ts";
import { sleep } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import { encodeJson } from "../../base/json.ts";
import { untilMended } from "../../store/retry.ts";
import { endUnmet } from "../../tasks/dependencies.ts";
import type { Finished } from "../../tasks/finish/finish-writer.ts";
import type { ClaimedRun } from "../../tasks/rows.ts";
import type { Driven, DriveParts, Running } from "../../tasks/run/attempt.ts";
import type { RunFinish } from "../../tasks/sql/runs.ts";
import type { TaskHandler } from "../../tasks/task.ts";
import type { Flow } from "../flow.ts";
import { advance } from "../decide/advance.ts";
import type { Decision, Happened, Now } from "../decide/event.ts";
import { draftOf } from "../decide/draft.ts";
import { type Step, stepOf } from "../decide/next-step.ts";
import { readState } from "../decide/returned.ts";
import type { Run } from "../decide/run.ts";
import { classify } from "../decide/thrown.ts";
import { type Callable, type Machine, namesOf } from "../machine.ts";
import { type Attempt, initialize, makeAttempt, startedAttempt } from "./attempt.ts";
import { asideOf, gatedOf, type Held, releaseOf, rowsOfChildren, writeOf } from "./save.ts";
import {
  openRun,
  readInput,
  refusal,
  refuseInput,
  type RunColumns,
  scopeOf,
  toColumns,
} from "./load.ts";
import { findChildren, lookAtChildren, lookForSignal } from "./lookup.ts";
import { type Begun, type Telling, telling } from "./report.ts";

/** Whether it is a look that has found nothing, or children that may be started over. */
function hasLooked(happened: Happened | undefined): boolean {
  if (happened?.type === "signal_seen") return happened.signal === null;
  return happened?.type === "children_seen";
}

// A run that only a later version may touch, or that the store refuses every word about.
const refusedMs = 60_000;

/**
 * Drives a claimed run: looks what is next, does it, decides what that means, stores it, and so on until
 * the run is given back or has ended. Everything it knows of the run is what was stored last.
 */
async function driveRun(machine: Machine, running: Running, parts: DriveParts): Promise<Driven> {
  const tell = telling(machine, running, parts);
  let driven: Driven;
  try {
    driven = await drive(machine, running, parts, tell);
  } catch (error) {
    driven = { type: "not_stored", error };
  }
  tell.over(driven);
  return driven;
}

async function drive(
  machine: Machine,
  running: Running,
  parts: DriveParts,
  tell: Telling,
): Promise<Driven> {
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
  running.cancelSeen = row.cancelRequested;
  // Nothing is to be stopped until something runs.
  running.actAtMs = Infinity;

  const storeMs = () => row.claimedAtMs + Math.round(clock.monotonic() - claimedMs);
  const nowAt = (startedAtMs: number): Now => ({
    nowMs: storeMs(),
    startedAtMs,
    random,
    cancelRequested: running.cancelSeen,
  });
  const held = (): Held => ({
    taskId: claim.taskId,
    token: claim.token,
    seq,
    wake: running.wake,
    columns,
    awaited: claim.awaited === true,
    gate: claim.gate,
    trace: tell.trace(),
    traceEnded: tell.traceEnded(),
  });
  const { put, leave } = createSending(running, parts, tell);

  const opened = openRun(machine, columns);
  if (opened.type === "refuse") return leave(releaseOf(held(), storeMs() + refusedMs));
  if (opened.type === "set_aside") {
    tell.setAside(opened);
    return leave(asideOf(held(), opened));
  }
  let run: Run = opened.run;
  const input = await readInput(machine, claim);
  const scope = !row.version && !claim.gate ? scopeOf(machine, claim) : undefined;
  if (scope !== undefined) return leave(gatedOf(held(), scope));

  for (;;) {
    if (running.stopped === "claim_lost") return lost(held());
    tell.at(run);
    // Nobody can cancel what is ending already.
    if (run.intent !== null) running.cancelSeen = true;
    if (isLeaving()) return leave(releaseOf(held()));
    const startedAtMs = storeMs();
    const startedMs = clock.monotonic();
    const now = nowAt(startedAtMs);
    try {
      const step = nextStep(now);
      const seenWake = running.wake;
      const happened = await happening(step, run);
      const driven = await store(step, happened, { startedAtMs, startedMs }, seenWake);
      if (driven) return driven;
    } catch (error) {
      if (parts.signal.aborted || hasCode(error, "closed", ...untilMended)) throw error;
      // A fault of ours mustn't leave the run with this pod for as long as that lives.
      tell.broken(error);
      return leave(releaseOf(held(), storeMs() + refusedMs));
    }
  }

  /**
   * Deaths belong to what is at the cursor. Where pods have died at something that is no more, that the run
   * stands elsewhere by now is stored first: nobody would count the deaths of what is there else.
   */
  function nextStep(now: Now): Step {
    if (columns.deaths <= run.deaths) return stepOf(machine, run, now);
    return { type: "decided", decision: { type: "commit", ...draftOf(run) } };
  }

  /** What comes of a step; undefined where it was decided without. */
  async function happening(step: Step, at: Run): Promise<Happened | undefined> {
    const { taskId } = claim;
    const { database } = parts;
    if (step.type === "decided") return undefined;
    if ("error" in input) return undefined;
    if (claim.doomed && at.intent === null && !at.waiting) {
      const ending = await endUnmet(database, taskId);
      return ending.type === "unmet"
        ? { type: "unmet", error: ending.error }
        : { type: "interrupted" };
    }
    try {
      switch (step.type) {
        case "see_signal":
          return await lookForSignal(database, taskId, step.part, namesOf(machine, step.part.name));
        case "see_children":
          return await lookAtChildren(database, taskId, namesOf(machine, step.part.name));
        case "conclude":
          return await readState(machine, at.state);
        case "call": {
          const { part, attempt, outcome } = step;
          const startedBy = await startedBefore(part, at);
          const overtaken = overtakenBy(at);
          if (overtaken) return overtaken;
          const made = startedAttempt({
            running,
            parts,
            version: machine.version,
            transition: part.name,
            attempt,
            input: input.value,
            env,
            state: at.state,
            outcome,
            traceId: tell.traceId,
          });
          const happened = await tell.attempting(made, () => call(part, made));
          return startedBy !== undefined && happened.type === "children_asked"
            ? { ...happened, startedBy }
            : happened;
        }
      }
    } catch (error) {
      // The store didn't say. Nothing was done, so the run is given back for another look.
      tell.unseen(error);
      return { type: "interrupted" };
    }
  }

  /**
   * The name that a transition had when it started the children of a run that is started over: by their keys
   * they are the same runs, however it is called now.
   */
  async function startedBefore(part: Callable, at: Run): Promise<string | undefined> {
    if (part.kind !== "children" || at.stoppedAt === null) return undefined;
    const names = namesOf(machine, part.name);
    if (names.length === 1) return undefined;
    const { found, startedBy } = await findChildren(parts.database, claim.taskId, names);
    return found.length > 0 ? startedBy : undefined;
  }

  /** Initializers belong to the first attempt that this pod makes: they fail with it, and are timed with it. */
  async function initialized(part: Callable, made: Attempt): Promise<Happened> {
    const ready = await initialize(machine, made, part.tries.timeoutMs);
    if ("happened" in ready) return ready.happened;
    ({ env } = ready);
    return overtakenBy(run) ?? call(part, made);
  }

  function isLeaving(): boolean {
    return running.stopped === "shutdown" || parts.stopping();
  }

  /**
   * Why a function isn't called any more that was to be: the pod may have been told to stop meanwhile. What an
   * earlier attempt was stopped for, its time or a cancel, keeps nothing from being called.
   */
  function overtakenBy(at: Run): Happened | undefined {
    if (running.stopped === "claim_lost" || isLeaving()) return { type: "interrupted" };
    if (at.intent === null && running.cancelSeen) return { type: "cancel_asked", reason: null };
    return undefined;
  }

  function call(part: Callable, made: Attempt): Promise<Happened> {
    const isReady = env !== undefined || machine.initializers.length === 0;
    if (!isReady) return initialized(part, made);
    return makeAttempt(machine, part, { ...made, env: env ?? {} });
  }

  /**
   * Decides what a step has come to and stores it. Gives how the claim ended, where it did. What a look has
   * found counts only if the run's `wake` is the same as at the look: a signal may have come since, or a child
   * have been started over.
   */
  async function store(
    step: Step,
    happened: Happened | undefined,
    begun: Begun,
    seenWake: number,
  ): Promise<Driven | undefined> {
    let refusals = 0;
    let happens = happened;
    for (;;) {
      const now = nowAt(begun.startedAtMs);
      // What is learned of the row from here on is nothing that the decision knows of.
      const looked = hasLooked(happens);
      const knownWake = looked ? seenWake : running.wake;
      const decision = decide(step, happens, now);
      if (decision.type === "set_aside") {
        tell.setAside(decision);
        return leave(asideOf(held(), decision));
      }
      if (!("run" in decision)) {
        return running.stopped === "claim_lost" ? lost(held()) : leave(releaseOf(held()));
      }
      let finish: RunFinish;
      let finished: Finished;
      try {
        // What functions return was held to the limit already.
        if (step.type !== "call" && decision.run.state !== run.state) {
          const what = `the state after "${run.cursor}"`;
          encodeJson(what, decision.run.state, { maxBytes: parts.maxResultBytes });
        }
        const { tenant } = row;
        const { ids, maxResultBytes: maxPayloadBytes } = parts;
        const startedBy = happens && "startedBy" in happens ? happens.startedBy : undefined;
        const children = decision.effects.some(({ type }) => type === "start_children")
          ? await rowsOfChildren(decision.effects, {
              ids,
              maxPayloadBytes,
              runId: claim.taskId,
              tenant,
              trace: tell.carried(),
              startedBy,
            })
          : [];
        finish = writeOf({ ...held(), wake: knownWake, looked }, decision, { children, startedBy });
        finished = await put(finish);
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed", ...untilMended)) throw error;
        refusals++;
        tell.refused(error);
        // What the store refuses for good is the fault of what was to be stored, so that counts as thrown.
        if (refusals > 2) return leave(releaseOf(held(), storeMs() + refusedMs));
        happens = { type: "threw", thrown: classify(refusal(error, refusals)) };
        continue;
      }
      if (finished.type === "woken") {
        running.wake = finished.wake;
        if (finished.cancelRequested) running.cancelSeen = true;
        // What was looked for may be there by now; what was done isn't done again.
        if (step.type !== "call") return undefined;
        continue;
      }
      if (finished.type === "lost") return { type: "driven", finish, finished };
      tell.stored(decision, begun, storeMs());
      if (decision.type !== "commit") return { type: "driven", finish, finished };
      running.runSeq = ++seq;
      ({ run } = decision);
      columns = toColumns(run);
      const { held: isHeld = false, wake = running.wake, cancelRequested } = finished.run ?? {};
      running.wake = wake;
      if (cancelRequested === true) running.cancelSeen = true;
      // It was taken for dead, and what it did counts, but the rest is for somebody else.
      return isHeld ? undefined : { type: "driven", finish, finished: { type: "lost" } };
    }
  }

  function decide(step: Step, happened: Happened | undefined, now: Now): Decision {
    if (happened === undefined && step.type !== "decided" && "error" in input) {
      return refuseInput(machine, run, input.error, now);
    }
    // What was decided may be decided anew, where the run was woken meanwhile.
    if (happened === undefined) {
      const again = nextStep(now);
      if (again.type === "decided") return again.decision;
      return { type: "release" };
    }
    return advance(machine, run, happened, now);
  }

  function lost(at: Held): Driven {
    return { type: "driven", finish: releaseOf(at), finished: { type: "lost" } };
  }
}

const refusedAgain = { baseMs: 1_000, maxMs: 60_000 };

/** The way of a run's writes to the store. */
function createSending(running: Running, parts: DriveParts, tell: Telling) {
  const { clock, random } = parts;

  /** Nobody else writes what this claim has come to, so it is sent for as long as nobody knows what became of it. */
  const send = async (finish: RunFinish): Promise<Finished> => {
    for (let tries = 1; ; tries++) {
      try {
        return await new Promise((resolve, reject) => parts.finishing.put(finish, resolve, reject));
      } catch (error) {
        if (parts.signal.aborted || !hasCode(error, ...untilMended)) throw error;
        await sleep(clock, backoffMs(tries, random, refusedAgain), parts.signal);
      }
    }
  };
  const put = (finish: RunFinish) => {
    const { progress } = parts;
    // What another attempt may ask for is stored first; what belongs to what is done never is.
    if (!finish.run.moved && progress.isUnsaved(running)) {
      return progress.leave(running).then(() => send(finish));
    }
    progress.forget(running);
    return send(finish);
  };

  /** Gives the run back as it is; where even that is refused, again later. */
  const leave = async (finish: RunFinish): Promise<Driven> => {
    for (let tries = 1; ; tries++) {
      try {
        return { type: "driven", finish, finished: await put(finish) };
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed", ...untilMended)) throw error;
        tell.stuck(error);
        await sleep(clock, backoffMs(tries, random, refusedAgain), parts.signal);
      }
    }
  };

  return { put, leave };
}

/** Whether it is a flow that can be run. */
export function isFlow(given: unknown): given is Flow {
  const { isFlow: is, parts } = (given ?? {}) as Partial<Machine>;
  return is === true && Array.isArray(parts);
}

/** A flow as a pod works with it: its runs are claimed like tasks, and driven. */
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
