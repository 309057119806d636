import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  trace,
  TraceFlags,
} from "@opentelemetry/api";
import type { Clock } from "../../base/clock.ts";
import { contextOfText, textOfContext, type TraceContext } from "../../base/trace-context.ts";
import {
  activeTracer,
  failSpan,
  inSpan,
  messaging,
  quietly,
  remoteContext,
  spanText,
  traceIdOf,
} from "../../tasks/trace.ts";
import type { Machine } from "../machine.ts";
import type { RunError } from "../decide/run.ts";
import type { TaskAttempt } from "../../tasks/model.ts";

/** An attempt at a transition or finalizer. */
export type TracedAttempt = { readonly transition: string; readonly attempt: number };

export type TracedOutcome = { readonly outcome: string; readonly error?: RunError | null };

export type RunTrace = {
  readonly traceId: string | undefined;
  /** The context of the run's span, for its row, until it is stored. */
  toStore(): string | null;
  /** The same for the write that ends the run: its span is no longer open. */
  toStoreEnded(): string | null;
  /** The context is stored. */
  stored(): void;
  /** Runs an attempt in its own span, which stays open until `endAttempt` or `endClaim`. */
  traceAttempt<Result>(tried: TracedAttempt, run: () => Result): Result;
  /** The parent context of runs that this run starts now. */
  childContext(): string | null;
  /** Ends the attempt's span, or makes one of this length for a step without an attempt. */
  endAttempt(tried: TracedAttempt, became: TracedOutcome, tookMs: number): void;
  /** Ends the span of an open attempt, and the run's span where the run has ended. */
  endClaim(run: TracedOutcome | undefined, attempt: TracedOutcome): void;
};

/**
 * The spans of a claim. A run has one span, which begins with its first claim and ends with its last. The
 * first write stores the span's context in the row, with its parent and its start. Each later claim makes
 * its spans children of that. The pod of the last claim exports the span under the stored id. So a run is
 * one trace, on every pod and after every crash. If the first claim never wrote, the next one begins the
 * span again, as a child of the context that started the run.
 */
export function traceRun(
  machine: Machine,
  { claim }: TaskAttempt,
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
  const { context: before, open } = contextOfRun(claim.trace);
  // Where pods didn't trace before, the run may have been written without a span.
  const isFirst = claim.run!.seq === 0 || before === undefined;
  const start = (startTime?: number) =>
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
        ...(startTime !== undefined && { startTime }),
      },
      // Never the active context: any caller's request may have triggered this claim.
      remoteContext(ROOT_CONTEXT, before),
    );
  const startMs = parts.clock.now();
  const span = isFirst ? quietly(() => start()) : undefined;
  const text = span && quietly(() => spanText(span));
  const own = contextOfText(text);
  const parent: Context = span
    ? trace.setSpan(ROOT_CONTEXT, span)
    : remoteContext(ROOT_CONTEXT, before);
  let isStored = text === undefined;
  let current: Span | undefined;

  const startAttempt = ({ transition, attempt }: TracedAttempt, startTime?: number) =>
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
  const end = (ended: Span, what: "run" | "transition", { outcome, error }: TracedOutcome) =>
    quietly(() => {
      if (ended.isRecording()) {
        ended.setAttribute(`flotilla.${what}.outcome`, outcome);
        if (error) failSpan(ended, error);
      }
      ended.end();
    });

  return {
    traceId: traceIdOf(span, claim.trace),
    toStore: () =>
      isStored || !own ? null : textOfOpen(own, { parentId: before?.spanId, startMs }),
    toStoreEnded() {
      if (own) return text!;
      return before && open ? textOfContext(before) : null;
    },
    stored() {
      isStored = true;
    },
    traceAttempt(tried, run) {
      current = startAttempt(tried);
      return current ? inSpan(current, run) : run();
    },
    childContext() {
      const tried = current;
      const ofRun = text ?? (before ? textOfContext(before) : claim.trace);
      return (tried && quietly(() => spanText(tried))) ?? ofRun;
    },
    endAttempt(tried, became, tookMs) {
      const ended = current ?? startAttempt(tried, parts.clock.now() - tookMs);
      current = undefined;
      if (ended) end(ended, "transition", became);
    },
    endClaim(run, attempt) {
      if (current) end(current, "transition", attempt);
      current = undefined;
      if (!run) {
        if (span) leave(span);
      } else if (span) {
        end(span, "run", run);
      } else if (before && open) {
        const again = quietly(() => start(open.startMs));
        if (!again) return;
        quietly(() => takeOver(again, before, open));
        end(again, "run", run);
      }
    },
  };
}

/** The stored parent and start of a span that isn't exported yet. */
type OpenSpan = { readonly parentId: string | undefined; readonly startMs: number };

const openPattern = /^flotilla=([\da-f]{16})-(\d{1,15})$/;
const noParent = "0".repeat(16);

/** Stored as a vendor's entry in `tracestate`, which pods of earlier releases pass on. */
function textOfOpen(own: TraceContext, { parentId = noParent, startMs }: OpenSpan): string {
  const entry = `flotilla=${parentId}-${Math.floor(startMs)}`;
  const withOthers = textOfContext({
    ...own,
    state: own.state === undefined ? entry : `${entry},${own.state}`,
  });
  // If that is too long, the other vendors' entries are left out.
  return withOthers.includes(entry) ? withOthers : textOfContext({ ...own, state: entry });
}

function contextOfRun(text: unknown): {
  readonly context: TraceContext | undefined;
  readonly open?: OpenSpan;
} {
  const context = contextOfText(text);
  const [first, ...others] = context?.state?.split(",") ?? [];
  const [, parentId, startMs] = openPattern.exec(first ?? "") ?? [];
  if (!context || parentId === undefined) return { context };
  return {
    context: { ...context, state: others.length === 0 ? undefined : others.join(",") },
    open: {
      parentId: parentId === noParent ? undefined : parentId,
      startMs: Number(startMs),
    },
  };
}

/**
 * Gives a span the stored id, because the API can't start a span with a given id. These are the fields
 * that exporters read. An SDK with other spans exports a child of the stored one instead.
 */
function takeOver(span: Span, { traceId, spanId, flags }: TraceContext, { parentId }: OpenSpan) {
  const { traceState } = span.spanContext();
  const shared = { traceId, traceFlags: flags, ...(traceState && { traceState }) };
  const parentSpanContext = parentId && { ...shared, spanId: parentId, isRemote: true };
  Object.assign(span, {
    spanContext: () => ({ ...shared, spanId }),
    parentSpanContext,
    // Read by releases of the SDK before 2.0.
    parentSpanId: parentId,
  });
}

/** Ends a span that another claim will export. Marked as not sampled, so that processors skip it. */
function leave(span: Span): void {
  quietly(() => {
    const left = { ...span.spanContext(), traceFlags: TraceFlags.NONE };
    Object.assign(span, { spanContext: () => left });
  });
  quietly(() => span.end());
}
