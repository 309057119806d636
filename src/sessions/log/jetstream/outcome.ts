import type { PublishAnswer, StoredMessage, StreamState } from "./engine.ts";
import { decodeMessage, type LogMessage } from "./message.ts";

/**
 * What became of a message that was sent to the place behind `offset`. `fenced`: another message is there,
 * so this one never will be. `unknown`: it may still be stored. `full` and `too_large`: it wasn't stored,
 * and never will be.
 */
export type PublishOutcome =
  | { readonly type: "committed" }
  | { readonly type: "fenced" }
  | {
      readonly type: "unknown";
      readonly why: string;
      /** The leader has answered that something is on its way to this place. It will soon be known what. */
      readonly isPending: boolean;
    }
  | { readonly type: "full" }
  | { readonly type: "too_large" };

export type SentMessage = {
  readonly stream: string;
  /** The prefix of the stream's subjects. */
  readonly prefix: string;
  /** The sequence that the stream's last message must have. */
  readonly offset: number;
  readonly message: Pick<LogMessage, "recordId" | "term" | "owner">;
  /** False if an earlier send of this message may still be stored. Then no refusal is one. */
  readonly isOnlySend: boolean;
};

/** What an answer means: an outcome, or that the place must be read. */
export function decideAnswer(
  answer: PublishAnswer,
  { stream, offset, isOnlySend }: SentMessage,
): PublishOutcome | { readonly type: "read_place"; readonly lastSequence: number } {
  switch (answer.type) {
    case "acked": {
      const isThere = answer.stream === stream && answer.sequence === offset + 1;
      if (isThere) return { type: "committed" };
      return unknown(`it was acked as ${answer.sequence} of ${answer.stream}`);
    }
    // The leader compares with what it has proposed and not yet stored, which may be an earlier send of
    // this very message, or one that is never stored. So it isn't a fence.
    case "wrong_last":
      return { type: "read_place", lastSequence: answer.lastSequence };
    case "full":
    case "too_large":
      return isOnlySend ? answer : unknown("an earlier send may still be stored");
    case "silent":
      return unknown(answer.why);
  }
}

/** What was read of the place of a message. `state` is only needed where no message was found. */
export type ReadPlace = {
  readonly found: StoredMessage | undefined;
  readonly state: Pick<StreamState, "firstSequence" | "lastSequence"> | undefined;
};

/** What a read of the message's place means. That nothing was found means nothing. */
export function decidePlace({ found, state }: ReadPlace, sent: SentMessage): PublishOutcome {
  const place = sent.offset + 1;
  if (found) {
    return isSame(found, sent) ? { type: "committed" } : { type: "fenced" };
  }
  if (state && state.firstSequence > place && state.lastSequence >= place) {
    // Only an owner trims, so the log had a later one.
    return { type: "fenced" };
  }
  return { ...unknown(`nothing is at ${place} yet`), isPending: true };
}

function isSame(found: StoredMessage, { prefix, message }: SentMessage): boolean {
  const decoded = decodeMessage(prefix, found);
  return (
    decoded.type === "message" &&
    decoded.message.recordId === message.recordId &&
    decoded.message.term === message.term &&
    decoded.message.owner === message.owner
  );
}

function unknown(why: string): Extract<PublishOutcome, { type: "unknown" }> {
  return { type: "unknown", why, isPending: false };
}
