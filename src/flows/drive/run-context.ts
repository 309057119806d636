import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import { type DriveParts, type Running, signalOf, stopError } from "../../tasks/run/attempt.ts";
import type { RunContext } from "./context.ts";
import { createHandoff, type Handoff } from "../decide/handoff.ts";

/** One attempt at a transition or finalizer. */
export type Attempt = {
  readonly running: Running;
  readonly parts: DriveParts;
  readonly version: number;
  readonly transition: string;
  readonly attempt: number;
  readonly input: unknown;
  readonly env: unknown;
  readonly state: unknown;
  /** Only for finalizers. */
  readonly outcome: unknown;
  /** The trace that its run belongs to, for the log. */
  readonly traceId: string | undefined;
  readonly handoff: Handoff;
  /** Set once it has ended, however it ended: what it does later isn't heard. */
  over: boolean;
};

export function startedAttempt(given: Omit<Attempt, "handoff" | "over">): Attempt {
  return { ...given, handoff: createHandoff(), over: false };
}

/**
 * What a function of a flow gets. Most look at little of it, so the rest is made when it is asked for; it
 * needs no `this`, because contexts are taken apart.
 */
export class AttemptContext implements RunContext<unknown, unknown> {
  readonly input: unknown;
  readonly env: unknown;
  readonly state: unknown;
  readonly outcome: unknown;
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  readonly transition: string;
  readonly attempt: number;
  readonly token: number;
  readonly handoff: Handoff["handoff"];
  readonly #attempt: Attempt;
  #signal: AbortSignal | undefined;

  constructor(attempt: Attempt) {
    const { running } = attempt;
    this.input = attempt.input;
    this.env = attempt.env;
    this.state = attempt.state;
    this.outcome = attempt.outcome;
    this.runId = running.claim.taskId;
    this.flow = running.claim.name;
    this.version = attempt.version;
    this.transition = attempt.transition;
    this.attempt = attempt.attempt;
    this.token = running.claim.token;
    this.handoff = attempt.handoff.handoff;
    this.#attempt = attempt;
  }

  get signal(): AbortSignal {
    const { running, over } = this.#attempt;
    // What runs by now under the same claim has a signal of its own.
    this.#signal ??= over ? AbortSignal.abort(stopError(running)) : signalOf(running);
    return this.#signal;
  }

  get progress(): (value: Json) => void {
    const attempt = this.#attempt;
    const { progress } = attempt.parts;
    return (value) => {
      if (!attempt.over) progress.save(attempt.running, encodeJson("progress", value));
    };
  }

  get lastProgress(): () => Promise<Json> {
    const { running, parts } = this.#attempt;
    return () => parts.progress.last(running);
  }

  get log(): Logger {
    const { parts } = this.#attempt;
    return withFields(parts.log, fieldsOf(this.#attempt));
  }
}

export function fieldsOf({
  running,
  parts,
  version,
  transition,
  attempt,
  traceId,
}: Pick<Attempt, "running" | "parts" | "version" | "transition" | "attempt" | "traceId">) {
  const { claim } = running;
  return {
    run_id: claim.taskId,
    flow: claim.name,
    run_version: version,
    transition,
    attempt,
    token: claim.token,
    pod: parts.podId,
    ...(traceId !== undefined && { trace_id: traceId }),
  };
}
