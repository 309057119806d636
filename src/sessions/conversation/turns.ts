import { aloneAfterDeaths, deathLimit } from "../../base/death-limit.ts";
import type { EntryError, ReplyOutcome } from "../../protocol/message.ts";
import type {
  AgentFacts,
  Command,
  CommandDecision,
  CompactionFacts,
  Facts,
  Reply,
} from "./command.ts";
import {
  type ConversationDraft,
  decided,
  startDraft,
  unchanged,
  withEffect,
  appendEntry,
  appendFired,
  saysNothing,
  withHeader,
} from "./append.ts";
import { type Header, type Pending, permitWaitsOf, type Turn, type Work } from "./header.ts";
import { withAnswer } from "./approvals.ts";
import { withUnheard } from "./steering.ts";
import { summaryRangeOf, withoutSubmitsTo, withReplaced } from "./pending.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** What a new turn answers, and which message it makes. */
export type TurnRequest = Pick<
  Turn,
  "agent" | "trigger" | "replaces" | "messageId" | "wake" | "trace"
>;

/** From this attempt on, every loss of a suspect counts: it may kill pods only after its time alone. */
export const countedFromAttempt = 8;

/** For an agent that the owner does not know. Another pod may know it, and runs it with these defaults. */
const unknownAgent: AgentFacts = { during: "queue", attempts: 3, compaction: null };

export function finishTurn(
  header: Header,
  turn: Turn,
  { reply }: Of<"turn_finished">,
  facts: Facts,
): CommandDecision {
  return finishWithReply(header, turn, reply, facts);
}

/** Stores the turn's partial answer, outside the entries. */
export function keepCheckpoint(
  header: Header,
  { epoch, attempt, body }: Of<"checkpoint">,
): CommandDecision {
  return { ...unchanged(header, { done: true }), checkpoint: { epoch, attempt, body } };
}

/**
 * Stores steps that have ended. The turn has come further, so losses count from here. A copy that arrives
 * late changes nothing, because the journal compares the numbers of rows.
 */
export function keepSteps(
  header: Header,
  turn: Turn,
  { epoch, attempt, rows }: Of<"turn_steps">,
): CommandDecision {
  const { alone, ...rest } = turn;
  const isKnown = turn.hasSteps === true && turn.lost === 0 && alone === undefined;
  const work: Turn = { ...rest, lost: 0, hasSteps: true };
  const draft = isKnown ? startDraft(header) : withHeader(startDraft(header), { work });
  return { ...decided(draft, { done: true }), steps: { epoch, attempt, rows } };
}

/** Records whether the turn waits for a permit. A turn that is being stopped no longer waits. */
export function recordWait(
  header: Header,
  turn: Turn,
  { attempt, count }: Of<"turn_waiting">,
): CommandDecision {
  if (turn.stopping || count <= permitWaitsOf(turn)) return unchanged(header, { done: true });
  const work = { ...turn, waits: { attempt, count } };
  return decided(withHeader(startDraft(header), { work }), { done: true });
}

/** The runner is shutting down, so another starts over. A stopping turn ends with its checkpoint soon. */
export function releaseTurn(header: Header, turn: Turn, facts: Facts): CommandDecision {
  const next = nextAttempt(turn);
  if (turn.stopping) {
    const work = { ...next, runner: null, beganAtMs: facts.nowMs };
    return decided(withHeader(startDraft(header), { work }), { done: true });
  }
  // The pod that stops may be listed for a while, and would only release the turn again.
  return decided(startOver(header, next, facts, { except: turn.runner }), { done: true });
}

/** No runner has confirmed the turn for too long. */
export function loseTurn(
  header: Header,
  turn: Turn,
  { checkpoint }: Of<"work_lost">,
  facts: Facts,
): CommandDecision {
  const { runner, attempt } = turn;
  if (turn.stopping) return endStopped(header, turn, checkpoint, facts);
  // Either the debounce was lost with its owner, or no pod could run the turn. No runner has tried it.
  if (attempt === 0) return startDebounced(header, turn, facts);
  if (runner === null) {
    const next = startOver(header, turn, facts);
    const isFound = next.header.work?.runner !== null;
    return isFound ? decided(next, { done: true }) : unchanged(header, { done: false });
  }
  const again = nextAfterLoss(turn, facts);
  if (again) return decided(startOver(header, again, facts), { done: true });
  const lost = turn.lost + 1;
  const outcome = checkpoint && checkpoint.parts.length > 0 ? "cut" : "failed";
  const message = `${lost === 1 ? "the pod" : `all ${lost} pods`} that made this answer died or stopped responding`;
  const error = { code: "runner_lost", message };
  const reply = replySoFar(checkpoint, { outcome, error });
  return finishWithReply(header, turn, reply, facts);
}

