import {
  advance,
  dueMs,
  type Link,
  type LinkEvent,
  newLink,
  stateOf,
} from "../socket/connection-state.ts";

/** A link that time passes for, with what it asked for. */
export function start(options: { isRenewable?: boolean } = {}) {
  let link: Link = newLink({ isOnline: true, isRenewable: true, ...options });
  let nowMs = 0;
  const asked: string[] = [];
  const on = (event: LinkEvent, chance = 0.5) => {
    const step = advance(link, event, { nowMs, chance });
    link = step.link;
    for (const effect of step.effects) {
      asked.push(effect.type === "open" && link.isFresh ? "open fresh" : effect.type);
    }
  };
  return {
    on,
    /** Of the newest connection. */
    heard: (event: object, chance?: number) =>
      on({ connection: link.connection, ...event } as LinkEvent, chance),
    /** Lets so much time pass, with a tick whenever one is due. */
    pass(forMs: number) {
      const untilMs = nowMs + forMs;
      let ticks = 0;
      for (let due = dueMs(link); due !== undefined && due <= untilMs; due = dueMs(link)) {
        if (++ticks > 1_000) throw new Error("what is due is never done");
        nowMs = Math.max(nowMs, due);
        on({ type: "tick", lateMs: 0 });
      }
      nowMs = untilMs;
    },
    asked: () => asked.splice(0),
    get now() {
      return link;
    },
    get state() {
      return stateOf(link);
    },
    get connection() {
      return link.connection;
    },
  };
}
export const hello = { type: "hello", tenant: "default" };
export const want: LinkEvent = { type: "wanted", isWanted: true };

export function opened(options?: { isRenewable?: boolean }) {
  const link = start(options);
  link.on(want);
  link.heard(hello);
  link.asked();
  return link;
}
