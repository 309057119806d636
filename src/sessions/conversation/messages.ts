import type { Command, CommandDecision, Facts, Target, Traced } from "./command.ts";
import {
  type ConversationDraft,
  decided,
  refuseCommand,
  startDraft,
  unchanged,
  withEffect,
  appendEntry,
  withHeader,
} from "./append.ts";
import { withResults } from "./approvals.ts";
import type { Header } from "./header.ts";
import { addPending } from "./pending.ts";
import { withSteering } from "./steering.ts";
import {
  abortWork,
  agentFacts,
  markCompactionDue,
  startDebounce,
  startDueCompaction,
  startTurn,
  stopRunner,
  type TurnRequest,
} from "./turns.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** Only a user's message starts a turn, and only if the session has an agent. */
export function append(header: Header, command: Of<"append">, facts: Facts): CommandDecision {
  const { to, clientId, messageId, role, author, parts, metadata, tokens, tasks } = command;
  if (header.status === "archived") return archived();
  if (to !== undefined && !header.agents.includes(to)) return noSuchAgent(to);
  const agent = to ?? header.agents[0];
  const entry = { kind: "message", role, author, messageId, parts, tokens, clientId } as const;
  const stored = appendEntry(
    startDraft(header),
    {
      ...entry,
      ...(metadata !== undefined && { metadata }),
      ...(tasks && { tasks: tasks.map(({ taskId }) => taskId) }),
    },
    facts,
  );
  const { lastSeq: seq } = stored.header;
  if (role !== "user" || agent === undefined) return decided(stored, { seq, done: true });

  const request: TurnRequest = {
    agent,
    trigger: "submit",
    replaces: null,
    messageId: facts.newId(),
    ...tracedBy(command),
  };
  const next = submit(header, markCompactionDue(stored, agent, facts), request, facts);
  return next ? decided(next, { seq, done: true }) : tooManyPending();
}

/**
 * Stores the results of an agent's tool calls, and lets the agent continue, unless other calls are still
 * open. It never interrupts a turn.
 */
export function toolResult(
  header: Header,
  command: Of<"tool_result">,
  facts: Facts,
): CommandDecision {
  const { clientId, author, messageId, results, target, tokens, isExact, waits } = command;
  if (header.status === "archived") return archived();
  if (!header.agents.includes(target.author)) return noSuchAgent(target.author);
  if (isStale(header, target)) return replaced();
  if (isExact && hasLaterResult(header, target)) return replaced();
  const draft = appendEntry(
    startDraft(header),
    {
      kind: "tool_result",
      role: "user",
      author,
      // Not the id of the message it is about, whose newest entry must stay the agent's own.
      messageId: facts.newId(),
      results: { messageId, results },
      tokens,
      parts: [],
      clientId,
    },
    facts,
  );
  const appended = withHeader(draft, withResults(draft.header, target.messageId, results));
  const { lastSeq: seq } = appended.header;
  const stored = isExact ? withHeader(appended, { resultSeq: seq }) : appended;
  if (waits) return decided(stored, { seq, done: true });
  const next = continueAt(header, stored, command, facts);
  return next ? decided(next, { seq, done: true }) : tooManyPending();
}

/**
 * Starts a new version of an answer. It stores no entry, so a repeat while it is pending changes nothing.
 */
export function regenerate(
  header: Header,
  command: Of<"regenerate">,
  facts: Facts,
): CommandDecision {
  const { target } = command;
  if (header.status === "archived") return archived();
  if (!header.agents.includes(target.author)) return noSuchAgent(target.author);
  const { work, pending } = header;
  const isPending = [...(work?.type === "turn" ? [work] : []), ...pending].some(
    (each) => each.trigger === "regenerate" && each.messageId === target.messageId,
  );
  if (isPending) return unchanged(header, { done: true });
  if (isStale(header, target)) return replaced();
  const next = continueAt(header, startDraft(header), command, facts);
  return next ? decided(next, { done: true }) : tooManyPending();
}

function submit(
  before: Header,
  draft: ConversationDraft,
  request: TurnRequest,
  facts: Facts,
): ConversationDraft | undefined {
  const { work } = before;
  const { during, steers } = agentFacts(facts, request.agent);
  if (!work) {
    // The message is queued outside the summary's range, so that its agent sees it in full.
    const waiting = queueRequest(before, draft, request);
    const compacting = waiting && startDueCompaction(waiting, request.agent, facts);
    return compacting ?? beginTurn(draft, request, during, facts);
  }
  const isOwnTurn = work.type === "turn" && work.agent === request.agent;
  if (isOwnTurn && work.attempt === 0) {
    const { epoch } = work;
    const { lastSeq: upToSeq } = draft.header;
    const moved = withHeader(draft, { work: { ...work, upToSeq } });
    return withEffect(moved, { type: "debounce", epoch, upToSeq });
  }
  // A turn that is being stopped will still store its answer, and only one that was woken can ask that.
  if (!isOwnTurn || work.stopping || work.wake) return queueRequest(before, draft, request);
  if (during === "queue") {
    const waiting = queueRequest(before, draft, request);
    return waiting && steers ? withSteering(before, waiting, work) : waiting;
  }
  // What its steps have done has happened, so the answer is kept and says so.
  if (work.hasSteps) {
    const waiting = queueRequest(before, draft, request);
    return waiting && stopRunner(waiting, work, facts);
  }
  return beginTurn(abortWork(draft, { keep: false }), request, during, facts);
}

function beginTurn(
  draft: ConversationDraft,
  request: TurnRequest,
  during: string,
  facts: Facts,
): ConversationDraft {
  return during === "merge" ? startDebounce(draft, request) : startTurn(draft, request, facts);
}

function continueAt(
  before: Header,
  draft: ConversationDraft,
  command: Of<"tool_result" | "regenerate">,
  facts: Facts,
): ConversationDraft | undefined {
  const { type: trigger, target } = command;
  const { author: agent, seq: replaces, messageId } = target;
  const request: TurnRequest = { agent, trigger, replaces, messageId, ...tracedBy(command) };
  return before.work ? queueRequest(before, draft, request) : startTurn(draft, request, facts);
}

export function queueRequest(
  before: Header,
  draft: ConversationDraft,
  request: TurnRequest,
): ConversationDraft | undefined {
  const from = { fromSeq: before.lastSeq + 1, tokensBefore: before.tokens };
  const pending = addPending(draft.header, { ...request, ...from });
  return pending && withHeader(draft, { pending });
}

export function tracedBy({ trace }: Traced): Traced {
  return trace === undefined ? {} : { trace };
}

/** True when an answer was replaced after the target was read, and it may be the target. */
function isStale({ replacedSeq = 0 }: Header, { seenSeq = Infinity }: Target): boolean {
  return replacedSeq > seenSeq;
}

/** True when results were stored after the target was read, and they may be about its calls. */
function hasLaterResult({ resultSeq = 0 }: Header, { seenSeq = Infinity }: Target): boolean {
  return resultSeq > seenSeq;
}

function replaced(): CommandDecision {
  const message = "an answer was replaced meanwhile: read it, and send this again";
  return { type: "refused", code: "conflict", message, details: { replaced: true } };
}

export function archived(): CommandDecision {
  return refuseCommand("conflict", "the session is archived: unarchive it first");
}

export function noSuchAgent(agent: string): CommandDecision {
  return refuseCommand("invalid_input", `the session has no agent ${agent}`);
}

export function tooManyPending(): CommandDecision {
  return refuseCommand(
    "overloaded",
    "too many requests are pending in this session: wait for answers",
  );
}
