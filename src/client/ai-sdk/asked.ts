import type { Entry, TurnState } from "../../protocol/message.ts";

/** Which answer is waited for. */
export type Asked = {
  isTurn(turn: TurnState): boolean;
  /** Of an answer whose turn was over before it could be seen. */
  isAnswer(entry: Entry): boolean;
  /** The entry that asks for it: where all is said up to it and nobody is at work, there is no answer. */
  readonly seq?: number;
};

/** The answer to what was said there. */
export function answerTo(seq: number): Asked {
  return {
    seq,
    isTurn: ({ upToSeq }) => upToSeq >= seq,
    isAnswer: ({ role, upToSeq = 0 }) => role === "assistant" && upToSeq >= seq,
  };
}

/** The rest of a message, after what was decided there. */
export function restOf(messageId: string, seq: number): Asked {
  return {
    seq,
    isTurn: (turn) => turn.messageId === messageId && turn.upToSeq >= seq,
    isAnswer: (entry) => isAnother(entry, messageId, seq),
  };
}

/** A message made anew. That is asked for without an entry: `after` is the last one before it. */
export function anew(messageId: string, after: number): Asked {
  return {
    isTurn: (turn) => turn.messageId === messageId,
    isAnswer: (entry) => isAnother(entry, messageId, after),
  };
}

/** The answer of a turn that goes on. */
export function answerOf(epoch: number): Asked {
  return { isTurn: (turn) => turn.epoch === epoch, isAnswer: (entry) => entry.epoch === epoch };
}

/**
 * A message that is made once more has its id again. Only where nothing was said, so that there is
 * nothing to take the place of what was there, it has another: then it tells how that ended.
 */
function isAnother(entry: Entry, messageId: string, after: number): boolean {
  if (entry.kind !== "message" || entry.role !== "assistant" || entry.seq <= after) return false;
  if (entry.messageId === messageId) return true;
  return entry.upToSeq === undefined && entry.parts.length === 0 && entry.outcome !== "completed";
}
