import { FlotillaError } from "../base/errors.ts";
import { encodeJson } from "../base/json.ts";
import type { Json } from "../base/jsonify.ts";
import type { Logger } from "../base/log.ts";
import { check } from "../base/schema.ts";
import type { Database } from "../store/database.ts";
import { type Middleware, runAround } from "./middleware.ts";
import type { Progress } from "./progress.ts";
import type { Claim } from "./row.ts";
import type { Ending } from "./settle.ts";
import type { TaskContext, TaskHandler } from "./task.ts";
import { inSpan, type RunSpan, startRunSpan, traceIdOf } from "./trace.ts";
import { endUnmet, readParents } from "./waits.ts";
import { completeWithin, resultText } from "./within.ts";

/** Why a running attempt was told to stop. */
export type StopReason = "timeout" | "cancel" | "shutdown" | "claim_lost";

/** One attempt under way on this pod. */
export type Running = {
  readonly claim: Claim;
  readonly handler: TaskHandler;
  readonly startedMs: number;
  /** When the worker must look at it again: its timeout, then the end of its grace. */
  actAtMs: number;
  /** The `wake` last seen, which a later decision must not miss. */
  wake: number;
  stopped: StopReason | undefined;
  /** Set once, when the worker has taken its ending; a handler that settles later changes nothing. */
  ended: boolean;
  /** Set once the handler has asked to complete it in a transaction of its own. */
  completing: boolean;
  controller: AbortController | undefined;
  /** Only where the program traces. */
  span: RunSpan | undefined;
};

export function startedRun(claim: Claim, handler: TaskHandler, nowMs: number): Running {
  return {
    claim,
    handler,
    startedMs: nowMs,
    actAtMs: nowMs + handler.options.timeoutMs,
    wake: claim.wake,
    stopped: undefined,
    ended: false,
    completing: false,
    controller: undefined,
    span: undefined,
  };
}

/** Tells the handler to stop. The first reason is the one that counts. */
export function stopRun(running: Running, reason: StopReason): void {
  if (running.stopped !== undefined) return;
  running.stopped = reason;
  running.controller?.abort(stopError(running));
}

function stopError({ claim, handler, stopped }: Running): FlotillaError {
  switch (stopped) {
    case "timeout":
      return new FlotillaError(
        "timeout",
        `the attempt took longer than ${handler.options.timeoutMs} ms`,
      );
    case "claim_lost":
      return new FlotillaError("claim_lost", `another pod has task ${claim.taskId} now`);
    case "cancel":
      return new FlotillaError("cancelled", `task ${claim.taskId} was cancelled`);
    case "shutdown":
    case undefined:
      return new FlotillaError("cancelled", "this pod is shutting down");
  }
}

export type RunParts = {
  database: Database;
  progress: Pick<Progress, "last" | "save">;
  log: Logger;
  podId: string;
  maxResultBytes: number;
  middleware: readonly Middleware[];
};

/** Runs the handler on a claimed task. Never rejects: whatever happens is an ending. */
export async function runHandler(running: Running, parts: RunParts): Promise<Ending> {
  const { claim, handler } = running;
  if (claim.doomed) return endUnmet(parts.database, claim.taskId);
  const span = (running.span = startRunSpan(claim, parts.podId));
  try {
    const stored = parsePayload(claim);
    const checked = check(
      handler.input,
      stored,
      `the stored payload of "${claim.name}"`,
      "invalid_input",
    );
    const input: unknown = checked instanceof Promise ? await checked : checked;
    const context = contextOf(running, input, parts);
    const { middleware } = parts;
    const run = () =>
      middleware.length > 0 ? runAround(middleware, context, handler.run) : handler.run(context);
    const returned: unknown = await (span ? inSpan(span, run) : run());
    const text = resultText(running, returned, parts.maxResultBytes);
    return { type: "returned", result: text instanceof Promise ? await text : text };
  } catch (thrown) {
    return endingOf(running, thrown);
  }
}

/** What it means that a handler threw, or never settled, after it was told to stop. */
export function endingOf(running: Running, thrown: unknown): Ending {
  switch (running.stopped) {
    case "timeout":
      return { type: "timed_out", timeoutMs: running.handler.options.timeoutMs };
    case "cancel":
      return { type: "cancelled" };
    case "shutdown":
    case "claim_lost":
      return { type: "interrupted" };
    case undefined:
      return { type: "threw", thrown };
  }
}

function parsePayload(claim: Claim): unknown {
  try {
    return JSON.parse(claim.payload);
  } catch (error) {
    throw new FlotillaError("invalid_input", `the stored payload of "${claim.name}" isn't JSON`, {
      cause: error,
    });
  }
}

function contextOf(running: Running, input: unknown, parts: RunParts): TaskContext<unknown> {
  const { claim } = running;
  return {
    input,
    taskId: claim.taskId,
    name: claim.name,
    attempt: claim.failures + 1,
    snoozes: claim.snoozes,
    scheduledAtMs: claim.scheduledAtMs,
    token: claim.token,
    // Most handlers never look at it, and a controller costs more than a short task.
    get signal() {
      if (!running.controller) {
        running.controller = new AbortController();
        if (running.stopped) running.controller.abort(stopError(running));
      }
      return running.controller.signal;
    },
    progress: (value: Json) => {
      if (!running.ended) parts.progress.save(running, encodeJson("progress", value));
    },
    parents: () => readParents(parts.database, claim.taskId),
    lastProgress: () => parts.progress.last(running),
    complete: (tx, result) => completeWithin(running, tx, result, parts),
    get log() {
      return taskLogger(running, parts);
    },
  };
}

export function taskFields({ claim, span }: Running, podId: string) {
  const traceId = traceIdOf(span, claim.trace);
  return {
    task: claim.taskId,
    name: claim.name,
    pod: podId,
    attempt: claim.failures + 1,
    token: claim.token,
    ...(traceId !== undefined && { trace_id: traceId }),
  };
}

function taskLogger(running: Running, { log, podId }: RunParts): Logger {
  const fields = taskFields(running, podId);
  return {
    debug: (more, message) => log.debug({ ...fields, ...more }, message),
    info: (more, message) => log.info({ ...fields, ...more }, message),
    warn: (more, message) => log.warn({ ...fields, ...more }, message),
    error: (more, message) => log.error({ ...fields, ...more }, message),
  };
}
