import type { Backoff } from "../../base/backoff.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import { checkOptions } from "../../base/options.ts";
import type { AgentAnswer } from "../../protocol/agent-http.ts";
import type { UIMessage } from "../../protocol/message.ts";
import type { ThrottleDeclaration } from "../../throttles/declaration.ts";
import type { AgentFacts } from "../conversation/command.ts";
import {
  type AgentOptions,
  checkAgentName,
  checkAgentOptions,
  checkUrlSource,
  optionNames,
  type UrlOptions,
} from "./options.ts";

export type UrlAgentOptions = AgentOptions & UrlOptions;

const urlOptionNames = [...optionNames, "url", "headers", "secret", "allowPrivate"];

/**
 * Declares who answers in sessions: a function, or a URL that speaks the AI SDK's protocol. A function
 * gets messages as `Message` has them, such as the AI SDK's own `UIMessage`.
 */
export function agent<Message = UIMessage>(
  name: string,
  options: AgentOptions,
  run: AgentFunction<Message>,
): AgentSpec;
export function agent<Message = UIMessage>(name: string, run: AgentFunction<Message>): AgentSpec;
export function agent(name: string, options: UrlAgentOptions): AgentSpec;
export function agent(
  name: string,
  first: AgentOptions | UrlAgentOptions | AgentFunction,
  second?: AgentFunction,
): AgentSpec {
  checkAgentName(name);
  const what = `agent "${name}"`;
  if (typeof first === "function") return ofFunction(name, {}, first);
  checkOptions(what, first, second === undefined ? urlOptionNames : optionNames);
  if (second !== undefined) return ofFunction(name, first, second);
  if (!("url" in first)) {
    throw new FlotillaError("invalid_option", `${what} needs a function or a \`url\``);
  }
  const source = { type: "url", ...checkUrlSource(what, first) } as const;
  return { name, source, ...checkAgentOptions(what, first) };
}

function ofFunction(name: string, options: AgentOptions, run: AgentFunction): AgentSpec {
  const what = `agent "${name}"`;
  if (typeof run !== "function") {
    throw new FlotillaError("invalid_option", `${what}: what answers must be a function`);
  }
  return { name, source: { type: "function", run }, ...checkAgentOptions(what, options) };
}

/** What an agent's function is given. */
export type AgentContext<Message = UIMessage> = {
  /** What was said, as the agent's `history` and `context` have it; the newest is last. */
  readonly messages: readonly Message[];
  readonly sessionId: string;
  readonly tenant: string;
  /** Who wrote the message that is answered. */
  readonly user?: string;
  /** The turn. It rises with every one, so what comes from an older turn can be told. */
  readonly epoch: number;
  /** Rises when another pod starts the same turn over. */
  readonly attempt: number;
  /** Fires when nobody wants the answer any more: pass it on to the model. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly trigger: "submit-message" | "regenerate-message";
  /** The id that the answer has in user interfaces. */
  readonly messageId: string;
  /** The summary of what was said before `messages`; it is among them too, as a system message. */
  readonly summary?: string;
  /** Enqueues a task, once however often the turn is started over. */
  readonly enqueue: TurnCall<{ readonly taskId: string }>;
  /** Starts a run of a flow, once however often the turn is started over. */
  readonly start: TurnCall<{ readonly runId: string }>;
};

/** Something named, done with an input once per turn. */
export type TurnCall<Made> = (
  what: string | { readonly name: string },
  input: Json,
  options?: {
    /** Tells apart what has the same name and input: the id of the tool call that asks for it. */
    readonly toolCallId?: string;
  },
) => Promise<Made>;

export type AgentFunction<Message = UIMessage> = (
  context: AgentContext<Message>,
) => AgentAnswer | PromiseLike<AgentAnswer>;

/** What a compactor's function is given. */
export type CompactorContext = Pick<
  AgentContext,
  "sessionId" | "tenant" | "epoch" | "attempt" | "signal" | "log" | "summary"
> & {
  /** What is to be summed up, without the last summary, which is in `summary`. */
  readonly messages: readonly UIMessage[];
};

/** Gives the summary, in any of the ways in which an agent answers. */
export type CompactorFunction = (
  context: CompactorContext,
) => AgentAnswer | PromiseLike<AgentAnswer>;

/** An agent with every default filled in, wherever it was declared. */
export type AgentSpec = {
  readonly name: string;
  readonly source: AgentSource<AgentFunction>;
  /** What becomes of a message that comes during a turn. */
  readonly during: AgentFacts["during"];
  /** With `during: "merge"`, how long nothing more must be said before it answers. */
  readonly debounceMs: number;
  readonly history: HistoryMode;
  readonly context: ContextPolicy;
  /** The longest that it may say nothing. */
  readonly idleTimeoutMs: number;
  /** The longest that an answer may take. */
  readonly deadlineMs: number;
  /** How often it is tried before anything of an answer has come. */
  readonly retries: number;
  readonly backoff: Backoff;
  /** How many runners may lose a turn before it is given up. */
  readonly attempts: number;
  readonly throttle: { readonly declared: ThrottleDeclaration; readonly key: string } | null;
  readonly compaction: CompactionSpec | null;
};

/** Where answers come from: a function of this process, or a URL. */
type AgentSource<Run> =
  | { readonly type: "function"; readonly run: Run }
  | ({ readonly type: "url" } & UrlSource);

export type UrlSource = {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Each signs every request, so that one can be replaced by another without a gap. */
  readonly secrets: readonly string[];
  /** Whether it may be on this machine or in a private network, and without TLS. */
  readonly allowPrivate: boolean;
};

/**
 * How much an agent is told of what was said, always the newest: `entire` is everything since the last
 * summary, `tail` so many messages behind the summary, `last` so many without it.
 */
export type HistoryMode =
  | { readonly mode: "entire" }
  | { readonly mode: "tail"; readonly count: number }
  | { readonly mode: "last"; readonly count: number };

/** What of those messages is left out. */
export type ContextPolicy = {
  /** Parts of these types; one that ends in `*` means all that begin so. */
  readonly skipParts: readonly string[];
  /** At most so many messages are left, the newest, counted after parts were left out. */
  readonly lastN: number | null;
};

export type CompactionSpec = {
  readonly when: "auto" | "manual";
  readonly tokenBudget: number;
  readonly triggerRatio: number;
  readonly deadlineMs: number;
  readonly source: AgentSource<CompactorFunction>;
};

/** What the owner of a session has to know of an agent to decide. */
export function factsOfSpec(spec: AgentSpec): AgentFacts {
  const { during, debounceMs, attempts, compaction } = spec;
  if (!compaction) return { during, debounceMs, attempts, compaction: null };
  const { when, tokenBudget, triggerRatio } = compaction;
  return { during, debounceMs, attempts, compaction: { when, tokenBudget, triggerRatio } };
}
