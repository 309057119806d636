import type { Compaction, Header, Pending, Turn } from "./header.ts";

/** Bounds the header. Messages to one agent wait together and count once. */
export const maxPending = 16;

type PendingRequest = Pick<
  Turn,
  "agent" | "trigger" | "replaces" | "messageId" | "wake" | "trace"
> & {
  /** The first pending entry, and the header's `tokens` before it. */
  readonly fromSeq: number;
  readonly tokensBefore: number;
};

/**
 * Adds a request that has to wait. A later message to the same agent joins the earlier ones, as does a
 * later result for the same message, a repeated regeneration, or a wake that fires again: each keeps the
 * first one's position, and of a wake the later time and message count. Every other request waits on its own. Undefined if the limit is reached.
 */
export function addPending(
  header: Pick<Header, "pending" | "lastSeq">,
  request: PendingRequest,
): readonly Pending[] | undefined {
  const { pending, lastSeq } = header;
  const same = pending.findIndex((each) => isSame(each, request));
  if (same >= 0) {
    const { wake } = request;
    const later = { upToSeq: lastSeq, ...(wake && { wake }) };
    return pending.map((each, at) => (at === same ? { ...each, ...later } : each));
  }
  if (pending.length >= maxPending) return undefined;
  return [...pending, { ...request, upToSeq: lastSeq }];
}

/** What is still pending after a turn of the agent has answered all messages to it. */
export function withoutSubmitsTo(pending: readonly Pending[], agent: string): readonly Pending[] {
  return pending.some((each) => isSubmitTo(each, agent))
    ? pending.filter((each) => !isSubmitTo(each, agent))
    : pending;
}

/** A message was replaced, so a pending request to replace it must replace the newer entry. */
export function withReplaced(
  pending: readonly Pending[],
  replaced: { messageId: string; seq: number },
): readonly Pending[] {
  return pending.map((each) =>
    each.replaces !== null && each.messageId === replaced.messageId
      ? { ...each, replaces: replaced.seq }
      : each,
  );
}

/**
 * The range that a summary made now covers: everything before the first pending entry, because an agent
 * must see in full what it is to answer. Undefined if the range has nothing new.
 */
export function summaryRangeOf(header: Header): Pick<Compaction, "toSeq" | "tokens"> | undefined {
  const { lastSeq, compactedSeq, summarySeq, tokens, pending } = header;
  let range = { toSeq: lastSeq, tokens };
  for (const { fromSeq, tokensBefore } of pending) {
    if (fromSeq <= range.toSeq) range = { toSeq: fromSeq - 1, tokens: tokensBefore };
  }
  // The last summary comes after its own range, among later entries.
  const isSummaryWithin = summarySeq > compactedSeq && summarySeq <= range.toSeq;
  const newEntries = range.toSeq - compactedSeq - (isSummaryWithin ? 1 : 0);
  return newEntries > 0 ? range : undefined;
}

function isSame(pending: Pending, { agent, trigger, messageId, wake }: PendingRequest): boolean {
  if (pending.agent !== agent || pending.trigger !== trigger) return false;
  if (wake) return pending.wake?.key === wake.key;
  return trigger === "submit" || pending.messageId === messageId;
}

/** The messages to an agent that wait for a turn. */
export function submitTo(pending: readonly Pending[], agent: string): Pending | undefined {
  return pending.find((each) => isSubmitTo(each, agent));
}

function isSubmitTo(pending: Pending, agent: string): boolean {
  return pending.agent === agent && pending.trigger === "submit";
}
