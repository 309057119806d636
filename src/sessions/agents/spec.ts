import type { Backoff } from "../../base/backoff.ts";
import type { Declared } from "../../throttles/declaration.ts";
import type { AgentFacts } from "../conversation/command.ts";
import type { AgentFunction, CompactorFunction } from "./function.ts";

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
  readonly throttle: { readonly declared: Declared; readonly key: string } | null;
  readonly compaction: CompactionSpec | null;
};

/** Where answers come from: a function of this process, or a URL. */
export type AgentSource<Run> =
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
export function factsOf(spec: AgentSpec): AgentFacts {
  const { during, debounceMs, attempts, compaction } = spec;
  if (!compaction) return { during, debounceMs, attempts, compaction: null };
  const { when, tokenBudget, triggerRatio } = compaction;
  return { during, debounceMs, attempts, compaction: { when, tokenBudget, triggerRatio } };
}
