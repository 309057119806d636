/**
 * The W3C trace context, as one text that a task's row can carry: `traceparent`, followed by a
 * space and `tracestate` if there is any. Rows and headers may come from any program, so an invalid
 * context is ignored: a trace is never worth a failed task.
 */
export type TraceContext = {
  readonly traceId: string;
  readonly spanId: string;
  readonly flags: number;
  readonly state: string | undefined;
};

/** The same as two headers, as sent between programs. */
export type TraceHeaders = {
  readonly traceparent?: string | undefined;
  readonly tracestate?: string | undefined;
};

// A later version may add fields after these four, which are not passed on.
const parentPattern = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/;
const maxParentChars = 200;
// The length that the standard requires to be passed on; longer ones are dropped, as it allows.
const maxStateChars = 512;
const statePattern = /^[\u0020-\u007e]+$/;

export function contextOfHeaders({ traceparent, tracestate }: TraceHeaders) {
  if (typeof traceparent !== "string" || traceparent.length > maxParentChars) return undefined;
  const [, version, traceId, spanId, flags, more] = parentPattern.exec(traceparent.trim()) ?? [];
  if (version === undefined || version === "ff" || (version === "00" && more)) return undefined;
  if (/^0+$/.test(traceId!) || /^0+$/.test(spanId!)) return undefined;
  const context: TraceContext = {
    traceId: traceId!,
    spanId: spanId!,
    flags: Number.parseInt(flags!, 16),
    state: validState(tracestate),
  };
  return context;
}

export function contextOfText(text: unknown): TraceContext | undefined {
  if (typeof text !== "string" || text === "") return undefined;
  const end = text.indexOf(" ");
  if (end === -1) return contextOfHeaders({ traceparent: text });
  return contextOfHeaders({ traceparent: text.slice(0, end), tracestate: text.slice(end + 1) });
}

export function textOfContext({ traceId, spanId, flags, state }: TraceContext): string {
  const parent = `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, "0")}`;
  const passed = validState(state);
  return passed === undefined ? parent : `${parent} ${passed}`;
}

function validState(state: unknown): string | undefined {
  if (typeof state !== "string" || state.length > maxStateChars) return undefined;
  const trimmed = state.trim();
  return statePattern.test(trimmed) ? trimmed : undefined;
}
