import { FlotillaError } from "./errors.ts";

/** Options that belong in another place, and how to pass them there. */
export type Elsewhere = { readonly options: readonly string[]; readonly how: string };

export type NumberRange = { readonly min: number; readonly max: number; readonly whole?: boolean };

/** Throws on unknown options, and suggests the one that was probably meant. */
export function checkOptions(
  what: string,
  given: Readonly<Record<string, unknown>>,
  known: readonly string[],
  elsewhere?: Elsewhere,
): void {
  if (typeof given !== "object" || given === null) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: its options must be an object, not ${display(given)}`,
    );
  }
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    const meant = meantBy(name, known);
    const other = elsewhere && meantBy(name, elsewhere.options);
    const hint = meant
      ? `, did you mean \`${meant}\`?`
      : other
        ? `: \`${other}\` ${elsewhere.how}`
        : (optionHints[name] ?? `; it takes ${known.join(", ")}`);
    throw new FlotillaError("invalid_option", `${what}: unknown option \`${name}\`${hint}`, {
      details: { option: name, ...(meant && { suggestion: meant }) },
    });
  }
}

/** Throws unless the value is a number in range. */
export function checkNumber(what: string, value: unknown, range: NumberRange): number {
  const { min, max, whole = true } = range;
  if (
    typeof value === "number" &&
    value >= min &&
    value <= max &&
    (!whole || Number.isInteger(value))
  ) {
    return value;
  }
  const kind = whole ? "a whole number" : "a number";
  throw new FlotillaError(
    "invalid_option",
    `${what} must be ${kind} from ${min} to ${max}, not ${display(value)}`,
  );
}

/**
 * Whether all stores return a text as it was given to them: Postgres refuses U+0000, and lone
 * surrogates are changed.
 */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\u0000");
}

/** Throws unless the value is text within the limit that can be stored. */
export function checkText(what: string, value: unknown, { max }: { max: number }): string {
  const fits = typeof value === "string" && value !== "" && value.length <= max;
  if (fits && isStorable(value)) return value;
  throw new FlotillaError(
    "invalid_option",
    `${what} must be 1 to ${max} characters of text that databases can store`,
  );
}

/** Throws unless the value is one of those allowed. */
export function checkChoice(what: string, value: unknown, allowed: readonly string[]): void {
  if (allowed.some((each) => each === value)) return;
  throw new FlotillaError(
    "invalid_option",
    `${what} must be one of ${allowed.join(", ")}, not ${display(value)}`,
  );
}

/** The known name within an edit distance of a third of its letters. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Infinity;
  for (const candidate of known) {
    const edits = distance(name.toLowerCase(), candidate.toLowerCase());
    if (edits < bestDistance && edits <= Math.max(1, Math.ceil(candidate.length / 3))) {
      best = candidate;
      bestDistance = edits;
    }
  }
  return best;
}

/** The option that is probably meant by a name. */
function meantBy(name: string, known: readonly string[]): string | undefined {
  return nearest(name, known) ?? otherWords[name]?.find((each) => known.includes(each));
}

/** Names of options in other queues, and ours for them. */
const otherWords: Readonly<Record<string, readonly string[]>> = withoutPrototype({
  concurrency: ["slots"],
  cron: ["pattern"],
  delay: ["delayMs"],
  every: ["everyMs"],
  interval: ["everyMs"],
  jobId: ["key"],
  jobKey: ["key"],
  maxAttempts: ["attempts"],
  maxRetries: ["attempts"],
  repeat: ["pattern"],
  retries: ["attempts"],
  retry: ["attempts"],
  retryLimit: ["attempts"],
  singletonKey: ["key"],
  startAfter: ["runAt"],
  timezone: ["zone"],
  tz: ["zone"],
});

const bySchedule =
  ': a schedule says when, as in `schedule("nightly", { task, pattern: "0 3 * * *" })`, which goes into `schedules`';
const optionHints: Readonly<Record<string, string>> = withoutPrototype({
  cron: bySchedule,
  every: bySchedule,
  repeat: bySchedule,
  concurrency:
    ": how many run at once is `slots` of a handler or of a pod, and `concurrency` of a task's contract for the whole fleet",
});

/** Names come from outside, and `constructor` is one too. */
function withoutPrototype<Value>(given: Record<string, Value>): Record<string, Value> {
  return Object.assign(Object.create(null) as Record<string, Value>, given);
}

function display(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 40)) : String(value);
}

// Levenshtein, with the last row only. Names are short; the bound keeps hostile ones cheap.
function distance(a: string, b: string): number {
  const left = a.slice(0, 64);
  const right = b.slice(0, 64);
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const change = left[i - 1] === right[j - 1] ? 0 : 1;
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + change));
    }
    row = next;
  }
  return row[right.length]!;
}
