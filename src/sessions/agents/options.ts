import { type Backoff, checkBackoff } from "../../base/backoff.ts";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Budget } from "../../base/usage.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import { secretKey } from "../../protocol/agent-http.ts";
import { declarationOf, type Throttle } from "../../throttles/throttle.ts";
import { checkAgentUrl } from "./address.ts";
import type {
  AgentSpec,
  CompactionSpec,
  CompactorFunction,
  ContextPolicy,
  HistoryMode,
  UrlSource,
} from "./spec.ts";

/** How an agent is called, whether it is a function or a URL. */
export type AgentOptions = {
  /**
   * Each answer holds a permit of this throttle while it streams. In an agent with `durable` each call to a
   * model holds one, and none is held while tools run.
   */
  throttle?: Throttle;
  /**
   * What happens to a message that arrives during an answer. `queue` (the default): it waits. `interrupt`:
   * it cuts the answer short. `merge`: so it does, and the next answer starts after a pause in messages.
   * `steer`: the answer hears it at its next step, or else it waits; only of functions.
   */
  during?: "queue" | "interrupt" | "merge" | "steer";
  /** With `merge`, how long that pause is. Default 500. */
  debounceMs?: number;
  /** How much of the conversation it gets. Default `{ tail: 50 }`. */
  history?: AgentHistory;
  /** What to leave out of that. */
  context?: { skipParts?: readonly string[]; lastN?: number };
  /** How long it may send nothing. Default 30 seconds. */
  idleTimeoutMs?: number;
  /** How long an answer may take. Default 5 minutes. */
  deadlineMs?: number;
  /** How often it is tried before an answer has begun. Default 3. */
  retries?: number;
  /** The delays between those tries. */
  backoff?: Backoff;
  /** How many pods may be lost during a turn before it is given up, four at most. Default 3. */
  attempts?: number;
  /** Summarises the conversation when it gets long. */
  compaction?: CompactionOptions;
};

/**
 * How much of the conversation an agent gets, newest last: `entire` is everything since the last summary,
 * `tail` the summary and that many messages, `last` that many messages without it.
 */
export type AgentHistory = "entire" | "tail" | "last" | { tail: number } | { last: number };

/** How a conversation is summarised when it gets long. */
export type CompactionOptions = {
  /** `auto` (the default) compacts when it is due, `manual` only marks the session. */
  when?: "auto" | "manual";
  /** How much of the model's context a conversation may take. Default 50,000. */
  tokenBudget?: number;
  /** The share of the budget at which a compaction is due. Default 0.7. */
  triggerRatio?: number;
  /** How long a compaction may take. Default 60 seconds. */
  deadlineMs?: number;
} & (({ fn?: undefined } & UrlOptions) | { fn: CompactorFunction; url?: undefined });

/** How an agent that is a function is called. */
export type FunctionOptions = AgentOptions & {
  /** What the calls to models of one answer may use that go through `durable`. */
  budget?: Budget;
};

export type UrlOptions = {
  url: string;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>>;
  /** `whsec_…` signs requests after Standard Webhooks; several during a rotation. */
  secret?: string | readonly string[];
  /** Allows it on this machine or in a private network, and without TLS. Default false. */
  allowPrivate?: boolean;
};

export const optionNames = [
  "throttle",
  "during",
  "debounceMs",
  "history",
  "context",
  "idleTimeoutMs",
  "deadlineMs",
  "retries",
  "backoff",
  "attempts",
  "compaction",
];

export const functionOptionNames = [...optionNames, "budget"];

const urlNames = ["url", "headers", "secret", "allowPrivate"];

const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;
const tailDefault = 50;
const maxMessages = 10_000;
const maxSkippedParts = 64;
const maxSecrets = 4;
const maxHeaders = 32;
const maxHeaderBytes = 8_192;
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const headerValue = /^[\t\x20-\x7e\x80-\xff]*$/;

// Headers that frame or sign the request, which only Flotilla may set.
const ownHeaders = new Set([
  "accept-encoding",
  "connection",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
  "webhook-id",
  "webhook-signature",
  "webhook-timestamp",
]);

export function checkAgentName(name: unknown): asserts name is string {
  if (typeof name === "string" && namePattern.test(name)) return;
  throw new FlotillaError(
    "invalid_option",
    `an agent's name is 1 to 200 letters, digits and _ . : / -, and begins with a letter, a digit or _, not ${JSON.stringify(name)?.slice(0, 80)}`,
  );
}

/** Checks everything about an agent except its name and source, and fills in defaults. */
export function checkAgentOptions(
  what: string,
  options: AgentOptions,
): Omit<AgentSpec, "name" | "source"> {
  const { during = "queue", debounceMs = 500, idleTimeoutMs = 30_000 } = options;
  const { deadlineMs = 300_000, retries = 3, attempts = 3, backoff = {} } = options;
  checkChoice(`${what}: during`, during, ["queue", "interrupt", "merge", "steer"]);
  checkNumber(`${what}: debounceMs`, debounceMs, { min: 0, max: 60_000 });
  checkNumber(`${what}: idleTimeoutMs`, idleTimeoutMs, { min: 1, max: dayMs });
  checkNumber(`${what}: deadlineMs`, deadlineMs, { min: 1, max: dayMs });
  checkNumber(`${what}: retries`, retries, { min: 1, max: 100 });
  checkNumber(`${what}: attempts`, attempts, { min: 1, max: 100 });
  checkBackoff(what, backoff);
  return {
    during,
    debounceMs,
    history: checkHistory(what, options.history ?? "tail"),
    context: checkContext(what, options.context ?? {}),
    idleTimeoutMs,
    deadlineMs,
    retries,
    backoff,
    attempts,
    throttle: options.throttle === undefined ? null : declarationOf(options.throttle),
    compaction: options.compaction === undefined ? null : checkCompaction(what, options.compaction),
  };
}

