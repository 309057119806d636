/** OpenTelemetry's own SDK, which tells of every span that has ended. */
import { type Attributes, context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
  TracerProvider,
} from "@opentelemetry/sdk-trace";

/** What a test asks of a span, as plain data that can cross processes. */
export type Told = {
  readonly name: string;
  readonly kind: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly startMs: number;
  readonly endMs: number;
  readonly sampled: boolean;
  readonly state: string | undefined;
  readonly attributes: Attributes;
  readonly status: string;
  readonly exceptions: (string | undefined)[];
  /** The names of its other events, with the keys of steps. */
  readonly events: string[];
};

/** Registers the SDK for this process. Gives how to take it out again. */
export function registerSdk(
  onSpan: (span: Told) => void,
  options: { sampler?: Sampler; broken?: boolean } = {},
): () => void {
  const exporter = {
    export(spans: ReadableSpan[], done: (result: { code: number }) => void) {
      for (const span of spans) onSpan(tell(span));
      done({ code: 0 });
    },
    shutdown: async () => {},
    forceFlush: async () => {},
  };
  const breaking = {
    onStart() {
      throw new Error("a span processor of somebody's");
    },
    onEnd() {},
    shutdown: async () => {},
    forceFlush: async () => {},
  };
  const provider = new TracerProvider({
    spanProcessors: [options.broken ? breaking : new SimpleSpanProcessor({ exporter })],
    ...(options.sampler && { sampler: options.sampler }),
  });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager());
  return () => {
    trace.disable();
    context.disable();
  };
}

function tell(span: ReadableSpan): Told {
  const { traceId, spanId, traceFlags, traceState } = span.spanContext();
  return {
    name: span.name,
    kind: SpanKind[span.kind],
    traceId,
    spanId,
    parentId: span.parentSpanContext?.spanId,
    startMs: msOf(span.startTime),
    endMs: msOf(span.endTime),
    sampled: traceFlags === 1,
    state: traceState?.serialize(),
    attributes: span.attributes,
    status: SpanStatusCode[span.status.code],
    exceptions: span.events
      .filter(({ name }) => name === "exception")
      .map((event) => String(event.attributes?.["exception.message"])),
    events: span.events
      .filter(({ name }) => name !== "exception")
      .map(({ name, attributes }) => `${name} ${String(attributes?.["flotilla.step.key"])}`),
  };
}

function msOf([seconds, nanoseconds]: ReadableSpan["startTime"]): number {
  return seconds * 1_000 + nanoseconds / 1_000_000;
}
