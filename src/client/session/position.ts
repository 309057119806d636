import type { ServerFrame } from "../../protocol/frames.ts";
import { type Entry, isTurn, type SessionState } from "../../protocol/message.ts";
import type { SessionEvent } from "./session.ts";

/**
 * The position of a followed session in its log, and in the answer that is being made.
 *
 * `away`: frames are ignored. `joining`: a join was sent, and frames before its answer belong to an
 * earlier one. `joined`: entries follow from the join's position, without a gap.
 */
export type SessionPosition = {
  readonly phase: "away" | "joining" | "joined";
  /** The last entry that the client has. */
  readonly lastSeq: number;
  readonly lastMessageId?: string | undefined;
  /** The log that the client's entries are of. */
  readonly incarnation?: string | undefined;
  /** The log that was joined: until a `reset` arrives, the client's entries may be of another. */
  readonly joinedIncarnation?: string | undefined;
  readonly state: SessionState;
  /** The last entry of the log when it was joined. */
  readonly historySeq: number;
  /** The answer that the last chunks belong to. */
  readonly answer?: AnswerPosition | undefined;
  /** Turns up to this one have their entries, so that chunks of theirs are stale. */
  readonly endedEpoch: number;
};

export type AnswerPosition = {
  readonly epoch: number;
  readonly attempt: number;
  readonly nextIndex: number;
};

/** Frames that are events of a session. */
export type PositionFrame = Extract<
  ServerFrame,
  { type: "joined" | "reset" | "entries" | "state" | "chunks" }
>;

export type PositionUpdate = {
  readonly position: SessionPosition;
  readonly events: readonly SessionEvent[];
  /** Something is missing: join again from the position. */
  readonly gap: boolean;
};

export const initialPosition: SessionPosition = {
  phase: "away",
  lastSeq: 0,
  state: { state: "idle" },
  historySeq: 0,
  endedEpoch: 0,
};

/** Whether the client has all entries that existed when it joined. */
export function isCaughtUp({ phase, lastSeq, historySeq }: SessionPosition): boolean {
  return phase === "joined" && lastSeq >= historySeq;
}

/** Decides how a frame advances the position. The caller drops frames of other connections. */
export function applyFrame(position: SessionPosition, frame: PositionFrame): PositionUpdate {
  if (frame.type === "joined") return join(position, frame);
  // Frames of an earlier join on this connection come again after the answer to this one.
  if (position.phase !== "joined") return unchanged(position);
  switch (frame.type) {
    case "reset": {
      const { phase, joinedIncarnation, state, historySeq } = position;
      const joined = { phase, joinedIncarnation, state, historySeq };
      return {
        position: { ...initialPosition, ...joined, incarnation: joinedIncarnation },
        events: [{ type: "reset", reason: frame.reason }],
        gap: false,
      };
    }
    case "entries":
      return applyEntries(position, frame.entries);
    case "state": {
      const { state } = frame;
      return dropVoidAnswer({ ...position, state }, [{ type: "state", state }]);
    }
    case "chunks":
      return applyChunks(position, frame);
    default:
      // A newer server may send more types.
      return unchanged(position);
  }
}

const unchanged = (position: SessionPosition): PositionUpdate => ({
  position,
  events: [],
  gap: false,
});

function join(
  position: SessionPosition,
  frame: Extract<PositionFrame, { type: "joined" }>,
): PositionUpdate {
  if (position.phase !== "joining") return unchanged(position);
  const { lastSeq, incarnation: joinedIncarnation, state } = frame;
  const incarnation = position.lastSeq === 0 ? joinedIncarnation : position.incarnation;
  const joined: SessionPosition = {
    ...position,
    phase: "joined",
    incarnation,
    joinedIncarnation,
    state,
    historySeq: lastSeq,
  };
  return dropVoidAnswer(joined, [{ type: "joined", lastSeq, state }]);
}

function applyEntries(start: SessionPosition, entries: readonly Entry[]): PositionUpdate {
  let position = start;
  const events: SessionEvent[] = [];
  for (const entry of entries) {
    if (entry.seq <= position.lastSeq) continue;
    if (entry.seq > position.lastSeq + 1) return { position, events, gap: true };
    const { seq: lastSeq, messageId: lastMessageId } = entry;
    const { epoch = 0, outcome } = entry;
    const endedEpoch = outcome ? Math.max(position.endedEpoch, epoch) : position.endedEpoch;
    const isAnswered = position.answer !== undefined && position.answer.epoch <= endedEpoch;
    const answer = isAnswered ? undefined : position.answer;
    position = { ...position, lastSeq, lastMessageId, endedEpoch, answer };
    events.push({ type: "entry", entry });
  }
  return dropVoidAnswer(position, events);
}

function applyChunks(
  position: SessionPosition,
  frame: Extract<PositionFrame, { type: "chunks" }>,
): PositionUpdate {
  const { epoch, attempt, index } = frame;
  let { chunks } = frame;
  const { answer } = position;
  const noChange = unchanged(position);
  // Positive where the chunks are of a later answer than the known one.
  const ahead = answer ? epoch - answer.epoch || attempt - answer.attempt : 1;
  if (ahead < 0 || epoch <= position.endedEpoch) return noChange;
  const fromStart = index === 0;
  const known = answer && ahead === 0 ? answer.nextIndex : 0;
  if (!fromStart) {
    if (index > known) return { ...noChange, gap: true };
    chunks = chunks.slice(known - index);
    if (chunks.length === 0) return noChange;
  }
  const nextIndex = fromStart ? (frame.nextIndex ?? chunks.length) : known + chunks.length;
  return {
    position: { ...position, answer: { epoch, attempt, nextIndex } },
    events: [{ type: "chunks", epoch, attempt, fromStart, chunks }],
    gap: false,
  };
}

/** Forgets an answer that isn't being made any more, once its entry would have arrived. */
function dropVoidAnswer(
  position: SessionPosition,
  events: readonly SessionEvent[],
): PositionUpdate {
  const { answer, state } = position;
  const isMade = isTurn(state) && state.epoch === answer?.epoch;
  const isVoid = answer !== undefined && !isMade && isCaughtUp(position);
  return { position: isVoid ? { ...position, answer: undefined } : position, events, gap: false };
}
