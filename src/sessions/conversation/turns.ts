import type { Command, Decision, Facts } from "./command.ts";
import { type Header, type Turn, waitsOf } from "./header.ts";
import { abortWork, endTurn, replySoFar } from "./ending.ts";
import { afterLoss, handedOn } from "./starting.ts";
import {
  decided,
  firstStep,
  type Step,
  unchanged,
  withEffect,
  withEntry,
  withHeader,
} from "./decision.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

export function finishTurn(
  header: Header,
  turn: Turn,
  { reply }: Of<"turn_finished">,
  facts: Facts,
): Decision {
  return end(header, turn, reply, facts);
}

/** Keeps what a turn has said so far, beside the log. */
export function keepCheckpoint(
  header: Header,
  { epoch, attempt, body }: Of<"checkpoint">,
): Decision {
  return { ...unchanged(header, { done: true }), checkpoint: { epoch, attempt, body } };
}

/** Shows whether the turn waits for a permit. One that is being stopped waits for nothing any more. */
export function countWait(
  header: Header,
  turn: Turn,
  { attempt, count }: Of<"turn_waiting">,
): Decision {
  if (turn.stopping || count <= waitsOf(turn)) return unchanged(header, { done: true });
  const work = { ...turn, waits: { attempt, count } };
  return decided(withHeader(firstStep(header), { work }), { done: true });
}

/** Its runner has to go: another starts over. One that is being stopped ends with its checkpoint, soon. */
export function releaseTurn(header: Header, turn: Turn, facts: Facts): Decision {
  const next = handedOn(turn);
  if (turn.stopping) {
    const work = { ...next, runner: null };
    return decided(withHeader(firstStep(header), { work }), { done: true });
  }
  return decided(startOver(header, next, facts), { done: true });
}

/** Nobody has named the turn for too long. */
export function loseTurn(
  header: Header,
  turn: Turn,
  { checkpoint }: Of<"work_lost">,
  facts: Facts,
): Decision {
  const { runner, attempt } = turn;
  if (turn.stopping) return endStopped(header, turn, checkpoint, facts);
  // The debounce was lost with the owner that waited, or nobody was there to run it: no runner has tried.
  if (attempt === 0) return startDebounced(header, turn, facts);
  if (runner === null) {
    const next = startOver(header, turn, facts);
    const isFound = next.header.work?.runner !== null;
    return isFound ? decided(next, { done: true }) : unchanged(header, { done: false });
  }
  const again = afterLoss(turn, facts);
  if (again) return decided(startOver(header, again, facts), { done: true });
  const lost = turn.lost + 1;
  const outcome = checkpoint && checkpoint.parts.length > 0 ? "cut" : "failed";
  const message = `${lost === 1 ? "the pod" : `all ${lost} pods`} that made this answer died or fell silent`;
  const error = { code: "runner_lost", message };
  const reply = replySoFar(checkpoint, { outcome, error });
  return end(header, turn, reply, facts);
}

export function startDebounced(header: Header, turn: Turn, facts: Facts): Decision {
  return decided(startOver(header, { ...turn, attempt: 1 }, facts), { done: true });
}

/**
 * Ends the turn that runs, and nothing else: what waits is answered then. Who has done so is an entry of
 * the same record; one that is being stopped already has its own.
 */
export function stopTurn(
  header: Header,
  turn: Turn,
  { author = "program", by = "program" }: Of<"stop">,
  facts: Facts,
): Decision {
  if (turn.stopping) return unchanged(header, { done: true });
  const { epoch, messageId } = turn;
  const told = withEntry(
    firstStep(header),
    {
      kind: "stop",
      role: by === "user" ? "user" : "system",
      author,
      messageId: facts.newId(),
      stop: { epoch, messageId, by },
      tokens: 0,
      parts: [],
      clientId: null,
    },
    facts,
  );
  return decided(stopped(told, turn, facts), { done: true, seq: told.header.lastSeq });
}

/** Has the runner end the turn with what it has. Where there is none, nothing was said. */
export function stopped(step: Step, turn: Turn, facts: Facts): Step {
  if (turn.stopping) return step;
  if (turn.runner === null) {
    return endTurn(step, turn, replySoFar(undefined, { outcome: "stopped" }), facts);
  }
  const stopping = withHeader(step, { work: { ...turn, stopping: true } });
  return abortWork(stopping, { keep: true });
}

/** The runner didn't end it in time. The epoch rises, so that nothing of the old one is taken for new. */
export function endStopped(
  header: Header,
  turn: Turn,
  checkpoint: Of<"stop_expired">["checkpoint"],
  facts: Facts,
): Decision {
  const raised = { ...header, epoch: header.epoch + 1 };
  return end(raised, turn, replySoFar(checkpoint, { outcome: "stopped" }), facts);
}

function end(
  header: Header,
  turn: Turn,
  reply: Of<"turn_finished">["reply"],
  facts: Facts,
): Decision {
  const seq = header.lastSeq + 1;
  return decided(endTurn(firstStep(header), turn, reply, facts), { seq, done: true });
}

function startOver(header: Header, turn: Turn, facts: Facts): Step {
  const { epoch, attempt, agent } = turn;
  const work = { ...turn, runner: facts.runnerFor(agent) };
  const started = withHeader(firstStep(header), { work });
  return withEffect(started, { type: "start_turn", epoch, attempt });
}
