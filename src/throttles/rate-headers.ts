/** A `Headers` object, or a plain object, as on errors of many libraries. */
export type HeadersLike =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | string[] | undefined>>;

export type LimitHeaders = {
  readonly retryAfterMs?: number;
  readonly limitedBy?: "rate";
};

/**
 * Reads from a refusal's headers when to come back: `Retry-After`, or else the reset of a limit that is
 * used up, in the formats of OpenAI, Anthropic, GitHub and the IETF draft.
 */
export function readLimitHeaders(headers: HeadersLike | undefined, nowMs: number): LimitHeaders {
  if (!headers || typeof headers !== "object") return {};
  const read = (name: string) => readHeader(headers, name);
  // Dates come from the server's clock, so they are compared with its `Date`.
  const sentMs = Date.parse(read("date") ?? "");
  const serverMs = Number.isNaN(sentMs) ? nowMs : sentMs;
  const resets = usedUpResets(read, serverMs);
  const retryAfterMs =
    milliseconds(read("retry-after-ms") ?? read("x-ms-retry-after-ms")) ??
    delay(read("retry-after"), serverMs) ??
    (resets.length > 0 ? Math.max(...resets) : undefined);
  return {
    ...(retryAfterMs !== undefined && { retryAfterMs: Math.ceil(retryAfterMs) }),
    ...(resets.length > 0 && { limitedBy: "rate" }),
  };
}

const limits = [
  ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
  ["x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
  ...["requests", "tokens", "input-tokens", "output-tokens"].map((unit) => [
    `anthropic-ratelimit-${unit}-remaining`,
    `anthropic-ratelimit-${unit}-reset`,
  ]),
  ["x-ratelimit-remaining", "x-ratelimit-reset"],
  ["ratelimit-remaining", "ratelimit-reset"],
] as [remaining: string, reset: string][];

function usedUpResets(read: (name: string) => string | undefined, serverMs: number): number[] {
  const found: number[] = [];
  for (const [remaining, reset] of limits) {
    if (read(remaining)?.trim() !== "0") continue;
    const resetMs = delay(read(reset), serverMs);
    if (resetMs !== undefined) found.push(resetMs);
  }
  // The later form of the draft: `"default";r=0;t=12`, one per policy.
  for (const [, rest = ""] of (read("ratelimit") ?? "").matchAll(/"[^"]*"((?:;\s*\w+=[^;,]+)*)/g)) {
    if (!/;\s*r=0(?:$|;)/.test(rest)) continue;
    const resetMs = delay(/;\s*t=(\d+)/.exec(rest)?.[1], serverMs);
    if (resetMs !== undefined) found.push(resetMs);
  }
  return found;
}

// Larger numbers are Unix times, smaller ones are waits.
const maxWaitS = 1e8;

/** Parses a wait: seconds, a duration such as `6m0s` or `120ms`, or a date. */
function delay(text: string | undefined, serverMs: number): number | undefined {
  if (text === undefined) return undefined;
  const trimmed = text.trim();
  if (/^\d+(?:\.\d+)?$/.test(trimmed)) {
    const seconds = Number(trimmed);
    if (seconds < maxWaitS) return seconds * 1_000;
    return Math.max(0, (seconds > 1e11 ? seconds : seconds * 1_000) - serverMs);
  }
  const length = lengthOfTime(trimmed);
  if (length !== undefined) return length;
  const atMs = Date.parse(trimmed);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - serverMs);
}

const unitsMs: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

function lengthOfTime(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|[dhms]))+$/.test(text)) return undefined;
  let sumMs = 0;
  for (const [, count, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|[dhms])/g)) {
    sumMs += Number(count) * unitsMs[unit!]!;
  }
  return sumMs;
}

function milliseconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+(?:\.\d+)?$/.test(text.trim()) ? Number(text) : undefined;
}

function readHeader(headers: HeadersLike, name: string): string | undefined {
  if (typeof headers.get === "function") return headers.get(name) ?? undefined;
  const plain = headers as Readonly<Record<string, string | string[] | undefined>>;
  const value =
    plain[name] ?? Object.entries(plain).find(([each]) => each.toLowerCase() === name)?.[1];
  const first = Array.isArray(value) ? value[0] : value;
  return typeof first === "string" ? first : undefined;
}
