import { appendFileSync } from "node:fs";
import type { Entry } from "../../../src/protocol/message.ts";
import { monotonicMs } from "../ledger.ts";

/** An entry as it is compared: what the log says of it, and nothing of how it came. */
export type Shown = {
  readonly seq: number;
  readonly messageId: string;
  readonly role: string;
  readonly author: string;
  readonly text: string;
  readonly epoch: number | null;
  readonly outcome: string | null;
};

/** What a client asked for and what it was told, in the order of its own time. */
export type HistoryEvent = { readonly atMs: number; readonly client: string } &
  /** Asked for the first time, on this connection. */
  (
    | {
        readonly type: "invoke";
        readonly session: string;
        readonly id: string;
        readonly on: string;
        /** What it says. */
        readonly text?: string;
      }
    | {
        readonly type: "ok";
        readonly session: string;
        readonly id: string;
        readonly seq: number;
        readonly duplicate: boolean;
        /** How often it was sent, all in all. */
        readonly tries: number;
      }
    /** Given up: it may be stored, or may yet be. */
    | { readonly type: "info"; readonly session: string; readonly id: string }
    /** Refused once; `final` if that is the end of it. */
    | {
        readonly type: "refused";
        readonly session: string;
        readonly id: string;
        readonly code: string;
        readonly final: boolean;
      }
    | {
        readonly type: "join";
        readonly session: string;
        readonly on: string;
        readonly lastSeq: number;
      }
    | {
        readonly type: "joined";
        readonly session: string;
        readonly on: string;
        readonly lastSeq: number;
      }
    | { readonly type: "reset"; readonly session: string; readonly reason: string }
    | {
        readonly type: "deliver";
        readonly session: string;
        readonly on: string;
        readonly entry: Shown;
      }
    | {
        readonly type: "closed";
        readonly on: string;
        readonly code: number;
      }
  );

type Unstamped<Each> = Each extends unknown ? Omit<Each, "atMs"> : never;
export type NewHistoryEvent = Unstamped<HistoryEvent>;

export function createSessionHistory(path: string) {
  const events: HistoryEvent[] = [];
  return {
    events,
    note(event: NewHistoryEvent): void {
      const stamped = { atMs: monotonicMs(), ...event };
      events.push(stamped);
      appendFileSync(path, `${JSON.stringify(stamped)}\n`);
    },
  };
}

export type SessionHistory = ReturnType<typeof createSessionHistory>;

export function shown(entry: Entry): Shown {
  const { seq, messageId, role, author, epoch = null, outcome = null } = entry;
  const text = entry.parts.map((part) => (part.type === "text" ? part["text"] : "")).join("");
  return { seq, messageId, role, author, text, epoch, outcome };
}
