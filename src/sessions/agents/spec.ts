import type { Backoff } from "../../base/backoff.ts";
import type { Json } from "../../base/json.ts";
import type { Budget, ModelUsage } from "../../base/usage.ts";
import type { Logger } from "../../base/log.ts";
import type { AgentAnswer } from "../../protocol/agent-http.ts";
import type { UIMessage } from "../../protocol/message.ts";
import type { Step } from "../../steps/model.ts";
import type { ThrottleDeclaration } from "../../throttles/declaration.ts";
import type { AgentFiles } from "../turns/files.ts";
import type { AgentFacts } from "../conversation/command.ts";
import type { SetWake, WakeSet } from "../service.ts";

/** The context that an agent's function gets. */
export type AgentContext<Message = UIMessage> = {
  /** The conversation as the agent's `history` and `context` select it; the newest message is last. */
  readonly messages: readonly Message[];
  readonly sessionId: string;
  readonly tenant: string;
  /** The author of the message that is answered. */
  readonly user?: string;
  /** The number of the turn. It rises with every turn, so that output of an older one can be recognised. */
  readonly epoch: number;
  /** Rises when another pod starts the same turn over. */
  readonly attempt: number;
  /** Aborts when the answer is no longer wanted: pass it on to the model. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly trigger: "submit-message" | "regenerate-message";
  /** The message id of the answer in user interfaces. */
  readonly messageId: string;
  /** The summary of everything before `messages`, which also contain it as a system message. */
  readonly summary?: string;
  /** Enqueues a task, once per turn even if the turn starts over. */
  readonly enqueue: TurnCall<{ readonly taskId: string }>;
  /** Starts a run of a flow, once per turn even if the turn starts over. */
  readonly start: TurnCall<{ readonly runId: string }>;
  /**
   * Has this session's agent asked at a time, or again and again. It is set once, as a step is: if the turn
   * starts over, it is not set anew.
   */
  readonly wake: (wake: Omit<SetWake, "id" | "author">) => Promise<Pick<WakeSet, "key" | "atMs">>;
  /** Set where the turn has no message to answer, but a wake: its key, and the time that it was set for. */
  readonly woken?: { readonly key: string; readonly atMs: number };
  /**
   * The messages that have come since the turn began, or since the last call: of agents with
   * `during: "steer"`, and none for others. Each is heard once. A turn that starts over hears it again where
   * it did, behind the same steps. Not within a step.
   */
  readonly steering: () => Promise<readonly Message[]>;
  /** Stores what a function returns. If the turn starts over, the function isn't called again. */
  readonly step: Step;
  /** The files of the conversation: `files.read(part)` has the bytes of a part. */
  readonly files: AgentFiles;
  /**
   * Reports the tokens of a call to a model, for the turn and the answer's metadata. Not needed for models
   * with a throttle's `middleware()`, which knows them: of each model only the best source counts.
   */
  readonly usage: (tokens: ModelUsage) => void;
};

/** Makes something by its name and input, once per turn. */
export type TurnCall<Made> = (
  what: string | { readonly name: string },
  input: Json,
  options?: {
    /** Distinguishes calls with the same name and input: the id of the tool call behind them. */
    readonly toolCallId?: string;
  },
) => Promise<Made>;

export type AgentFunction<Message = UIMessage> = (
  context: AgentContext<Message>,
) => AgentAnswer | PromiseLike<AgentAnswer>;

/** The context that a compactor's function gets. */
export type CompactorContext = Pick<
  AgentContext,
  "sessionId" | "tenant" | "epoch" | "attempt" | "signal" | "log" | "summary"
> & {
  /** The messages to summarise, without the last summary, which is in `summary`. */
  readonly messages: readonly UIMessage[];
};

/** Returns the summary, in any form in which an agent answers. */
export type CompactorFunction = (
  context: CompactorContext,
) => AgentAnswer | PromiseLike<AgentAnswer>;

/** An agent with all defaults filled in, defined in code or stored. */
export type AgentSpec = {
  readonly name: string;
  readonly source: AgentSource<AgentFunction>;
  /** What happens to a message that arrives during a turn. */
  readonly during: AgentFacts["during"] | "steer";
  /** With `during: "merge"`, how long to wait for further messages before the turn starts. */
  readonly debounceMs: number;
  readonly history: HistoryMode;
  readonly context: ContextPolicy;
  /** How long it may send nothing. */
  readonly idleTimeoutMs: number;
  /** How long an answer may take. */
  readonly deadlineMs: number;
  /** How often it is tried before an answer has begun. */
  readonly retries: number;
  readonly backoff: Backoff;
  /** How many runners may be lost during a turn before it is given up. */
  readonly attempts: number;
  readonly throttle: { readonly declared: ThrottleDeclaration; readonly key: string } | null;
  /** What the durable calls of one answer may use. Only of functions. */
  readonly budget?: Budget;
  readonly compaction: CompactionSpec | null;
};

/** Where answers come from: a function of this process, or a URL. */
type AgentSource<Run> =
  | { readonly type: "function"; readonly run: Run }
  | ({ readonly type: "url" } & UrlSource);

export type UrlSource = {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Each signs every request, so that one can be rotated without a gap. */
  readonly secrets: readonly string[];
  /** Whether it may be on this machine or in a private network, and without TLS. */
  readonly allowPrivate: boolean;
  /** Default: the stream of the AI SDK. */
  readonly protocol?: "ag-ui";
};

/**
 * How much of the conversation an agent gets, newest last: `entire` is everything since the last summary,
 * `tail` the summary and that many messages, `last` that many messages without it.
 */
export type HistoryMode =
  | { readonly mode: "entire" }
  | { readonly mode: "tail"; readonly count: number }
  | { readonly mode: "last"; readonly count: number };

/** What to leave out of those messages. */
export type ContextPolicy = {
  /** The types of parts to leave out; a type that ends in `*` matches a prefix. */
  readonly skipParts: readonly string[];
  /** How many messages to keep, the newest, counted after parts were left out. */
  readonly lastN: number | null;
};

export type CompactionSpec = {
  readonly when: "auto" | "manual";
  readonly tokenBudget: number;
  readonly triggerRatio: number;
  readonly deadlineMs: number;
  readonly source: AgentSource<CompactorFunction>;
};
