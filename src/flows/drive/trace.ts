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
import type { TaskAttempt } from "../../tasks/run/attempt.ts";
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

/** Which attempt at which transition or finalizer. */
export type TracedAttempt = { readonly transition: string; readonly attempt: number };

export type TracedOutcome = { readonly outcome: string; readonly error?: RunError | null };

export type RunTrace = {
  readonly traceId: string | undefined;
  /** The context of the run's span, for its row, until that has it. */
  toStore(): string | null;
  /** The same for the write that ends the run: its span is no longer open. */
  toStoreEnded(): string | null;
  /** The row has it. */
  stored(): void;
  /** Runs an attempt within a span of its own, which stays open until something is noted of it. */
  traceAttempt<Result>(tried: TracedAttempt, run: () => Result): Result;
  /** What is started now belongs to this context. */
  childContext(): string | null;
  /** What became of the attempt that was made, or of what needed none and took as long as this. */
  endAttempt(tried: TracedAttempt, became: TracedOutcome, tookMs: number): void;
  /** The claim is over, and so is an attempt that it has left open. Where the run has ended, so has its span. */
  endClaim(run: TracedOutcome | undefined, attempt: TracedOutcome): void;
};

/**
 * The spans of a claim. A run has one span, which begins with its first claim and ends with the one that
 * ends the run. The first write stores its context in the row, with its parent and its start, and each
 * later claim makes what it does a child of that; the pod of the claim that ends the run exports the span
 * under the id that its children name. So all of a run is one trace, on every pod and after every crash.
 * What was never written is begun again, as a child of what started the run.
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
  // Where pods of this flow didn't trace before, there may be writes, but no span to belong to.
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
      // Never what happens to be active: a claim may have been woken by anybody's request.
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

/** What else the row holds of a span that has begun and isn't exported yet. */
type OpenSpan = { readonly parentId: string | undefined; readonly startMs: number };

const openPattern = /^flotilla=([\da-f]{16})-(\d{1,15})$/;
const noParent = "0".repeat(16);

/** An entry of `tracestate` is what a vendor may add to a context; pods of earlier releases pass it on. */
function textOfOpen(own: TraceContext, { parentId = noParent, startMs }: OpenSpan): string {
  const entry = `flotilla=${parentId}-${Math.floor(startMs)}`;
  const withOthers = textOfContext({
    ...own,
    state: own.state === undefined ? entry : `${entry},${own.state}`,
  });
  // Where both are too long, it is the others' that is left out.
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
 * Makes a span say that it is the one whose context is stored, since the API starts none with a given id.
 * What is set here is what exporters read; an SDK whose spans are otherwise made exports a child of it.
 */
function takeOver(span: Span, { traceId, spanId, flags }: TraceContext, { parentId }: OpenSpan) {
  const { traceState } = span.spanContext();
  const shared = { traceId, traceFlags: flags, ...(traceState && { traceState }) };
  const parentSpanContext = parentId && { ...shared, spanId: parentId, isRemote: true };
  Object.assign(span, {
    spanContext: () => ({ ...shared, spanId }),
    parentSpanContext,
    // Releases of the SDK before 2.0 have this in its place.
    parentSpanId: parentId,
  });
}

/** Ends a span here that another claim will export: processors pass over what isn't sampled. */
function leave(span: Span): void {
  quietly(() => {
    const left = { ...span.spanContext(), traceFlags: TraceFlags.NONE };
    Object.assign(span, { spanContext: () => left });
  });
  quietly(() => span.end());
}
