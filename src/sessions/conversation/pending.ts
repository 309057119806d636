import type { Header, Pending, Turn } from "./header.ts";

/** Headers are bounded, so what waits is too. One agent's messages wait together and count once. */
export const maxPending = 16;

type PendingRequest = Pick<Turn, "agent" | "trigger" | "replaces" | "messageId" | "trace"> & {
  /** The first entry that waits, and what was counted before it. */
  readonly fromSeq: number;
  readonly tokensBefore: number;
};

/**
 * Adds what has to wait. A later message to the same agent is answered together with the earlier ones,
 * as is a later result for the same message, or the same regeneration asked again: each keeps the place
 * of the first. Everything else waits on its own. Undefined where too much waits already.
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

function isSame(pending: Pending, { agent, trigger, messageId }: PendingRequest): boolean {
  if (pending.agent !== agent || pending.trigger !== trigger) return false;
  return trigger === "submit" || pending.messageId === messageId;
}

/** What still waits once a turn of the agent answers all that was said to it. */
export function withoutSubmitsTo(pending: readonly Pending[], agent: string): readonly Pending[] {
  return pending.some((each) => isSubmitTo(each, agent))
    ? pending.filter((each) => !isSubmitTo(each, agent))
    : pending;
}

function isSubmitTo(pending: Pending, agent: string): boolean {
  return pending.agent === agent && pending.trigger === "submit";
}

/** A message has been replaced: what waits to replace it too has to replace the newer entry. */
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