export function startDebounced(header: Header, turn: Turn, facts: Facts): CommandDecision {
  return decided(startOver(header, { ...turn, attempt: 1 }, facts), { done: true });
}

/**
 * Ends the running turn only: pending requests are answered afterwards. The same record holds an entry
 * that names who stopped it. A turn that is being stopped already has that entry.
 */
export function stopTurn(
  header: Header,
  turn: Turn,
  { author = "program", by = "program" }: Of<"stop">,
  facts: Facts,
): CommandDecision {
  if (turn.stopping) return unchanged(header, { done: true });
  const { epoch, messageId } = turn;
  const withStop = appendEntry(
    startDraft(header),
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
  return decided(stopRunner(withStop, turn, facts), { done: true, seq: withStop.header.lastSeq });
}

/**
 * Makes the runner end the turn with its partial answer. Without a runner the answer is empty, or what the
 * last runner has stored of it if steps were stored: `work_lost` brings it.
 */
export function stopRunner(draft: ConversationDraft, turn: Turn, facts: Facts): ConversationDraft {
  if (turn.stopping) return draft;
  if (turn.runner === null && !turn.hasSteps) {
    return endTurn(draft, turn, replySoFar(undefined, { outcome: "stopped" }), facts);
  }
  const stopping = withHeader(draft, { work: { ...turn, stopping: true } });
  return abortWork(stopping, { keep: true });
}

/** The runner did not end the turn in time. Raising the epoch makes anything late from it stale. */
export function endStopped(
  header: Header,
  turn: Turn,
  checkpoint: Of<"stop_expired">["checkpoint"],
  facts: Facts,
): CommandDecision {
  const raised = { ...header, epoch: header.epoch + 1 };
  return finishWithReply(raised, turn, replySoFar(checkpoint, { outcome: "stopped" }), facts);
}

/** From here on the work is to blame if its pod is lost; with `beside`, other work may be to blame too. */
export function beginSuspect(
  header: Header,
  work: Work,
  { beside = false }: { readonly beside?: boolean },
): CommandDecision {
  const isKnown = work.alone === "beside" || (work.alone === "begun" && !beside);
  if (!work.alone || isKnown) return unchanged(header, { done: true });
  const begun: Work = { ...work, alone: beside ? "beside" : "begun" };
  return decided(withHeader(startDraft(header), { work: begun }), { done: true });
}

/**
 * The turn sees everything up to now, including answers given while its message was pending. So other
 * pending messages to the same agent need no turn of their own.
 */
export function startTurn(
  draft: ConversationDraft,
  request: TurnRequest,
  facts: Facts,
): ConversationDraft {
  const turn = newTurn(draft.header, request);
  const runner = facts.runnerFor(request.agent);
  const started = withWork(draft, { ...turn, attempt: 1, runner, beganAtMs: facts.nowMs });
  return withEffect(started, { type: "start_turn", epoch: turn.epoch, attempt: 1 });
}

/** A turn that waits for further messages before it starts. */
export function startDebounce(draft: ConversationDraft, request: TurnRequest): ConversationDraft {
  const turn = newTurn(draft.header, request);
  const { epoch, upToSeq } = turn;
  return withEffect(withWork(draft, turn), { type: "debounce", epoch, upToSeq });
}

/**
 * Starts a compaction in the name of an agent if one is due and a pod can run it. With the policy `manual`
 * the session is only marked. Returns undefined if no compaction starts.
 */
export function startDueCompaction(
  draft: ConversationDraft,
  agent: string,
  facts: Facts,
): ConversationDraft | undefined {
  const policy = agentFacts(facts, agent).compaction;
  if (policy?.when !== "auto" || !isDue(draft.header, policy)) return undefined;
  return startCompaction(draft, agent, facts);
}

export function startCompaction(
  draft: ConversationDraft,
  agent: string,
  facts: Facts,
): ConversationDraft | undefined {
  const { header } = draft;
  const range = summaryRangeOf(header);
  // Turns do not wait for a summary: if no pod can make it, they go on without.
  const runner = range && facts.runnerFor(agent);
  if (!range || runner === null || runner === undefined) return undefined;
  const epoch = header.epoch + 1;
  const work: Work = { type: "compaction", epoch, attempt: 1, lost: 0, agent, runner, ...range };
  return withEffect(withWork(draft, work), { type: "start_compaction", epoch, attempt: 1 });
}

/** Tells the runner to abort a turn or compaction. Does nothing if no runner is assigned. */
export function abortWork(
  draft: ConversationDraft,
  { keep }: { keep: boolean },
): ConversationDraft {
  const { work } = draft.header;
  if (!work || work.runner === null) return draft;
  const { runner, epoch, attempt } = work;
  return withEffect(draft, { type: "abort_turn", runner, epoch, attempt, keep });
}

/** After a compaction. Never starts another: a summary that is too long would cause them without end. */
export function continueAfterCompaction(draft: ConversationDraft, facts: Facts): ConversationDraft {
  return answerNext(dropUnanswerable(draft, facts), facts);
}

/** Marks the session for compaction, if the agent's policy is `manual`. */
export function markCompactionDue(
  draft: ConversationDraft,
  agent: string,
  facts: Facts,
): ConversationDraft {
  const { header } = draft;
  const policy = agentFacts(facts, agent).compaction;
  if (header.needsCompaction || policy?.when !== "manual" || !isDue(header, policy)) return draft;
  return withHeader(draft, { needsCompaction: true });
}

/**
 * The next attempt of work whose pod was lost; undefined when the work is given up. A pod loses all its
 * work at once, and only one piece may have killed it. So the last attempts begin alone, and count if the
 * pod is lost before other work begins beside them.
 */
export function nextAfterLoss<Lost extends Work>(work: Lost, facts: Facts): Lost | undefined {
  const again = nextAttempt(work);
  if (work.alone === "waits") return again;
  if (work.alone === "beside" && work.attempt < countedFromAttempt) return again;
  const lost = work.lost + 1;
  const maxLosses = Math.min(agentFacts(facts, work.agent).attempts, deathLimit);
  if (lost >= maxLosses) return undefined;
  const isSuspect = lost >= Math.min(aloneAfterDeaths, maxLosses - 1);
  return { ...again, lost, ...(isSuspect && { alone: "waits" }) };
}

/** The next attempt of work whose pod released it, which is not the work's fault. */
export function nextAttempt<Given extends Work>(work: Given): Given {
  return { ...work, attempt: work.attempt + 1, ...(work.alone && { alone: "waits" }) };
}

export function agentFacts(facts: Facts, agent: string): AgentFacts {
  return facts.agent(agent) ?? unknownAgent;
}

function finishWithReply(
  header: Header,
  turn: Turn,
  reply: Of<"turn_finished">["reply"],
  facts: Facts,
): CommandDecision {
  const ended = endTurn(startDraft(header), turn, reply, facts);
  const seq = ended.entries.find(({ outcome }) => outcome !== undefined)?.seq;
  return decided(ended, { ...(seq !== undefined && { seq }), done: true });
}

/**
 * Stores how a turn ended and goes on with what is pending. An empty answer does not replace an earlier
 * one: a failed regeneration must not wipe it out.
 */
function endTurn(
  draft: ConversationDraft,
  turn: Turn,
  reply: Reply,
  facts: Facts,
): ConversationDraft {
  const { outcome, parts, metadata, tokens, error } = reply;
  if (turn.wake && outcome === "completed" && saysNothing(parts)) {
    return continueSession(withHeader(draft, { work: null }), turn.agent, facts);
  }
  const isReplacing = turn.replaces !== null && (parts.length > 0 || outcome === "completed");
  const ended = withHeader(draft, { work: null });
  const stored = appendEntry(
    turn.wake ? appendFired(ended, turn.wake, turn, facts) : ended,
    {
      kind: "message",
      role: "assistant",
      author: turn.agent,
      messageId: turn.replaces === null || isReplacing ? turn.messageId : facts.newId(),
      ...(isReplacing && { replaces: turn.replaces! }),
      epoch: turn.epoch,
      ...answeredUpTo(turn),
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
  const isOfMessage = turn.replaces === null || isReplacing;
  // What was stopped or has failed is not taken up again, whatever it has left open.
  const open = outcome === "completed" ? parts : [];
  const { messageId } = turn;
  const answered = isOfMessage
    ? withHeader(stored, withAnswer(stored.header, { messageId, parts: open, nowMs: facts.nowMs }))
    : stored;
  const answer = isReplacing
    ? withHeader(answered, { pending: withReplaced(pending, replaced), replacedSeq: lastSeq })
    : answered;
  const asked = reply.unheard ? withUnheard(answer, turn.agent, facts) : answer;
  return continueSession(asked, turn.agent, facts);
}

/** The partial answer with this outcome. */
function replySoFar(
  checkpoint: Reply | undefined,
  end: { outcome: ReplyOutcome; error?: EntryError },
): Reply {
  return { tokens: 0, parts: [], ...checkpoint, ...end };
}

/** After an agent's turn: a compaction if one is due, else the next pending request. */
function continueSession(draft: ConversationDraft, agent: string, facts: Facts): ConversationDraft {
  const open = dropUnanswerable(markCompactionDue(draft, agent, facts), facts);
  if (open.header.status !== "active") return open;
  const next = open.header.pending[0]?.agent;
  const due =
    startDueCompaction(open, agent, facts) ?? (next && startDueCompaction(open, next, facts));
  return due || answerNext(open, facts);
}

/** Messages come before wakes: a turn that was woken sees them, and must not find them unanswered. */
function answerNext(draft: ConversationDraft, facts: Facts): ConversationDraft {
  const { pending } = draft.header;
  const next = pending.find(({ wake }) => !wake) ?? pending[0];
  if (!next) return draft;
  const rest = pending.filter((each) => each !== next);
  return startTurn(withHeader(draft, { pending: rest }), next, facts);
}

/**
 * Ends pending requests that cannot be answered, with a visible entry: their agent left, or the session
 * was archived.
 */
function dropUnanswerable(draft: ConversationDraft, facts: Facts): ConversationDraft {
  const { header } = draft;
  const isAnswerable = ({ agent }: Pending) =>
    header.status === "active" && header.agents.includes(agent);
  const pending = header.pending.filter(isAnswerable);
  if (pending.length === header.pending.length) return draft;
  return header.pending
    .filter((each) => !isAnswerable(each))
    .reduce((to, each) => unanswered(to, each, facts), withHeader(draft, { pending }));
}

/** Ends a request that cannot be answered with a visible entry. */
export function unanswered(
  draft: ConversationDraft,
  pending: TurnRequest & Partial<Pick<Pending, "upToSeq">>,
  facts: Facts,
): ConversationDraft {
  const { agent, trigger, messageId, wake } = pending;
  return appendEntry(
    wake ? appendFired(draft, wake, { agent }, facts) : draft,
    {
      kind: "message",
      role: "assistant",
      author: agent,
      messageId: trigger === "submit" ? messageId : facts.newId(),
      ...(!wake && answeredUpTo(pending)),
      ...unansweredOutcome(draft.header, agent),
      tokens: 0,
      parts: [],
      clientId: null,
    },
    facts,
  );
}

/** Only messages of users are answered; a regeneration refers to an answer. */
function answeredUpTo({
  trigger,
  upToSeq,
  steering,
}: Pick<Turn, "trigger" | "steering"> & { upToSeq?: number }): {
  upToSeq?: number;
  beganSeq?: number;
} {
  const { heardSeq = 0 } = steering ?? {};
  if (heardSeq > 0)
    return { upToSeq: heardSeq, ...(upToSeq !== undefined && { beganSeq: upToSeq }) };
  return (trigger === "submit" || trigger === "wake") && upToSeq !== undefined ? { upToSeq } : {};
}

function unansweredOutcome(
  { status }: Header,
  agent: string,
): { outcome: ReplyOutcome; error?: EntryError } {
  if (status !== "active") return { outcome: "stopped" };
  const message = `${agent} has left the session`;
  return { outcome: "failed", error: { code: "agent_removed", message } };
}

function startOver(
  header: Header,
  turn: Turn,
  facts: Facts,
  { except = null }: { except?: string | null } = {},
): ConversationDraft {
  const { epoch, attempt, agent } = turn;
  const work = { ...turn, runner: facts.runnerFor(agent, except), beganAtMs: facts.nowMs };
  const started = withHeader(startDraft(header), { work });
  return withEffect(started, { type: "start_turn", epoch, attempt });
}

function newTurn(header: Header, request: TurnRequest): Turn {
  const { agent, trigger, replaces, messageId, wake, trace } = request;
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
    ...(wake && { wake }),
    ...(trace !== undefined && { trace }),
  };
}

function withWork(draft: ConversationDraft, work: Work): ConversationDraft {
  const { pending } = draft.header;
  const isSubmit = work.type === "turn" && work.trigger === "submit";
  return withHeader(draft, {
    work,
    epoch: work.epoch,
    pending: isSubmit ? withoutSubmitsTo(pending, work.agent) : pending,
  });
}

/**
 * True when the entries since the last summary should be summarised. After a failed compaction the session
 * must first grow by a tenth of the budget, doubled with each further failure. Growth replaces a clock
 * here, because an unused session gets no new entries.
 */
function isDue(header: Header, { tokenBudget, triggerRatio }: CompactionFacts): boolean {
  const { tokens, compactionFailures, failedAtTokens } = header;
  if (tokens < triggerRatio * tokenBudget) return false;
  if (failedAtTokens === 0) return true;
  const doublings = Math.min(Math.max(compactionFailures - 1, 0), 10);
  return tokens >= failedAtTokens + 0.1 * tokenBudget * 2 ** doublings;
}
