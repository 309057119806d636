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
  archive,
  changeMembers,
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
  loseTurn,
  releaseTurn,
  startDebounced,
  stopTurn,
} from "./turns.ts";
import { refuseCommand, unchanged } from "./decision.ts";
import type { Compaction, Header, Turn, Work } from "./header.ts";

/**
 * Decides what a command makes of a session, and does nothing: no clock, no chance, no outside. A session
 * is idle, in a turn or in a compaction, never in two of them:
 *
 * - idle → turn: a user's message, a tool result, a regeneration; a compaction comes first where it is due
 * - turn → turn: what its agent's policy lets interrupt it, and what has waited when it ends
 * - turn → compaction: it ended and one is due
 * - compaction → turn: it ended, well or not, and something waits
 * - turn, compaction → idle: it ended and nothing waits
 *
 * What comes from a turn or compaction names its epoch and attempt. Where these aren't the ones under
 * way, it comes too late and changes nothing, which the answer's `done: false` says.
 */
export function decideCommand(
  header: Header | undefined,
  command: Command,
  facts: Facts,
): CommandDecision {
  if (command.type === "create") return create(header, command, facts);
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
    case "delete":
      return remove(header);
    case "stop":
    case "turn_finished":
    case "turn_released":
    case "work_begun":
    case "turn_waiting":
    case "checkpoint":
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

/** Pods of several releases ask each other, and a later one may ask for what this one doesn't know. */
function unknown({ type }: { readonly type?: unknown }): CommandDecision {
  return refuseCommand(
    "unsupported",
    `this pod's release knows no command ${String(type).slice(0, 80)}`,
  );
}

/** Who asks for a deleted session is told that there is none; runners and timers are only too late. */
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
      return refuseCommand("not_found", "there is no such session");
    case "create":
    case "delete":
    case "turn_finished":
    case "turn_released":
    case "work_begun":
    case "turn_waiting":
    case "checkpoint":
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
      | "work_lost"
      | "stop_expired"
      | "debounced"
      | "compaction_finished"
      | "compaction_failed";
  }
>;

/** What is about the work under way. Undefined where it is about another, or there is none. */
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
  // A turn that still waits for more to be said has no runner that could have finished it.
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
    case "stop_expired":
    case "debounced":
      return undefined;
  }
}
