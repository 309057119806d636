import {
  type Context,
  context,
  createTraceState,
  diag,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
  type TracerProvider,
} from "@opentelemetry/api";
import { FlotillaError, messageOf } from "../base/errors.ts";
import {
  contextOfHeaders,
  contextOfText,
  textOfContext,
  type TraceContext,
  type TraceHeaders,
} from "../base/trace-context.ts";
import { sharedRedactor } from "../redaction/redactor.ts";
import type { StepTrace } from "../steps/model.ts";
import type { Enqueued } from "./enqueue/options.ts";
import type { Claim, TaskError } from "./rows.ts";

/**
 * OpenTelemetry spans from enqueue to attempt. The context of the enqueue is stored with the task,
 * and every attempt is its child: after a retry, on another pod, after a crash. If the program has
 * registered no SDK, nothing is created, stored or allocated here.
 */
const tracerName = "flotilla";

export type EnqueueSpan = {
  readonly name: string;
  /** Tasks are enqueued, runs of flows are started. */
  readonly verb?: "enqueue" | "start";
  /** How many tasks a call for many enqueues. */
  readonly batch?: number;
  /** The caller's context, used if no span is active here. */
  readonly given: TraceHeaders | undefined;
};

export type AttemptSpan = Span;

/** The tracer of the registered SDK; undefined if there is none. */
export function activeTracer(): Tracer | undefined {
  const provider: TracerProvider & Delegating = trace.getTracerProvider();
  return provider.getDelegateTracer
    ? provider.getDelegateTracer(tracerName)
    : provider.getTracer(tracerName);
}

// The API returns a proxy for an SDK that may be registered later; the proxy knows whether one is.
type Delegating = { getDelegateTracer?: (name: string) => Tracer | undefined };

/**
 * The stored context if the program does not trace: the caller's, so that attempts can belong to
 * it.
 */
export function givenTrace(given: TraceHeaders | undefined): string | null {
  const parsed = given && contextOfHeaders(given);
  return parsed === undefined ? null : textOfContext(parsed);
}

/** The context of the active span, else the given one. */
export function activeTrace(given: TraceHeaders | undefined): string | null {
  const active = quietly(() => trace.getSpanContext(context.active()));
  if (active === undefined || !isSpanContextValid(active)) return givenTrace(given);
  const { traceId, spanId, traceFlags, traceState } = active;
  return textOfContext({ traceId, spanId, flags: traceFlags, state: traceState?.serialize() });
}

/** Stores tasks within a span, whose context goes into their rows. */
export async function tracedEnqueue<Answer>(
  tracer: Tracer,
  { name, verb = "enqueue", batch, given }: EnqueueSpan,
  store: (carried: string | null) => Promise<Answer>,
): Promise<Answer> {
  const active = context.active();
  const parent = trace.getSpanContext(active)
    ? active
    : remoteContext(active, given && contextOfHeaders(given));
  const span = quietly(() =>
    tracer.startSpan(
      `${verb} ${name}`,
      {
        kind: SpanKind.PRODUCER,
        attributes: {
          ...messaging(name),
          "messaging.operation.name": verb,
          "messaging.operation.type": "send",
          ...(batch !== undefined && { "messaging.batch.message_count": batch }),
        },
      },
      parent,
    ),
  );
  if (span === undefined) return store(givenTrace(given));
  try {
    const answer = await store(spanText(span));
    if (isEnqueued(answer)) noteEnqueued(span, answer);
    return answer;
  } catch (error) {
    const code = error instanceof FlotillaError ? error.code : "internal";
    quietly(() => failSpan(span, { code, message: messageOf(error) }));
    throw error;
  } finally {
    quietly(() => span.end());
  }
}

/** The span of one attempt, a child of the enqueue's span. */
export function startAttemptSpan(claim: Claim, podId: string): AttemptSpan | undefined {
  const tracer = activeTracer();
  if (tracer === undefined) return undefined;
  return quietly(() =>
    tracer.startSpan(
      `run ${claim.name}`,
      {
        kind: SpanKind.CONSUMER,
        attributes: {
          ...messaging(claim.name),
          "messaging.operation.name": "run",
          "messaging.operation.type": "process",
          "messaging.message.id": claim.taskId,
          "messaging.client.id": podId,
          "flotilla.task.attempt": claim.failures + 1,
          "flotilla.task.deaths": claim.deaths,
          "flotilla.task.token": claim.token,
        },
      },
      // Never the active context: any request may have woken the claim.
      remoteContext(ROOT_CONTEXT, contextOfText(claim.trace)),
    ),
  );
}

