/** A `Headers` object, or a plain object, as on errors of many libraries. */
export type HeadersLike =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | string[] | undefined>>;

/** What an answer says about one of the downstream's limits per time. */
export type Quota = {
  /** Tells the limits of one downstream apart, such as those per minute and per day. */
  readonly name: string;
  /** Where the downstream has several of one kind, of which a call counts against one: that kind. */
  readonly oneOf?: string;
  readonly unit: "requests" | "tokens";
  readonly remaining: number;
  readonly limit?: number;
  /** How long until all of the limit is available again. */
  readonly resetMs?: number;
  /** The time that the limit is for, where that is known. */
  readonly windowMs?: number;
  /** Whether used units come back one after the other, or all at once at the reset. */
  readonly refills: "steadily" | "at_reset";
};

export type LimitHeaders = {
  readonly retryAfterMs?: number;
  readonly limitedBy?: "rate";
};

/**
 * Reads from a refusal's headers when to come back, and whether a limit per time is used up. The reset of
 * such a limit is waited for by the pod itself, because it may be that of all of the limit, or wrong.
 */
export function readLimitHeaders(headers: HeadersLike | undefined, nowMs: number): LimitHeaders {
  if (!headers || typeof headers !== "object") return {};
  const read = readerOf(headers);
  const serverMs = serverTimeMs(read, nowMs);
  const usedUp = quotasIn(read, serverMs).some(
    (quota) => quota.remaining === 0 && isPlausible(quota),
  );
  const retryAfterMs =
    milliseconds(read("retry-after-ms") ?? read("x-ms-retry-after-ms")) ??
    delay(read("retry-after"), serverMs);
  return {
    ...(retryAfterMs !== undefined && { retryAfterMs: Math.ceil(retryAfterMs) }),
    ...(usedUp && { limitedBy: "rate" }),
  };
}

/**
 * Reads the limits per time that an answer states, in the formats of OpenAI (also Azure, Groq and many
 * others), Anthropic, Mistral, GitHub and the drafts of the IETF. What makes no sense is left out.
 */
export function readQuotas(headers: HeadersLike | undefined, nowMs: number): Quota[] {
  if (!headers || typeof headers !== "object") return [];
  const read = readerOf(headers);
  return quotasIn(read, serverTimeMs(read, nowMs)).filter(isPlausible);
}

/** The same of what a caller has passed, which may be any object, also one whose getters throw. */
export function readAnyQuotas(headers: HeadersLike, nowMs: number): Quota[] {
  try {
    return readQuotas(headers, nowMs);
  } catch {
    return [];
  }
}

type Family = {
  readonly unit: Quota["unit"];
  readonly limit: string;
  readonly remaining: string;
  readonly reset?: string;
  /** Names the part of the downstream that the limit is for, where each has one of its own. */
  readonly resource?: string;
  readonly windowMs?: number;
  readonly refills: Quota["refills"];
};

const minuteMs = 60_000;

/** One row for each limit that a provider states in headers of its own. The remaining units name it. */
const families: readonly Family[] = [
  ...(["requests", "tokens"] as const).map((unit): Family => ({
    unit,
    limit: `x-ratelimit-limit-${unit}`,
    remaining: `x-ratelimit-remaining-${unit}`,
    reset: `x-ratelimit-reset-${unit}`,
    refills: "steadily",
  })),
  ...["requests", "tokens", "input-tokens", "output-tokens"].map((unit): Family => ({
    unit: unit === "requests" ? "requests" : "tokens",
    limit: `anthropic-ratelimit-${unit}-limit`,
    remaining: `anthropic-ratelimit-${unit}-remaining`,
    reset: `anthropic-ratelimit-${unit}-reset`,
    windowMs: minuteMs,
    refills: "steadily",
  })),
  ...(["req", "tokens"] as const).map((unit): Family => ({
    unit: unit === "req" ? "requests" : "tokens",
    limit: `x-ratelimit-limit-${unit}-minute`,
    remaining: `x-ratelimit-remaining-${unit}-minute`,
    windowMs: minuteMs,
    refills: "at_reset",
  })),
  ...["x-ratelimit", "ratelimit"].map((start): Family => ({
    unit: "requests",
    limit: `${start}-limit`,
    remaining: `${start}-remaining`,
    reset: `${start}-reset`,
    resource: `${start}-resource`,
    refills: "at_reset",
  })),
];

type Read = (name: string) => string | undefined;

