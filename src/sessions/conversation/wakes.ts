import type { Command, CommandDecision, Facts } from "./command.ts";
import {
  appendEntry,
  type ConversationDraft,
  decided,
  previewOf,
  refuseCommand,
  startDraft,
  unchanged,
  withHeader,
} from "./append.ts";
import { type Header, maxWakes, type Wake } from "./header.ts";
import { archived, noSuchAgent, queueRequest, tooManyPending, tracedBy } from "./messages.ts";
import { startTurn, type TurnRequest, unanswered } from "./turns.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/*
 * A wake is set by an entry, and kept in the header with the id of the task that fires it. The task is
 * stored in the record of that entry. Only the task that the header names can fire the wake, and firing
 * takes it out of the header or names the next task: so each time is one turn, however often a task runs.
 *
 * The task of a wake that was replaced or has ended is outdated. The next wake that is set has it run at once,
 * so that a session leaves no more tasks of times to come than it may have wakes, however often it sets them.
 */

/** Sets a wake, in place of the one with the same key. */
export function setWake(header: Header, command: Of<"wake_set">, facts: Facts): CommandDecision {
  const { clientId, author, key, atMs, cron, timezone, message, taskId, epoch } = command;
  if (header.status === "archived") return archived();
  const agent = command.agent ?? header.agents[0];
  if (agent === undefined) {
    return refuseCommand("invalid_input", "the session has no agent to wake");
  }
  if (!header.agents.includes(agent)) return noSuchAgent(agent);
  if (epoch !== undefined && header.work?.epoch !== epoch) {
    return refuseCommand("conflict", `turn ${epoch} has ended, and sets no wake any more`);
  }
  const { wakes = [] } = header;
  const former = wakes.find((each) => each.key === key);
  if (!former && wakes.length >= maxWakes) {
    return refuseCommand(
      "conflict",
      `the session has ${maxWakes} wakes, and takes no more: cancel one, or set one again by its key`,
    );
  }
  const parts = message === undefined ? [] : [{ type: "text", text: message }];
  const comesAgain = {
    ...(cron !== undefined && { cron }),
    ...(timezone !== undefined && { timezone }),
  };
  const entry = { event: "set", key, agent, atMs, ...comesAgain } as const;
  const stored = appendWakeEntry(
    startDraft(header),
    { clientId, author, parts, wake: entry },
    facts,
  );
  const { lastSeq: seq } = stored.header;
  const preview = previewOf(parts);
  const wake: Wake = {
    key,
    agent,
    atMs,
    ...comesAgain,
    ...(preview !== "" && { preview }),
    author,
    setAtMs: facts.nowMs,
    setSeq: seq,
    taskId,
  };
  const set = withHeader(stored, {
    wakes: former ? wakes.map((each) => (each === former ? wake : each)) : [...wakes, wake],
    ...(header.endedWakes && { endedWakes: [] }),
  });
  return decided(set, { seq, done: true });
}

export function cancelWake(
  header: Header,
  { key, setSeq, author }: Of<"wake_cancel">,
  facts: Facts,
): CommandDecision {
  const { wakes = [] } = header;
  const wake = wakes.find((each) => each.key === key && each.setSeq === setSeq);
  if (!wake) return unchanged(header, { done: false });
  const { agent, atMs } = wake;
  const note = { event: "cancelled", key, agent, atMs } as const;
  const about = { clientId: null, author, parts: [], wake: note };
  const stored = appendWakeEntry(startDraft(header), about, facts);
  const left = withHeader(stored, {
    wakes: wakes.filter((each) => each !== wake),
    ...endedWakes(header, [wake]),
  });
  return decided(left, { seq: left.header.lastSeq, done: true });
}

/** With the tasks of wakes that end now. */
export function endedWakes(
  header: Header,
  ended: readonly Wake[] = header.wakes ?? [],
): Pick<Header, "endedWakes"> {
  if (ended.length === 0) return {};
  return { endedWakes: [...(header.endedWakes ?? []), ...ended.map(({ taskId }) => taskId)] };
}

/** The tasks of wakes that have nothing to do once a wake is set. */
export function outdatedBy(before: Header, { wakes = [] }: Header): readonly string[] {
  const named = new Set(wakes.map(({ taskId }) => taskId));
  const known = [...(before.endedWakes ?? []), ...(before.wakes ?? []).map(({ taskId }) => taskId)];
  return known.filter((taskId) => !named.has(taskId));
}

/**
 * Asks the agent, in a turn of its own or once what is under way has ended. Nothing is stored of it before
 * the agent has said something, so that a wake that finds nothing to say leaves no entry.
 */
export function fireWake(header: Header, command: Of<"wake_fired">, facts: Facts): CommandDecision {
  const { key, taskId, message, next } = command;
  const { wakes = [] } = header;
  const wake = wakes.find((each) => each.key === key && each.taskId === taskId);
  if (!wake || header.status !== "active") return unchanged(header, { done: false });
  const isMember = header.agents.includes(wake.agent);
  const left = withHeader(startDraft(header), {
    wakes:
      next && isMember
        ? wakes.map((each) => (each === wake ? { ...wake, ...next } : each))
        : wakes.filter((each) => each !== wake),
  });
  const { agent, atMs, author } = wake;
  const request: TurnRequest = {
    agent,
    trigger: "wake",
    replaces: null,
    messageId: facts.newId(),
    wake: { key, atMs, author, ...(message !== undefined && { message }) },
    ...tracedBy(command),
  };
  if (!isMember) return decided(unanswered(left, request, facts), { done: true });
  const asked = header.work ? queueRequest(header, left, request) : startTurn(left, request, facts);
  return asked ? decided(asked, { done: true }) : tooManyPending();
}

function appendWakeEntry(
  draft: ConversationDraft,
  entry: Required<
    Pick<ConversationDraft["entries"][number], "clientId" | "author" | "parts" | "wake">
  >,
  facts: Facts,
): ConversationDraft {
  const about = { kind: "wake", role: "system", messageId: facts.newId(), tokens: 0 } as const;
  return appendEntry(draft, { ...about, ...entry }, facts);
}
