import type { ServerFrame } from "../../protocol/frames.ts";
import { type Entry, isTurn, type SessionState } from "../../protocol/message.ts";
import type { SessionEvent } from "./session.ts";

/**
 * What one followed session knows of its place in the log, and of the answer that is being made.
 *
 * `away`: nothing that comes counts. `joining`: a join was sent, and what comes before its own answer is
 * of an earlier one. `joined`: entries follow from the place that the join named, without a gap.
 */
export type Place = {
  readonly phase: "away" | "joining" | "joined";
  /** The last entry that is here. */
  readonly lastSeq: number;
  readonly lastMessageId?: string | undefined;
  /** Of the log that the entries here are of. */
  readonly incarnation?: string | undefined;
  /** Of the log that was joined: until the `reset` has come, what is here may be of another. */
  readonly joinedIncarnation?: string | undefined;
  readonly state: SessionState;
  /** Up to where there was history when it was joined. */
  readonly historySeq: number;
  /** The answer that chunks have told of. */
  readonly answer?: AnswerPlace | undefined;
  /** Turns up to this one have their entry, so that chunks of theirs are stale. */
  readonly endedEpoch: number;
};

export type AnswerPlace = {
  readonly epoch: number;
  readonly attempt: number;
  readonly nextIndex: number;
};

/** Frames that tell what happens in a session. */
export type PlaceFrame = Extract<
  ServerFrame,
  { type: "joined" | "reset" | "entries" | "state" | "chunks" }
>;

export type Placed = {
  readonly place: Place;
  readonly events: readonly SessionEvent[];
  /** Something is missing: join again from what is there. */
  readonly gap: boolean;
};

export const nowhere: Place = {
  phase: "away",
  lastSeq: 0,
  state: { state: "idle" },
  historySeq: 0,
  endedEpoch: 0,
};

/** Whether all that there was when it was joined is here. */
export function isCaughtUp({ phase, lastSeq, historySeq }: Place): boolean {
  return phase === "joined" && lastSeq >= historySeq;
}

/** Decides what a frame adds to what is known. Frames of other connections must not come here. */
export function takeFrame(place: Place, frame: PlaceFrame): Placed {
  if (frame.type === "joined") return join(place, frame);
  // What an earlier join of this connection still brings comes again after the answer to this one.
  if (place.phase !== "joined") return same(place);
  switch (frame.type) {
    case "reset": {
      const { phase, joinedIncarnation, state, historySeq } = place;
      const joined = { phase, joinedIncarnation, state, historySeq };
      return {
        place: { ...nowhere, ...joined, incarnation: joinedIncarnation },
        events: [{ type: "reset", reason: frame.reason }],
        gap: false,
      };
    }
    case "entries":
      return takeEntries(place, frame.entries);
    case "state": {
      const { state } = frame;
      return settled({ ...place, state }, [{ type: "state", state }]);
    }
    case "chunks":
      return takeChunks(place, frame);
    default:
      // A newer server may say more.
      return same(place);
  }
}

const same = (place: Place): Placed => ({ place, events: [], gap: false });

function join(place: Place, frame: Extract<PlaceFrame, { type: "joined" }>): Placed {
  if (place.phase !== "joining") return same(place);
  const { lastSeq, incarnation: joinedIncarnation, state } = frame;
  const incarnation = place.lastSeq === 0 ? joinedIncarnation : place.incarnation;
  const joined: Place = {
    ...place,
    phase: "joined",
    incarnation,
    joinedIncarnation,
    state,
    historySeq: lastSeq,
  };
  return settled(joined, [{ type: "joined", lastSeq, state }]);
}

function takeEntries(before: Place, entries: readonly Entry[]): Placed {
  let place = before;
  const events: SessionEvent[] = [];
  for (const entry of entries) {
    if (entry.seq <= place.lastSeq) continue;
    if (entry.seq > place.lastSeq + 1) return { place, events, gap: true };
    const { seq: lastSeq, messageId: lastMessageId } = entry;
    const { epoch = 0, outcome } = entry;
    const endedEpoch = outcome ? Math.max(place.endedEpoch, epoch) : place.endedEpoch;
    const isAnswered = place.answer !== undefined && place.answer.epoch <= endedEpoch;
    const answer = isAnswered ? undefined : place.answer;
    place = { ...place, lastSeq, lastMessageId, endedEpoch, answer };
    events.push({ type: "entry", entry });
  }
  return settled(place, events);
}

function takeChunks(place: Place, frame: Extract<PlaceFrame, { type: "chunks" }>): Placed {
  const { epoch, attempt, index } = frame;
  let { chunks } = frame;
  const { answer } = place;
  const nothing = same(place);
  // Positive where these are of a later answer than the one that is known.
  const ahead = answer ? epoch - answer.epoch || attempt - answer.attempt : 1;
  if (ahead < 0 || epoch <= place.endedEpoch) return nothing;
  const fromStart = index === 0;
  const known = answer && ahead === 0 ? answer.nextIndex : 0;
  if (!fromStart) {
    if (index > known) return { ...nothing, gap: true };
    chunks = chunks.slice(known - index);
    if (chunks.length === 0) return nothing;
  }
  const nextIndex = fromStart ? (frame.nextIndex ?? chunks.length) : known + chunks.length;
  return {
    place: { ...place, answer: { epoch, attempt, nextIndex } },
    events: [{ type: "chunks", epoch, attempt, fromStart, chunks }],
    gap: false,
  };
}

/** An answer that isn't made any more is forgotten, once the entry that it became would be here. */
function settled(place: Place, events: readonly SessionEvent[]): Placed {
  const { answer, state } = place;
  const isMade = isTurn(state) && state.epoch === answer?.epoch;
  const isVoid = answer !== undefined && !isMade && isCaughtUp(place);
  return { place: isVoid ? { ...place, answer: undefined } : place, events, gap: false };
}
