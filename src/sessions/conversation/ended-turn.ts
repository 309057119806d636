import type { TurnOutcome } from "../../protocol/message.ts";
import type { Command, CommandDecision, EndedTurn, Measured } from "./command.ts";
import type { Header, Turn } from "./header.ts";

type Decided = Extract<CommandDecision, { type: "decided" }>;

/**
 * The attempt at a turn that a decision ends, if it ends one. A decision ends one at most: whatever follows
 * in it begins and stays.
 */
export function endedTurn(
  before: Header | undefined,
  command: Command,
  decision: Decided,
  nowMs: number,
): EndedTurn | undefined {
  const turn = before?.work;
  if (turn?.type !== "turn" || turn.attempt === 0) return undefined;
  const { work } = decision.header;
  if (work?.epoch === turn.epoch && work.attempt === turn.attempt) return undefined;
  const { epoch, attempt, agent, runner, beganAtMs = nowMs } = turn;
  const measured = measuredBy(command, turn);
  // Pods' clocks differ.
  const endedAtMs = Math.max(nowMs, beganAtMs);
  const firstMs = measured?.firstChunkMs;
  const outcome = outcomeOf(turn, command, decision);
  const isCountedLater = outcome === "lost" && measured?.isStored === true;
  return {
    epoch,
    attempt,
    agent,
    podId: runner,
    beganAtMs,
    firstChunkAtMs:
      firstMs === undefined ? null : Math.min(beganAtMs + Math.round(firstMs), endedAtMs),
    endedAtMs,
    outcome,
    usage: isCountedLater ? null : (measured?.usage ?? null),
  };
}

function outcomeOf(turn: Turn, command: Command, { header, entries }: Decided): TurnOutcome {
  const answer = entries.find(
    ({ epoch, outcome }) => epoch === turn.epoch && outcome !== undefined,
  );
  if (answer?.outcome !== undefined) return answer.outcome;
  // A turn that was woken and had nothing to say stores no answer.
  if (command.type === "turn_finished") return command.reply.outcome;
  if (header.work?.epoch !== turn.epoch) return "dropped";
  return command.type === "turn_released" ? "released" : "lost";
}

function measuredBy(command: Command, { attempt }: Turn): Measured | undefined {
  const reply =
    command.type === "turn_finished"
      ? command.reply
      : command.type === "work_lost" || command.type === "stop_expired"
        ? command.checkpoint
        : undefined;
  return reply?.measured?.attempt === attempt ? reply.measured : undefined;
}
