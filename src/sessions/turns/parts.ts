import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import type { AgentSpec } from "../agents/agent.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import type { Journal } from "../log/journal.ts";
import type { LiveChunks } from "../runner.ts";
import type { AgentNetwork } from "./network.ts";

/** What a runner is made of. */
export type RunnerParts = {
  readonly podId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly journal: Pick<Journal, "tail" | "entries">;
  /** Asks the session's owner, again and again until there is an answer. */
  readonly ask: (
    tenant: string,
    sessionId: string,
    command: Command,
    options?: { timeoutMs?: number; signal?: AbortSignal },
  ) => Promise<CommandResult>;
  readonly live: { readonly chunks: (chunks: LiveChunks) => void };
  readonly agentOf: (tenant: string, name: string) => Promise<AgentSpec | undefined>;
  /** The pod's own. */
  readonly throttles: ThrottleRegistry;
  readonly enqueue: Keyed<{ readonly taskId: string }>;
  readonly start: Keyed<{ readonly runId: string }>;
  /** Default: the real one. */
  readonly network?: AgentNetwork;
  /** What an answer may take as JSON. Default 1 MiB. */
  readonly maxReplyBytes?: number;
  /** How many turns and compactions go on at once; others wait. Default: as many as there are. */
  readonly maxTurns?: number;
  /** Whether a task that pods died under runs on this pod. Default: none does. */
  readonly runsSuspectTask?: () => boolean;
  /** Traces an attempt at an answer, where somebody traces. */
  readonly traced?: (turn: TurnTrace) => TurnSpan | undefined;
  readonly onEvent?: (event: TurnEvent) => void;
};

/** Does something named once for each key. What is named is for whoever is asked to look at. */
export type Keyed<Made> = (
  what: any,
  input: unknown,
  options: { readonly key: string; readonly tenant: string },
) => Promise<Made>;

export type TurnEvent =
  | { readonly type: "turn_started"; readonly agent: string }
  | {
      readonly type: "turn_ended";
      readonly agent: string;
      /** `dropped` where nobody wanted it any more. */
      readonly outcome: "completed" | "stopped" | "cut" | "failed" | "dropped";
      /** Until the first chunk. */
      readonly ttftMs?: number;
      readonly durationMs: number;
      readonly chunks: number;
    };

export type TurnTrace = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agent: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly trigger: string;
  /** The trace context of what started the turn. */
  readonly trace?: string | undefined;
};

export type TurnSpan = {
  /** Does it with the span active, so that what the agent calls is traced below it. */
  run<Result>(work: () => Result): Result;
  /** `error` is a code. */
  end(ended: { outcome: string; chunks: number; error?: string | undefined }): void;
};

/** Says to work that is under way that it has to end. */
export type Control = {
  /** Fires when it has to. */
  readonly signal: AbortSignal;
  /** Whether what it has by then is still wanted. */
  readonly kept: boolean;
  /** Ends it; the first word counts, but what isn't wanted any more never is again. */
  end(options: { keep: boolean }): void;
};

export function createControl(): Control {
  const controller = new AbortController();
  let kept = false;
  return {
    signal: controller.signal,
    get kept() {
      return kept;
    },
    end({ keep }) {
      kept = keep && (kept || !controller.signal.aborted);
      controller.abort(new WorkEnded());
    },
  };
}

/** What waits are cut short with when the work has to end. */
export class WorkEnded extends Error {
  override readonly name = "AbortError";
  constructor() {
    super("nobody waits for the answer any more");
  }
}
