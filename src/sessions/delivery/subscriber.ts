import type { LiveChunks } from "../runner.ts";
import type { SessionEvent, Sink } from "../service.ts";
import { sameState, turnOf, type View } from "./view.ts";

/** One client of a session, and what it has been told. */
export type Subscriber = {
  readonly sink: Sink<SessionEvent>;
  /** It gets what is live only once it has been told everything before. */
  stage: "replaying" | "live" | "gone";
  /** The last entry that it was told of. */
  seq: number;
  /** What it knows of the session's state. */
  view: View | undefined;
  /** How far it was told of the answer of the turn in `view`: the number of the next chunk. */
  nextIndex: number;
};

/** What a subscriber that is live has yet to hear of its session's state. */
export function stateFor(subscriber: Subscriber, view: View): SessionEvent | undefined {
  const before = subscriber.view;
  if (before === view) return undefined;
  subscriber.view = view;
  const [was, is] = [before && turnOf(before), turnOf(view)];
  if (was?.epoch !== is?.epoch || was?.attempt !== is?.attempt) subscriber.nextIndex = 0;
  return before && sameState(before, view) ? undefined : { type: "state", state: view.state };
}

/** What chunks hold for a subscriber that knows of their turn; "gap" where some before them are missing. */
export function chunksFor(
  subscriber: Subscriber,
  live: LiveChunks,
): SessionEvent | "gap" | undefined {
  const { epoch, attempt, chunks } = live;
  const { nextIndex } = subscriber;
  if (live.fromStart) {
    const next = live.nextIndex ?? live.index + chunks.length;
    if (next <= nextIndex) return undefined;
    subscriber.nextIndex = next;
    return { type: "chunks", epoch, attempt, index: 0, nextIndex: next, chunks };
  }
  if (live.index > nextIndex) return "gap";
  const known = nextIndex - live.index;
  if (known >= chunks.length) return undefined;
  subscriber.nextIndex = live.index + chunks.length;
  const fresh = known === 0 ? chunks : chunks.slice(known);
  return { type: "chunks", epoch, attempt, index: nextIndex, chunks: fresh };
}
