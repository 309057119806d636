import type { EntryError, ReplyOutcome } from "../../protocol/message.ts";
import type { Facts, Reply } from "./command.ts";
import type { Header, Pending, Turn } from "./header.ts";
import { isDue } from "./due.ts";
import { withReplaced } from "./pending.ts";
import { factsOf, startDueCompaction, startTurn } from "./starting.ts";
import { type Step, withEffect, withEntry, withHeader } from "./decision.ts";

/**
 * Stores how a turn ended and goes on with what waits. An answer in which nothing was said doesn't take
 * the place of an earlier one: a regeneration that fails would wipe out what was there.
 */
export function endTurn(step: Step, turn: Turn, reply: Reply, facts: Facts): Step {
  const { outcome, parts, metadata, tokens, error } = reply;
  const isReplacing = turn.replaces !== null && (parts.length > 0 || outcome === "completed");
  const stored = withEntry(
    withHeader(step, { work: null }),
    {
      kind: "message",
      role: "assistant",
      author: turn.agent,
      messageId: turn.replaces === null || isReplacing ? turn.messageId : facts.newId(),
      ...(isReplacing && { replaces: turn.replaces! }),
      epoch: turn.epoch,
      ...answered(turn),
      outcome,
      ...(error && { error }),
      tokens,
      parts,
      ...(metadata !== undefined && { metadata }),
      clientId: null,
    },
    facts,
  );
  const { pending, lastSeq } = stored.header;
  const replaced = { messageId: turn.messageId, seq: lastSeq };
  const ended = isReplacing
    ? withHeader(stored, { pending: withReplaced(pending, replaced), replacedSeq: lastSeq })
    : stored;
  return goOn(ended, turn.agent, facts);
}

/** Whatever has been said so far, as an answer that ended so. */
export function replySoFar(
  checkpoint: Reply | undefined,
  end: { outcome: ReplyOutcome; error?: EntryError },
): Reply {
  return { tokens: 0, parts: [], ...checkpoint, ...end };
}

/** Tells the runner to end a turn or compaction. Where none was found yet there is nobody to tell. */
export function abortWork(step: Step, { keep }: { keep: boolean }): Step {
  const { work } = step.header;
  if (!work || work.runner === null) return step;
  const { runner, epoch, attempt } = work;
  return withEffect(step, { type: "abort_turn", runner, epoch, attempt, keep });
}

/** What comes after an agent's turn: a compaction if one is due, else what waits. */
export function goOn(step: Step, agent: string, facts: Facts): Step {
  const open = dropUnanswerable(markDue(step, agent, facts), facts);
  if (open.header.status !== "active") return open;
  const next = open.header.pending[0]?.agent;
  const due =
    startDueCompaction(open, agent, facts) ?? (next && startDueCompaction(open, next, facts));
  return due || answerNext(open, facts);
}

/** What comes after a compaction. Never another one: a summary that is too long would make them without end. */
export function goOnAfterCompaction(step: Step, facts: Facts): Step {
  return answerNext(dropUnanswerable(step, facts), facts);
}

function answerNext(step: Step, facts: Facts): Step {
  const [next, ...pending] = step.header.pending;
  return next ? startTurn(withHeader(step, { pending }), next, facts) : step;
}

/** Says that a compaction should be done, where it is done by hand. */
export function markDue(step: Step, agent: string, facts: Facts): Step {
  const { header } = step;
  const policy = factsOf(facts, agent).compaction;
  if (header.needsCompaction || policy?.when !== "manual" || !isDue(header, policy)) return step;
  return withHeader(step, { needsCompaction: true });
}

/** What waits for an agent that left, or in a session that was archived, ends here and can be seen to. */
function dropUnanswerable(step: Step, facts: Facts): Step {
  const { header } = step;
  const isAnswerable = ({ agent }: Pending) =>
    header.status === "active" && header.agents.includes(agent);
  const pending = header.pending.filter(isAnswerable);
  if (pending.length === header.pending.length) return step;
  return header.pending
    .filter((each) => !isAnswerable(each))
    .reduce((to, each) => unanswered(to, each, facts), withHeader(step, { pending }));
}

function unanswered(step: Step, pending: Pending, facts: Facts): Step {
  const { agent, trigger, messageId } = pending;
  return withEntry(
    step,
    {
      kind: "message",
      role: "assistant",
      author: agent,
      messageId: trigger === "submit" ? messageId : facts.newId(),
      ...answered(pending),
      ...endOf(step.header, agent),
      tokens: 0,
      parts: [],
      clientId: null,
    },
    facts,
  );
}

/** Only what users said is answered; a regeneration is about an answer. */
function answered({ trigger, upToSeq }: Pick<Turn, "trigger" | "upToSeq">): { upToSeq?: number } {
  return trigger === "submit" ? { upToSeq } : {};
}

function endOf({ status }: Header, agent: string): { outcome: ReplyOutcome; error?: EntryError } {
  if (status !== "active") return { outcome: "stopped" };
  const message = `${agent} has left the session`;
  return { outcome: "failed", error: { code: "agent_removed", message } };
}