export function checkUrlSource(
  what: string,
  options: UrlOptions & Pick<AgentOptions, "during">,
): UrlSource {
  if (options.during === "steer") {
    const message = `${what}: during can't be "steer" for a URL, which is asked once for each answer: only a function hears messages while it answers`;
    throw new FlotillaError("invalid_option", message);
  }
  const { headers = {}, secret = [], allowPrivate = false } = options;
  if (typeof allowPrivate !== "boolean") {
    throw new FlotillaError("invalid_option", `${what}: allowPrivate must be true or false`);
  }
  const url = checkAgentUrl(`${what}: url`, options.url, allowPrivate);
  checkHeaders(what, headers);
  const secrets = Array.isArray(secret) ? [...secret] : [secret as string];
  if (secrets.length > maxSecrets) {
    throw new FlotillaError("invalid_option", `${what}: at most ${maxSecrets} secrets are allowed`);
  }
  for (const each of secrets) secretKey(what, each);
  return { url, headers: { ...headers }, secrets, allowPrivate };
}

function checkHistory(what: string, history: AgentHistory): HistoryMode {
  if (history === "entire") return { mode: "entire" };
  if (history === "tail") return { mode: "tail", count: tailDefault };
  if (history === "last") return { mode: "last", count: 1 };
  if (typeof history === "string")
    checkChoice(`${what}: history`, history, ["entire", "tail", "last"]);
  checkOptions(`${what}: history`, history, ["tail", "last"]);
  const [mode, ...more] = Object.keys(history) as ("tail" | "last")[];
  if (!mode || more.length > 0) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: history must be "entire", { tail: 50 } or { last: 1 }`,
    );
  }
  const count = (history as Record<string, number>)[mode];
  return {
    mode,
    count: checkNumber(`${what}: history.${mode}`, count, { min: 1, max: maxMessages }),
  };
}

function checkContext(what: string, context: NonNullable<AgentOptions["context"]>): ContextPolicy {
  checkOptions(`${what}: context`, context, ["skipParts", "lastN"]);
  const { skipParts = [], lastN } = context;
  const isKind = (kind: unknown) => typeof kind === "string" && kind !== "" && kind.length <= 200;
  if (!Array.isArray(skipParts) || skipParts.length > maxSkippedParts || !skipParts.every(isKind)) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: context.skipParts must be up to ${maxSkippedParts} types of parts, such as "reasoning" or "data-*"`,
    );
  }
  if (lastN !== undefined) {
    checkNumber(`${what}: context.lastN`, lastN, { min: 1, max: maxMessages });
  }
  return { skipParts: [...skipParts], lastN: lastN ?? null };
}

function checkCompaction(agent: string, options: CompactionOptions): CompactionSpec {
  const what = `${agent}: compaction`;
  checkOptions(what, options, [
    "when",
    "tokenBudget",
    "triggerRatio",
    "deadlineMs",
    ...(options?.fn === undefined ? urlNames : []),
    "fn",
  ]);
  const { when = "auto", tokenBudget = 50_000, triggerRatio = 0.7, deadlineMs = 60_000 } = options;
  checkChoice(`${what}.when`, when, ["auto", "manual"]);
  checkNumber(`${what}.tokenBudget`, tokenBudget, { min: 1, max: 1e9 });
  checkNumber(`${what}.triggerRatio`, triggerRatio, { min: 0.01, max: 1, whole: false });
  checkNumber(`${what}.deadlineMs`, deadlineMs, { min: 1, max: dayMs });
  return { when, tokenBudget, triggerRatio, deadlineMs, source: sourceOf(what, options) };
}

function sourceOf(what: string, options: CompactionOptions): CompactionSpec["source"] {
  if (options.fn === undefined) {
    if (options.url === undefined) {
      throw new FlotillaError("invalid_option", `${what} needs a \`url\` or a \`fn\``);
    }
    return { type: "url", ...checkUrlSource(what, options) };
  }
  if (typeof options.fn !== "function") {
    throw new FlotillaError("invalid_option", `${what}.fn must be a function`);
  }
  return { type: "function", run: options.fn };
}

function checkHeaders(what: string, headers: unknown): void {
  const wrong = (why: string) => new FlotillaError("invalid_option", `${what}: headers ${why}`);
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    throw wrong("must be an object of strings");
  }
  const all = Object.entries(headers);
  if (all.length > maxHeaders) throw wrong(`must have at most ${maxHeaders} names`);
  for (const [name, value] of all) {
    const quoted = JSON.stringify(name.slice(0, 60));
    if (!headerName.test(name)) throw wrong(`must not contain ${quoted}: it is not a header name`);
    if (ownHeaders.has(name.toLowerCase()))
      throw wrong(`must not contain ${quoted}: Flotilla sets it`);
    if (typeof value !== "string" || value.length > maxHeaderBytes || !headerValue.test(value)) {
      throw wrong(`contain a value for ${quoted} that cannot be sent`);
    }
  }
}
