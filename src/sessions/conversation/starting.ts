import { aloneAfterDeaths, deathLimit } from "../../base/death-limit.ts";
import type { AgentFacts, Decision, Facts } from "./command.ts";
import type { Header, Turn, Work } from "./header.ts";
import { isDue, rangeOf } from "./due.ts";
import { withoutSubmitsTo } from "./pending.ts";
import { decided, firstStep, type Step, unchanged, withEffect, withHeader } from "./decision.ts";

/** For an agent that the owner doesn't know: another pod may, and then it is served as by default. */
const unknownAgent: AgentFacts = { during: "queue", attempts: 3, compaction: null };

export function factsOf(facts: Facts, agent: string): AgentFacts {
  return facts.agent(agent) ?? unknownAgent;
}

/** From this attempt on, every loss of a suspect that has begun counts: it ends pods too late to be alone. */
export const countedFromAttempt = 8;

/**
 * The next try of work whose pod was lost; undefined where it is given up. All work of a pod is lost with
 * it, and only one piece of that may have ended it, so the last tries begin alone, and count where the pod
 * is lost before others have begun beside them.
 */
export function afterLoss<Lost extends Work>(work: Lost, facts: Facts): Lost | undefined {
  const again = handedOn(work);
  if (work.alone === "waits") return again;
  if (work.alone === "beside" && work.attempt < countedFromAttempt) return again;
  const lost = work.lost + 1;
  const most = Math.min(factsOf(facts, work.agent).attempts, deathLimit);
  if (lost >= most) return undefined;
  const isSuspect = lost >= Math.min(aloneAfterDeaths, most - 1);
  return { ...again, lost, ...(isSuspect && { alone: "waits" }) };
}

/** The next try of work that its pod hasn't ended, through no fault of the work. */
export function handedOn<Given extends Work>(work: Given): Given {
  return { ...work, attempt: work.attempt + 1, ...(work.alone && { alone: "waits" }) };
}

/** From here on, the work is to blame where its pod is lost, or others may be as well. */
export function beginSuspect(
  header: Header,
  work: Work,
  { beside = false }: { readonly beside?: boolean },
): Decision {
  const isKnown = work.alone === "beside" || (work.alone === "begun" && !beside);
  if (!work.alone || isKnown) return unchanged(header, { done: true });
  const begun: Work = { ...work, alone: beside ? "beside" : "begun" };
  return decided(withHeader(firstStep(header), { work: begun }), { done: true });
}

export type Asked = Pick<Turn, "agent" | "trigger" | "replaces" | "messageId" | "trace">;

/**
 * A turn sees all that was said up to now, so that an answer to what waited also sees what was answered
 * before it. What else was said to the agent and waits needs no turn of its own then.
 */
export function startTurn(step: Step, asked: Asked, facts: Facts): Step {
  const turn = newTurn(step.header, asked);
  const runner = facts.runnerFor(asked.agent);
  const started = withWork(step, { ...turn, attempt: 1, runner });
  return withEffect(started, { type: "start_turn", epoch: turn.epoch, attempt: 1 });
}

/** A turn that waits for more to be said. */
export function startDebounce(step: Step, asked: Asked): Step {
  const turn = newTurn(step.header, asked);
  const { epoch, upToSeq } = turn;
  return withEffect(withWork(step, turn), { type: "debounce", epoch, upToSeq });
}

function newTurn(header: Header, asked: Asked): Turn {
  const { agent, trigger, replaces, messageId, trace } = asked;
  return {
    type: "turn",
    epoch: header.epoch + 1,
    attempt: 0,
    lost: 0,
    agent,
    runner: null,
    upToSeq: header.lastSeq,
    trigger,
    messageId,
    replaces,
    stopping: false,
    ...(trace !== undefined && { trace }),
  };
}

/**
 * Starts a compaction in the name of an agent, where one is due and a pod can make it. A session whose
 * agent is compacted by hand is only marked. Undefined where the conversation goes on as it is.
 */
export function startDueCompaction(step: Step, agent: string, facts: Facts): Step | undefined {
  const policy = factsOf(facts, agent).compaction;
  if (policy?.when !== "auto" || !isDue(step.header, policy)) return undefined;
  return startCompaction(step, agent, facts);
}

export function startCompaction(step: Step, agent: string, facts: Facts): Step | undefined {
  const { header } = step;
  const range = rangeOf(header);
  // Nobody waits for a summary: where no pod can make it, turns go on without.
  const runner = range && facts.runnerFor(agent);
  if (!range || runner === null || runner === undefined) return undefined;
  const epoch = header.epoch + 1;
  const work: Work = { type: "compaction", epoch, attempt: 1, lost: 0, agent, runner, ...range };
  return withEffect(withWork(step, work), { type: "start_compaction", epoch, attempt: 1 });
}

function withWork(step: Step, work: Work): Step {
  const { pending } = step.header;
  const isSubmit = work.type === "turn" && work.trigger === "submit";
  return withHeader(step, {
    work,
    epoch: work.epoch,
    pending: isSubmit ? withoutSubmitsTo(pending, work.agent) : pending,
  });
}