/** Runs a handler with its span active, so that the handler's spans become children. */
export function inSpan<Result>(
  span: AttemptSpan,
  run: () => Result,
  around = ROOT_CONTEXT,
): Result {
  const outcome: { result?: { readonly value: Result } | { readonly thrown: unknown } } = {};
  quietly(() =>
    context.with(trace.setSpan(around, span), () => {
      try {
        outcome.result = { value: run() };
      } catch (thrown) {
        outcome.result = { thrown };
      }
    }),
  );
  const { result } = outcome;
  if (result === undefined) return run();
  if ("thrown" in result) throw result.thrown;
  return result.value;
}

/**
 * Steps in traces: a span for each that runs, below the attempt or the step around it, and an event there
 * for each that is answered from the journal.
 */
export const stepTrace: StepTrace = {
  run({ name, path }, call) {
    const tracer = activeTracer();
    if (tracer === undefined) return call();
    const span = quietly(() => {
      const attributes = { "flotilla.step.key": sharedRedactor.text(path) };
      return tracer.startSpan(`step ${sharedRedactor.text(name)}`, { attributes });
    });
    if (span === undefined) return call();
    return inSpan(span, () => endedWith(span, call), context.active());
  },
  answered(key) {
    quietly(() => {
      const span = trace.getActiveSpan();
      span?.addEvent("step answered", { "flotilla.step.key": sharedRedactor.text(key) });
    });
  },
};

async function endedWith<Result>(span: Span, call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    const code = error instanceof FlotillaError ? error.code : "handler_failed";
    quietly(() => failSpan(span, { code, message: messageOf(error) }));
    throw error;
  } finally {
    quietly(() => span.end());
  }
}

/** Ends the span of an attempt with its outcome and stored error. */
export function endAttemptSpan(span: AttemptSpan, outcome: string, error: string | null): void {
  quietly(() => {
    if (span.isRecording()) {
      span.setAttribute("flotilla.task.outcome", outcome);
      if (error !== null) failSpan(span, JSON.parse(error) as TaskError);
    }
    span.end();
  });
}

/** The trace id of an attempt, for its logs. */
export function traceIdOf(
  span: AttemptSpan | undefined,
  carried: string | null,
): string | undefined {
  const own = span && quietly(() => span.spanContext().traceId);
  return own ?? contextOfText(carried)?.traceId;
}

export function messaging(name: string) {
  return { "messaging.system.name": "flotilla", "messaging.destination.name": name };
}

/** Records a stored error on a span, without secrets in its text: traces have readers of their own. */
export function failSpan(span: Span, error: TaskError): void {
  if (!span.isRecording()) return;
  const { code } = error;
  const message = sharedRedactor.text(error.message);
  const stack = error.stack === undefined ? undefined : sharedRedactor.text(error.stack);
  span.setAttribute("error.type", code);
  span.recordException({ name: code, message, ...(stack !== undefined && { stack }) });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

/** An SDK that throws may cost a span, never a task. */
export function quietly<Result>(action: () => Result): Result | undefined {
  try {
    return action();
  } catch (error) {
    diag.error(`flotilla: a span was lost: ${messageOf(error)}`);
    return undefined;
  }
}

/** The context of a span, as stored. */
export function spanText(span: Span): string {
  const { traceId, spanId, traceFlags, traceState } = span.spanContext();
  return textOfContext({ traceId, spanId, flags: traceFlags, state: traceState?.serialize() });
}

/** A context whose parent span is in another process. */
export function remoteContext(base: Context, from: TraceContext | undefined): Context {
  if (from === undefined) return base;
  const { traceId, spanId, flags, state } = from;
  return trace.setSpanContext(base, {
    traceId,
    spanId,
    traceFlags: flags,
    isRemote: true,
    ...(state !== undefined && { traceState: createTraceState(state) }),
  });
}

function noteEnqueued(span: Span, { taskId, created }: Enqueued): void {
  quietly(() => {
    if (!span.isRecording()) return;
    span.setAttribute("messaging.message.id", taskId);
    span.setAttribute("flotilla.task.created", created);
  });
}

function isEnqueued(answer: unknown): answer is Enqueued {
  return typeof answer === "object" && answer !== null && "taskId" in answer;
}
