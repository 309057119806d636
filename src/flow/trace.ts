import { type Context, ROOT_CONTEXT, type Span, SpanKind, trace } from "@opentelemetry/api";
import type { Clock } from "../base/clock.ts";
import { contextOfText } from "../base/trace-context.ts";
import type { Running } from "../queue/run.ts";
import {
  activeTracer,
  fail,
  inSpan,
  messaging,
  quietly,
  remote,
  textOf,
  traceIdOf,
} from "../queue/trace.ts";
import type { Machine } from "./machine.ts";
import type { RunError } from "./run.ts";

/** Which attempt at which transition or finalizer. */
export type Tried = { readonly transition: string; readonly attempt: number };

type Became = { readonly outcome: string; readonly error?: RunError | null };

export type RunTrace = {
  readonly traceId: string | undefined;
  /** The context of the run's span, for its row, until that has it. */
  toStore(): string | null;
  /** The row has it. */
  stored(): void;
  /** Runs an attempt within a span of its own, which stays open until something is noted of it. */
  attempting<Result>(tried: Tried, run: () => Result): Result;
  /** What is started now belongs to this context. */
  carried(): string | null;
  /** What became of the attempt that was made, or of what needed none and took as long as this. */
  noted(tried: Tried, became: Became, tookMs: number): void;
  /** The claim is over, and so is an attempt that it has left open. */
  over(run: Became, attempt: Became): void;
};

/**
 * The spans of a claim. A run has one span, which begins with its first claim; the first write stores its
 * context in the row, and whoever claims the run later makes what it does a child of that. So all of a
 * run is one trace, on every pod and after every crash, though a span can't be continued by another
 * process. What was never written is begun again, as a child of whatever started the run.
 */
export function traceRun(
  machine: Machine,
  { claim }: Running,
  parts: { podId: string; clock: Clock },
): RunTrace | undefined {
  const tracer = activeTracer();
  if (tracer === undefined) return undefined;
  const { name, version } = machine;
  const attributes = {
    "flotilla.run.id": claim.taskId,
    "flotilla.run.token": claim.token,
    "flotilla.flow.name": name,
    "flotilla.flow.version": version,
  };
  const before = contextOfText(claim.trace);
  // Where pods of this flow didn't trace before, there may be writes, but no span to belong to.
  const isFirst = claim.run!.seq === 0 || before === undefined;
  const start = () =>
    tracer.startSpan(
      `run ${name}`,
      {
        kind: SpanKind.CONSUMER,
        attributes: {
          ...messaging(name),
          "messaging.operation.name": "run",
          "messaging.operation.type": "process",
          "messaging.message.id": claim.taskId,
          "messaging.client.id": parts.podId,
          ...attributes,
        },
      },
      // Never what happens to be active: a claim may have been woken by anybody's request.
      remote(ROOT_CONTEXT, before),
    );
  const span = isFirst ? quietly(start) : undefined;
  const text = span && quietly(() => textOf(span));
  const parent: Context = span ? trace.setSpan(ROOT_CONTEXT, span) : remote(ROOT_CONTEXT, before);
  let isStored = text === undefined;
  let current: Span | undefined;

  const begin = ({ transition, attempt }: Tried, startTime?: number) =>
    quietly(() =>
      tracer.startSpan(
        `transition ${name}/${transition}`,
        {
          kind: SpanKind.INTERNAL,
          attributes: {
            ...attributes,
            "messaging.client.id": parts.podId,
            "flotilla.transition.name": transition,
            "flotilla.transition.attempt": attempt,
          },
          ...(startTime !== undefined && { startTime }),
        },
        parent,
      ),
    );
  const end = (ended: Span, what: "run" | "transition", { outcome, error }: Became) =>
    quietly(() => {
      if (ended.isRecording()) {
        ended.setAttribute(`flotilla.${what}.outcome`, outcome);
        if (error) fail(ended, error);
      }
      ended.end();
    });

  return {
    traceId: traceIdOf(span, claim.trace),
    toStore: () => (isStored ? null : text!),
    stored() {
      isStored = true;
    },
    attempting(tried, run) {
      current = begin(tried);
      return current ? inSpan(current, run) : run();
    },
    carried() {
      const open = current;
      return (open && quietly(() => textOf(open))) ?? text ?? claim.trace;
    },
    noted(tried, became, tookMs) {
      const ended = current ?? begin(tried, parts.clock.now() - tookMs);
      current = undefined;
      if (ended) end(ended, "transition", became);
    },
    over(run, attempt) {
      if (current) end(current, "transition", attempt);
      current = undefined;
      if (span) end(span, "run", run);
    },
  };
}
