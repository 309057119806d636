import type { SessionState } from "./message.ts";

/** A turn is under way: its answer is made, or it waits for a permit of its agent's throttle. */
export type TurnState = Extract<SessionState, { readonly messageId: string }>;

export function isTurn(state: SessionState): state is TurnState {
  return state.state === "catching_up" || state.state === "waiting";
}
