import type { Header, Pending, Turn } from "./header.ts";

/** Bounds the header. Messages to one agent wait together and count once. */
export const maxPending = 16;

type PendingRequest = Pick<Turn, "agent" | "trigger" | "replaces" | "messageId" | "trace"> & {
  /** The first pending entry, and the header's `tokens` before it. */
  readonly fromSeq: number;
  readonly tokensBefore: number;
};

/**
 * Adds a request that has to wait. A later message to the same agent joins the earlier ones, as does a
 * later result for the same message or a repeated regeneration: each keeps the first one's position. Every
 * other request waits on its own. Undefined if the limit is reached.
 */
export function addPending(
  header: Pick<Header, "pending" | "lastSeq">,
  request: PendingRequest,
): readonly Pending[] | undefined {
  const { pending, lastSeq } = header;
  const same = pending.findIndex((each) => isSame(each, request));
  if (same >= 0) {
    return pending.map((each, at) => (at === same ? { ...each, upToSeq: lastSeq } : each));
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

function isSame(pending: Pending, { agent, trigger, messageId }: PendingRequest): boolean {
  if (pending.agent !== agent || pending.trigger !== trigger) return false;
  return trigger === "submit" || pending.messageId === messageId;
}

function isSubmitTo(pending: Pending, agent: string): boolean {
  return pending.agent === agent && pending.trigger === "submit";
}
