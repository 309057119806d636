import {
  advanceSocket,
  dueMs,
  type SocketState,
  type SocketInput,
  initialSocketState,
  connectionStateOf,
} from "../socket/connection-state.ts";

/** A link that time passes for, with what it asked for. */
export function startSocketState(options: { isRenewable?: boolean } = {}) {
  let state: SocketState = initialSocketState({ isOnline: true, isRenewable: true, ...options });
  let nowMs = 0;
  const effects: string[] = [];
  const on = (event: SocketInput, chance = 0.5) => {
    const step = advanceSocket(state, event, { nowMs, chance });
    state = step.state;
    for (const effect of step.effects) {
      effects.push(effect.type === "open" && state.isFresh ? "open fresh" : effect.type);
    }
  };
  return {
    on,
    /** Of the newest connection. */
    receive: (event: object, chance?: number) =>
      on({ connection: state.connection, ...event } as SocketInput, chance),
    /** Lets so much time pass, with a tick whenever one is due. */
    pass(forMs: number) {
      const untilMs = nowMs + forMs;
      let ticks = 0;
      for (let due = dueMs(state); due !== undefined && due <= untilMs; due = dueMs(state)) {
        if (++ticks > 1_000) throw new Error("what is due is never done");
        nowMs = Math.max(nowMs, due);
        on({ type: "tick", lateMs: 0 });
      }
      nowMs = untilMs;
    },
    effects: () => effects.splice(0),
    get now() {
      return state;
    },
    get state() {
      return connectionStateOf(state);
    },
    get connection() {
      return state.connection;
    },
  };
}
export const hello = { type: "hello", tenant: "default" };
export const wanted: SocketInput = { type: "wanted", isWanted: true };

export function openSocketState(options?: { isRenewable?: boolean }) {
  const link = startSocketState(options);
  link.on(wanted);
  link.receive(hello);
  link.effects();
  return link;
}
