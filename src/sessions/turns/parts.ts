import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { ModelTotal, Prices } from "../../base/usage.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import type { Reads } from "../log/journal.ts";
import type { TurnFiles } from "./files.ts";
import type { LiveChunks } from "../runner.ts";
import type { PrepareLater } from "./later.ts";
import type { AgentNetwork } from "./network.ts";
import type { AgentSpec } from "../agents/spec.ts";
import type { Wakes } from "../wakes.ts";

/** What a runner needs. */
export type RunnerParts = {
  readonly podId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly journal: Pick<
    Reads,
    "tail" | "entries" | "steps" | "stepValue" | "checkpoint" | "turns"
  >;
  /** Submits a command to the session's owner, with retries. */
  readonly ask: (
    tenant: string,
    sessionId: string,
    command: Command,
    options?: { timeoutMs?: number; signal?: AbortSignal },
  ) => Promise<CommandResult>;
  readonly live: { readonly chunks: (chunks: LiveChunks) => void };
  readonly agentOf: (tenant: string, name: string) => Promise<AgentSpec | undefined>;
  /** The pod's throttles. */
  readonly throttles: ThrottleRegistry;
  readonly enqueue: Keyed<{ readonly taskId: string }>;
  readonly start: Keyed<{ readonly runId: string }>;
  /** Sets a wake of the session, once for each id. */
  readonly setWake: Wakes["set"];
  /** Makes what the output of a tool waits for. */
  readonly prepareLater: PrepareLater;
  /** What agents read files by. */
  readonly files: TurnFiles;
  /** What models cost. Default: not known. */
  readonly prices?: Prices | undefined;
  /** Default: the network. */
  readonly network?: AgentNetwork;
  /** The maximum size of an answer as JSON. Default 1 MiB. */
  readonly maxReplyBytes?: number;
  /** The maximum size of what a step returns, as JSON. Default 256 KiB. */
  readonly maxResultBytes?: number;
  /** How many turns and compactions run at once; others wait. Default: no limit. */
  readonly maxTurns?: number;
  /** True when a suspect task runs on this pod. Default: never. */
  readonly runsSuspectTask?: () => boolean;
  /** Traces an attempt, if tracing is on. */
  readonly traced?: (turn: TurnTrace) => TurnSpan | undefined;
  readonly onEvent?: (event: TurnEvent) => void;
};

/** Makes something once for each key. The callee validates `what`. */
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
      /** `dropped` if the turn was replaced or released. */
      readonly outcome: "completed" | "stopped" | "cut" | "failed" | "dropped";
      /** The time to the first content. */
      readonly ttftMs?: number;
      readonly durationMs: number;
      readonly chunks: number;
      /** The tokens of each model. */
      readonly tokens: readonly ModelTotal[];
      /** Those of stored calls, which were answered from the journal. */
      readonly savedTokens: readonly ModelTotal[];
    };

export type TurnTrace = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agent: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly trigger: string;
  /** The trace context of the command that started the turn. */
  readonly trace?: string | undefined;
};

export type TurnSpan = {
  /** Runs the work with the span active, so that the agent's own calls are traced below it. */
  run<Result>(work: () => Result): Result;
  /** `error` is a code. */
  end(ended: { outcome: string; chunks: number; error?: string | undefined }): void;
};

/** Tells running work to end. */
export type Control = {
  /** Aborts when the work has to end. */
  readonly signal: AbortSignal;
  /** True when the partial answer is still wanted. */
  readonly kept: boolean;
  /** True once the pod is stopping: no step begins any more. */
  readonly leaving: boolean;
  /** True if the work ended so that another pod goes on with it. */
  readonly handedOver: boolean;
  /** Ends the work. The first call counts, but an answer that is no longer wanted stays so. */
  end(options: { keep: boolean }): void;
  leave(): void;
  /** Ends the work unless it has to end already. */
  handOver(): void;
};

export function createControl(): Control {
  const controller = new AbortController();
  let kept = false;
  let leaving = false;
  let handedOver = false;
  const end = ({ keep }: { keep: boolean }): void => {
    kept = keep && (kept || !controller.signal.aborted);
    controller.abort(new WorkEnded());
  };
  return {
    signal: controller.signal,
    get kept() {
      return kept;
    },
    get leaving() {
      return leaving;
    },
    get handedOver() {
      return handedOver;
    },
    end,
    leave: () => void (leaving = true),
    handOver() {
      if (controller.signal.aborted) return;
      handedOver = true;
      end({ keep: false });
    },
  };
}

/** The reason with which waits are aborted when the work has to end. */
export class WorkEnded extends Error {
  override readonly name = "AbortError";
  constructor() {
    super("the answer is no longer wanted");
  }
}
