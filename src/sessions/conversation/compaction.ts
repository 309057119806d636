import type { Command, CommandDecision, Facts } from "./command.ts";
import type { Compaction, Header } from "./header.ts";
import {
  nextAfterLoss,
  agentFacts,
  continueAfterCompaction,
  nextAttempt,
  startCompaction,
} from "./turns.ts";
import {
  decided,
  startDraft,
  refuseCommand,
  type ConversationDraft,
  unchanged,
  withEffect,
  appendEntry,
  withHeader,
} from "./append.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** Starts a compaction on request, at once or not at all. */
export function compact(header: Header, command: Of<"compact">, facts: Facts): CommandDecision {
  if (header.status === "archived")
    return refuseCommand("conflict", "the session is archived: unarchive it first");
  const agent = command.agent ?? header.agents[0];
  if (agent === undefined || !header.agents.includes(agent)) {
    return refuseCommand(
      "invalid_input",
      `the session has no agent ${agent ?? "to compact it: add one"}`,
    );
  }
  if (!agentFacts(facts, agent).compaction) {
    return refuseCommand("invalid_input", `the agent ${agent} has no compaction`);
  }
  if (header.work) return unchanged(header, { done: header.work.type === "compaction" });
  const started = startCompaction(startDraft(header), agent, facts);
  return started ? decided(started, { done: true }) : unchanged(header, { done: false });
}

/** The summary replaces its range only. Entries that came meanwhile stay counted. */
export function finishCompaction(
  header: Header,
  work: Compaction,
  { parts, tokens }: Of<"compaction_finished">,
  facts: Facts,
): CommandDecision {
  const stored = appendEntry(
    withHeader(startDraft(header), { work: null }),
    {
      kind: "summary",
      role: "system",
      author: work.agent,
      messageId: facts.newId(),
      epoch: work.epoch,
      throughSeq: work.toSeq,
      tokens,
      parts,
      clientId: null,
    },
    facts,
  );
  const policy = agentFacts(facts, work.agent).compaction;
  const isTooLong = policy !== null && tokens >= policy.triggerRatio * policy.tokenBudget;
  const tokensLeft = stored.header.tokens - work.tokens;
  const summed = withHeader(stored, {
    summarySeq: stored.header.lastSeq,
    compactedSeq: work.toSeq,
    tokens: tokensLeft,
    compactionFailures: 0,
    // A summary over the limit by itself must not be summarised again after every turn.
    failedAtTokens: isTooLong ? tokensLeft : 0,
    needsCompaction: false,
    pending: header.pending.map((each) => ({
      ...each,
      tokensBefore: each.tokensBefore - work.tokens + tokens,
    })),
  });
  const seq = stored.header.lastSeq;
  return decided(continueAfterCompaction(summed, facts), { seq, done: true });
}

/** Turns go on without a summary. It is tried again after the session has grown. */
export function failCompaction(header: Header, facts: Facts): CommandDecision {
  const { compactionFailures, tokens } = header;
  const failed = withHeader(startDraft(header), {
    work: null,
    compactionFailures: compactionFailures + 1,
    failedAtTokens: tokens,
  });
  return decided(continueAfterCompaction(failed, facts), { done: true });
}

export function releaseCompaction(header: Header, work: Compaction, facts: Facts): CommandDecision {
  const next = startOver(header, nextAttempt(work), facts);
  // No pod can run it now. That is not the compactor's fault, so it counts as no failure.
  const draft =
    next ?? continueAfterCompaction(withHeader(startDraft(header), { work: null }), facts);
  return decided(draft, { done: true });
}

export function loseCompaction(header: Header, work: Compaction, facts: Facts): CommandDecision {
  const again = nextAfterLoss(work, facts);
  const next = again && startOver(header, again, facts);
  return next ? decided(next, { done: true }) : failCompaction(header, facts);
}

function startOver(header: Header, work: Compaction, facts: Facts): ConversationDraft | undefined {
  const runner = facts.runnerFor(work.agent);
  if (runner === null) return undefined;
  const { epoch, attempt } = work;
  const started = withHeader(startDraft(header), { work: { ...work, runner } });
  return withEffect(started, { type: "start_compaction", epoch, attempt });
}
