import type { Command, CommandDecision, Facts } from "./command.ts";
import { append, regenerate, toolResult } from "./messages.ts";
import {
  compact,
  failCompaction,
  finishCompaction,
  loseCompaction,
  releaseCompaction,
} from "./compaction.ts";
import {
  abandon,
  archive,
  changeMembers,
  checkAgents,
  create,
  read,
  remove,
  setMetadata,
  unarchive,
} from "./lifecycle.ts";
import {
  beginSuspect,
  recordWait,
  endStopped,
  finishTurn,
  keepCheckpoint,
  keepSteps,
  loseTurn,
  releaseTurn,
  startDebounced,
  stopTurn,
} from "./turns.ts";
import { refuseCommand, unchanged } from "./append.ts";
import { hear } from "./steering.ts";
import { cancelWake, fireWake, setWake } from "./wakes.ts";
import type { Compaction, Header, Turn, Work } from "./header.ts";

/**
 * Decides what a command changes in a session. Pure: no clock, no randomness, no I/O. A session is idle,
 * in a turn or in a compaction, never in two of them:
 *
 * - idle → turn: a user's message, a tool result, a regeneration, a wake; a compaction comes first if it is due
 * - turn → turn: a message that the agent's policy lets interrupt it, or a pending request when it ends
 * - turn → compaction: the turn ended and a compaction is due
 * - compaction → turn: the compaction ended, well or not, and a request is pending
 * - turn, compaction → idle: it ended and nothing is pending
 *
 * A command from a turn or compaction carries its epoch and attempt. If they are not the current ones, the
 * command is too late and changes nothing, and its result has `done: false`.
 */
export function decideCommand(
  header: Header | undefined,
  command: Command,
  facts: Facts,
): CommandDecision {
  if (command.type === "create") return create(header, command, facts);
  if (command.type === "abandon") return abandon(header, command, facts);
  if (!header) return refuseCommand("not_found", "there is no such session");
  if (header.status === "deleted") return decideDeleted(header, command);
  switch (command.type) {
    case "append":
      return append(header, command, facts);
    case "tool_result":
      return toolResult(header, command, facts);
    case "regenerate":
      return regenerate(header, command, facts);
    case "compact":
      return compact(header, command, facts);
    case "read":
      return read(header, command);
    case "metadata":
      return setMetadata(header, command);
    case "members":
      return changeMembers(header, command, facts);
    case "archive":
      return archive(header, facts);
    case "unarchive":
      return unarchive(header);
    case "wake_set":
      return setWake(header, command, facts);
    case "wake_cancel":
      return cancelWake(header, command, facts);
    case "wake_fired":
      return fireWake(header, command, facts);
    case "check_agents":
      return checkAgents(header, command, facts);
    case "delete":
      return remove(header);
    case "stop":
    case "turn_finished":
    case "turn_released":
    case "work_begun":
    case "turn_waiting":
    case "checkpoint":
    case "turn_steps":
    case "turn_hearing":
    case "work_lost":
    case "stop_expired":
    case "debounced":
    case "compaction_finished":
    case "compaction_failed":
      return decideWork(header, command, facts) ?? unchanged(header, { done: false });
    default:
      return unknown(command);
  }
}

type WorkCommand = Extract<
  Command,
  {
    type:
      | "stop"
      | "turn_finished"
      | "turn_released"
      | "work_begun"
      | "turn_waiting"
      | "checkpoint"
      | "turn_steps"
      | "turn_hearing"
      | "work_lost"
      | "stop_expired"
      | "debounced"
      | "compaction_finished"
      | "compaction_failed";
  }
>;

/**
 * Callers learn that a deleted session does not exist; commands of runners and timers are only too late.
 */
