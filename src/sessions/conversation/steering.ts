import { type ConversationDraft, decided, startDraft, unchanged, withHeader } from "./append.ts";
import type { Command, CommandDecision, Facts } from "./command.ts";
import { type Header, maxSteering, type Steering, type Turn } from "./header.ts";
import { addPending, submitTo, withoutSubmitsTo } from "./pending.ts";

const noSteering: Steering = { waiting: [], heardSeq: 0 };

/**
 * Tells which messages the turn may hear, or stores that it has heard them: they are its own from then on,
 * and no other turn answers them. A turn that is being stopped hears nothing more.
 */
export function hear(
  header: Header,
  turn: Turn,
  { epoch, attempt, heard }: Extract<Command, { type: "turn_hearing" }>,
): CommandDecision {
  const { steering = noSteering, stopping } = turn;
  const pending = submitTo(header.pending, turn.agent);
  // What its agent has left unanswered, because it was removed, is said to be so already.
  const mayHear = stopping || !pending ? [] : steering.waiting;
  if (!heard) return unchanged(header, { done: true, steering: mayHear });
  const { seqs, row } = heard;
  const newest = seqs.at(-1) ?? 0;
  if (newest <= steering.heardSeq) return unchanged(header, { done: true, steering: seqs });
  if (!mayHear.includes(newest)) return unchanged(header, { done: true, steering: [] });
  const waiting = mayHear.filter((seq) => seq > newest);
  const { alone: _, ...rest } = turn;
  const work: Turn = { ...rest, lost: 0, hasSteps: true, steering: { waiting, heardSeq: newest } };
  const isAll = pending?.upToSeq === newest;
  const left = isAll ? withoutSubmitsTo(header.pending, turn.agent) : header.pending;
  const draft = withHeader(startDraft(header), { work, pending: left });
  return {
    ...decided(draft, { done: true, steering: seqs }),
    steps: { epoch, attempt, rows: [row] },
  };
}

/**
 * A message that the turn may hear waits for the next turn as well. Messages are heard in their order, so it
 * may be heard only if all others that wait may.
 */
export function withSteering(
  before: Header,
  draft: ConversationDraft,
  turn: Turn,
): ConversationDraft {
  const { steering = noSteering } = turn;
  const earlier = submitTo(before.pending, turn.agent);
  const waiting = earlier ? steering.waiting : [];
  const isNext = waiting.at(-1) === earlier?.upToSeq;
  if (!isNext || waiting.length >= maxSteering) return draft;
  const { lastSeq } = draft.header;
  return withHeader(draft, {
    work: { ...turn, steering: { ...steering, waiting: [...waiting, lastSeq] } },
  });
}

/** The next turn answers what this one should have heard. */
export function withUnheard(
  draft: ConversationDraft,
  agent: string,
  facts: Facts,
): ConversationDraft {
  const { header } = draft;
  const { lastSeq, tokens: tokensBefore } = header;
  const message = { agent, trigger: "submit", replaces: null, messageId: facts.newId() } as const;
  const pending = addPending(header, { ...message, fromSeq: lastSeq + 1, tokensBefore });
  return pending ? withHeader(draft, { pending }) : draft;
}
