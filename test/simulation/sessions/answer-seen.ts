/** The answer that is being made, as one connection of a client sees it: it grows, and never goes back. */
import { isTurn } from "../../../src/protocol/message.ts";
import type { FeedEvent } from "../../../src/sessions/service.ts";
import type { World } from "../world.ts";

export function createAnswerSeen({ violate, count }: World, name: string) {
  let epoch = 0;
  let attempt = 0;
  let nextIndex = 0;

  const judgeTurn = (turn: { epoch: number; attempt: number }, what: string): void => {
    const isBefore = turn.epoch < epoch || (turn.epoch === epoch && turn.attempt < attempt);
    if (isBefore)
      violate("S7", `${name}: ${what} of ${turn.epoch}.${turn.attempt} after ${epoch}.${attempt}`);
    if (turn.epoch === epoch && turn.attempt === attempt) return;
    ({ epoch, attempt } = turn);
    nextIndex = 0;
  };

  return {
    take(event: FeedEvent, lastSeq: number): void {
      if (event.type === "joined" || event.type === "state") {
        const { state } = event;
        if (isTurn(state)) judgeTurn(state, "a state");
        return;
      }
      if (event.type !== "chunks") return;
      judgeTurn(event, "chunks");
      const { index, chunks } = event;
      if (lastSeq === 0) violate("S6", `${name} sees an answer before the question`);
      if (index !== 0 && index !== nextIndex) {
        violate("S5", `${name} gets chunk ${index} of ${epoch}.${attempt} after ${nextIndex}`);
      }
      count(event.nextIndex === undefined ? "client: chunks" : "client: an answer so far");
      nextIndex = event.nextIndex ?? index + chunks.length;
    },
  };
}