function decideDeleted(header: Header, command: Command): CommandDecision {
  switch (command.type) {
    case "append":
    case "tool_result":
    case "regenerate":
    case "compact":
    case "stop":
    case "read":
    case "metadata":
    case "members":
    case "archive":
    case "unarchive":
    case "wake_set":
    case "wake_cancel":
    case "check_agents":
      return refuseCommand("not_found", "there is no such session");
    case "create":
    case "abandon":
    case "delete":
    case "wake_fired":
    case "turn_finished":
    case "turn_released":
    case "work_begun":
    case "turn_waiting":
    case "checkpoint":
    case "turn_steps":
    case "turn_hearing":
    case "work_lost":
    case "stop_expired":
    case "debounced":
    case "compaction_finished":
    case "compaction_failed":
      return unchanged(header, { done: false });
    default:
      return unknown(command);
  }
}

/** Decides a command about the work in progress. Undefined if there is none or it is about other work. */
function decideWork(
  header: Header,
  command: WorkCommand,
  facts: Facts,
): CommandDecision | undefined {
  const { work } = header;
  if (!work || !isAbout(work, command)) return undefined;
  if (command.type === "work_begun") {
    return work.attempt > 0 ? beginSuspect(header, work, command) : undefined;
  }
  switch (work.type) {
    case "turn":
      return decideTurn(header, work, command, facts);
    case "compaction":
      return decideCompaction(header, work, command, facts);
  }
}

function isAbout(work: Work, command: WorkCommand): boolean {
  if (command.epoch !== undefined && command.epoch !== work.epoch) return false;
  return !("attempt" in command) || command.attempt === work.attempt;
}

function decideTurn(
  header: Header,
  turn: Turn,
  command: Exclude<WorkCommand, { type: "work_begun" }>,
  facts: Facts,
): CommandDecision | undefined {
  // A turn that is still debouncing has no runner that could have finished it.
  const isRunning = turn.attempt > 0;
  switch (command.type) {
    case "turn_finished":
      return isRunning ? finishTurn(header, turn, command, facts) : undefined;
    case "turn_released":
      return isRunning ? releaseTurn(header, turn, facts) : undefined;
    case "turn_waiting":
      return isRunning && turn.runner !== null ? recordWait(header, turn, command) : undefined;
    case "checkpoint":
      return isRunning ? keepCheckpoint(header, command) : undefined;
    case "turn_steps":
      return isRunning ? keepSteps(header, turn, command) : undefined;
    case "turn_hearing":
      return isRunning ? hear(header, turn, command) : undefined;
    case "work_lost":
      return loseTurn(header, turn, command, facts);
    case "stop":
      return stopTurn(header, turn, command, facts);
    case "stop_expired":
      return turn.stopping ? endStopped(header, turn, command.checkpoint, facts) : undefined;
    case "debounced": {
      const isLast = !isRunning && command.upToSeq === turn.upToSeq;
      return isLast ? startDebounced(header, turn, facts) : undefined;
    }
    case "compaction_finished":
    case "compaction_failed":
      return undefined;
  }
}

function decideCompaction(
  header: Header,
  work: Compaction,
  command: Exclude<WorkCommand, { type: "work_begun" }>,
  facts: Facts,
): CommandDecision | undefined {
  switch (command.type) {
    case "compaction_finished":
      return finishCompaction(header, work, command, facts);
    case "compaction_failed":
      return failCompaction(header, facts);
    case "turn_released":
      return releaseCompaction(header, work, facts);
    case "work_lost":
      return loseCompaction(header, work, facts);
    case "stop":
    case "turn_finished":
    case "turn_waiting":
    case "checkpoint":
    case "turn_steps":
    case "turn_hearing":
    case "stop_expired":
    case "debounced":
      return undefined;
  }
}

/** Pods of several releases send each other commands, and a later release may have more of them. */
function unknown({ type }: { readonly type?: unknown }): CommandDecision {
  return refuseCommand(
    "unsupported",
    `this pod's release does not know the command ${String(type).slice(0, 80)}: update the pod`,
  );
}
