/** How far back plots look, as it is in the address, and how much time a point stands for. */
export const spans = {
  "1h": { name: "1 h", ms: 3_600_000, step: "minute" },
  "6h": { name: "6 h", ms: 6 * 3_600_000, step: "minute" },
  "24h": { name: "24 h", ms: 24 * 3_600_000, step: "minute" },
  "7d": { name: "7 d", ms: 7 * 86_400_000, step: "hour" },
  "30d": { name: "30 d", ms: 30 * 86_400_000, step: "hour" },
} as const;

export type Span = keyof typeof spans;

const defaultSpan: Span = "1h";

/** The span of an address. What is no span is the shortest one. */
export function spanNamed(text: string | undefined): Span {
  return text !== undefined && Object.hasOwn(spans, text) ? (text as Span) : defaultSpan;
}

/** As it is put into an address, which is without it for the span that is shown without one. */
export function spanSearch(span: Span): { span?: Span } {
  return span === defaultSpan ? {} : { span };
}