function quotasIn(read: Read, serverMs: number): Quota[] {
  const found: Quota[] = [];
  for (const { unit, limit, remaining, reset, resource, windowMs, refills } of families) {
    const left = amount(read(remaining));
    if (left === undefined) continue;
    const part = resource === undefined ? undefined : nameOf(read(resource));
    const stated = read(limit);
    const most = amount(stated);
    if (stated !== undefined && most === undefined) continue;
    const resetMs = reset === undefined ? undefined : delay(read(reset), serverMs);
    const forMs =
      windowMs ?? (reset === "ratelimit-reset" ? policyWindowMs(read, most) : undefined);
    found.push({
      name: part === undefined ? remaining : `${remaining} "${part}"`,
      unit,
      remaining: left,
      refills,
      ...(part !== undefined && { oneOf: remaining }),
      ...(most !== undefined && { limit: most }),
      ...(resetMs !== undefined && { resetMs }),
      ...(forMs !== undefined && { windowMs: forMs }),
    });
  }
  return [...found, ...draftQuotas(read)];
}

/** The later forms of the draft: `"default";r=0;t=12`, one per policy, and `limit=9, remaining=0, reset=12`. */
function draftQuotas(read: Read): Quota[] {
  const items = itemsOf(read("ratelimit"));
  if (items.length === 0) return [];
  const policies = itemsOf(read("ratelimit-policy"));
  const single = new Map(items.flatMap(({ parameters }) => [...parameters]));
  const stated = single.has("remaining")
    ? [{ name: "", limit: "limit", remaining: "remaining", reset: "reset", parameters: single }]
    : items.map(({ name, parameters }) => ({
        name,
        limit: "q",
        remaining: "r",
        reset: "t",
        parameters,
      }));
  return stated.flatMap(({ name, limit, remaining, reset, parameters }): Quota[] => {
    const left = amount(parameters.get(remaining));
    if (left === undefined) return [];
    const policy =
      policies.find((each) => each.name === name) ?? (name === "" ? policies[0] : undefined);
    const unitOf = policy?.parameters.get("qu") ?? "requests";
    // Bytes and units of a server's own aren't what calls are counted in.
    if (unitOf !== "requests") return [];
    const most = amount(
      parameters.get(limit) ?? policy?.parameters.get("q") ?? policy?.parameters.get(""),
    );
    const resetS = amount(parameters.get(reset));
    const windowS = amount(policy?.parameters.get("w"));
    return [
      {
        name: `ratelimit "${name}"`,
        unit: "requests",
        remaining: left,
        refills: "at_reset",
        ...(most !== undefined && { limit: most }),
        ...(resetS !== undefined && { resetMs: resetS * 1_000 }),
        ...(windowS !== undefined && { windowMs: windowS * 1_000 }),
      },
    ];
  });
}

/** Of the earlier form, `RateLimit-Policy: 100;w=60`: the window of the policy with this limit. */
function policyWindowMs(read: Read, limit: number | undefined): number | undefined {
  const policies = itemsOf(read("ratelimit-policy"));
  const of = policies.find(({ parameters }) => amount(parameters.get("")) === limit);
  const windowS = amount(of?.parameters.get("w"));
  return windowS === undefined ? undefined : windowS * 1_000;
}

type Item = { readonly name: string; readonly parameters: ReadonlyMap<string, string> };

const maxHeaderChars = 1_024;
const maxItems = 8;
const maxParameters = 16;

/**
 * Parses a list of structured fields: names in quotes with parameters, `"burst";q=100;w=60`, bare
 * numbers, which become the parameter "", and pairs, `limit=100`. Of several names the last counts.
 */
function itemsOf(text: string | undefined): Item[] {
  if (text === undefined || text.length > maxHeaderChars) return [];
  const items: Item[] = [];
  for (const each of splitOutsideQuotes(text, ",").slice(0, maxItems)) {
    let name = "";
    const parameters = new Map<string, string>();
    for (const piece of splitOutsideQuotes(each, ";").slice(0, maxParameters)) {
      const trimmed = piece.trim();
      const quoted = unquoted(trimmed);
      if (quoted !== undefined) {
        name = quoted;
        continue;
      }
      const equals = trimmed.indexOf("=");
      const value = trimmed.slice(equals + 1).trim();
      parameters.set(trimmed.slice(0, Math.max(0, equals)).trim(), unquoted(value) ?? value);
    }
    items.push({ name, parameters });
  }
  return items;
}

function unquoted(text: string): string | undefined {
  return text.length >= 2 && text.startsWith('"') && text.endsWith('"')
    ? text.slice(1, -1)
    : undefined;
}

function splitOutsideQuotes(text: string, by: string): string[] {
  const pieces: string[] = [];
  let from = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '"') quoted = !quoted;
    else if (text[at] === by && !quoted) {
      pieces.push(text.slice(from, at));
      from = at + 1;
    }
  }
  return [...pieces, text.slice(from)];
}

/** The largest request limits are some ten thousands a minute, the largest token limits some hundred millions. */
const maxLimits = { requests: 10_000_000, tokens: 10_000_000_000 };

function isPlausible({ unit, limit, remaining }: Quota): boolean {
  if (limit === undefined) return remaining <= maxLimits[unit];
  return limit > 0 && limit <= maxLimits[unit] && remaining <= limit;
}

// Longer texts are no number, no duration, no date and no name.
const maxValueChars = 64;

function nameOf(text: string | undefined): string | undefined {
  const trimmed = text?.trim();
  return trimmed === undefined || trimmed === "" || trimmed.length > maxValueChars
    ? undefined
    : trimmed;
}

/** A whole number, also as the first one of a list, as in `100, 100;w=60`. */
function amount(text: string | undefined): number | undefined {
  if (text === undefined || text.length > maxHeaderChars) return undefined;
  let end = 0;
  while (end < text.length && text[end] !== "," && text[end] !== ";") end++;
  const first = text.slice(0, end).trim();
  if (first === "" || first.length > 15) return undefined;
  for (let at = 0; at < first.length; at++) if (!isDigit(first, at)) return undefined;
  return Number(first);
}

function isDigit(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 48 && code <= 57;
}

/** Dates come from the server's clock, so they are compared with its `Date`. */
function serverTimeMs(read: Read, nowMs: number): number {
  const text = read("date");
  const sentMs = text === undefined || text.length > maxValueChars ? NaN : Date.parse(text);
  return Number.isNaN(sentMs) ? nowMs : sentMs;
}

// Larger numbers are Unix times, smaller ones are waits.
const maxWaitS = 1e8;

/** Parses a wait: seconds, a duration such as `6m0s` or `120ms`, or a date. */
function delay(text: string | undefined, serverMs: number): number | undefined {
  if (text === undefined || text.length > maxValueChars) return undefined;
  const trimmed = text.trim();
  const seconds = decimal(trimmed);
  if (seconds !== undefined) {
    if (seconds < maxWaitS) return seconds * 1_000;
    return Math.max(0, (seconds > 1e11 ? seconds : seconds * 1_000) - serverMs);
  }
  const length = lengthOfTime(trimmed);
  if (length !== undefined) return length;
  const atMs = Date.parse(trimmed);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - serverMs);
}

const unitsMs: Readonly<Record<string, number>> = {
  d: 86_400_000,
  h: 3_600_000,
  m: minuteMs,
  s: 1_000,
  ms: 1,
};

/** Durations as Go prints them: `1h0m0s`, `6m0s`, `7.66s`, `120ms`. */
function lengthOfTime(text: string): number | undefined {
  let sumMs = 0;
  let at = 0;
  while (at < text.length) {
    const from = at;
    while (at < text.length && (isDigit(text, at) || text[at] === ".")) at++;
    const count = decimal(text.slice(from, at));
    const unit = text.startsWith("ms", at) ? "ms" : text[at];
    const unitMs = unit === undefined ? undefined : unitsMs[unit];
    if (count === undefined || unitMs === undefined) return undefined;
    sumMs += count * unitMs;
    at += unit!.length;
  }
  return text === "" ? undefined : sumMs;
}

function milliseconds(text: string | undefined): number | undefined {
  return text === undefined || text.length > maxValueChars ? undefined : decimal(text.trim());
}

function decimal(text: string): number | undefined {
  return /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : undefined;
}

function readerOf(headers: HeadersLike): Read {
  if (typeof headers.get === "function") {
    const { get } = headers;
    return (name) => asText(get.call(headers, name));
  }
  const plain = headers as Readonly<Record<string, string | string[] | undefined>>;
  // Libraries keep the spelling of the server, so names are compared in lower case.
  let lowered: Map<string, unknown> | undefined;
  return (name) => {
    lowered ??= new Map(Object.entries(plain).map(([each, value]) => [each.toLowerCase(), value]));
    const value = lowered.get(name);
    return asText(Array.isArray(value) ? value[0] : value);
  };
}

function asText(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
