import type { FlotillaError } from "../../base/errors.ts";
import { type Entry, isTurn, type SessionState, type UIMessage } from "../../protocol/message.ts";
import { createView, type View } from "../../protocol/view.ts";
import { createLive, type Live } from "./live.ts";
import type { SessionEvent, SessionSnapshot, Unsent } from "./session.ts";

/** What of a session is shown: its entries, the answer that is being made, what isn't stored yet. */
export type Shown = {
  take(event: SessionEvent, state: SessionState): void;
  entries(after: number): readonly Entry[];
  readonly live: Live | undefined;
  /** The answer isn't made any more. */
  endAnswer(): void;
  /** Adds what is sent here, or says that it was refused. */
  unsent(message: Unsent): void;
  /** It is stored, or given up. With a `seq`, it is shown until that entry is here. */
  stored(id: string, seq?: number): void;
  /** Forgets the log. What isn't stored yet stays. */
  clear(): void;
  snapshot(now: Now): SessionSnapshot;
};

export type Now = Pick<SessionSnapshot, "status" | "state" | "lastSeq"> & {
  readonly incarnation?: string | undefined;
  readonly error?: FlotillaError | undefined;
};

/** Refused messages are kept for people to see, so many of them. */
const refusedMost = 50;

/** `onLoaded`: more of what is known can be shown. */
export function createShown(onLoaded: () => void): Shown {
  let view: View = createView();
  let log: Entry[] = [];
  let stored: UIMessage[] | undefined;
  let live: Live | undefined;
  const unsent = new Map<string, Unsent & { readonly seq?: number }>();
  let listed: readonly Unsent[] | undefined = [];

  const drop = (id: string) => {
    if (unsent.delete(id)) listed = undefined;
  };
  /** A log that was replaced may be without what was stored: nothing will come for it. */
  const forgetLost = (isLost: (seq: number) => boolean) => {
    for (const { id, seq } of unsent.values()) if (seq !== undefined && isLost(seq)) drop(id);
  };
  const list = () => (listed ??= [...unsent.values()].filter(({ seq }) => seq === undefined));

  const messages = (): readonly UIMessage[] => {
    stored ??= view.messages();
    const waiting = [...unsent.values()].filter(
      ({ id, error }) => error === undefined && view.indexOf(id) < 0,
    );
    if (!live && waiting.length === 0) return stored;
    const shown = [...stored];
    const answer = live?.answer();
    if (answer) {
      const { message } = answer;
      const index = view.indexOf(message.id);
      if (index < 0) shown.push(message);
      else shown[index] = message;
    }
    for (const { id, parts, metadata } of waiting) {
      shown.push({ id, role: "user", ...(metadata !== undefined && { metadata }), parts });
    }
    return shown;
  };

  return {
    take(event, state) {
      if (event.type === "entry") {
        const { entry } = event;
        log.push(entry);
        view.add(entry);
        stored = undefined;
        drop(entry.messageId);
        forgetLost((seq) => seq <= entry.seq);
      } else if (event.type === "joined") {
        const { lastSeq } = event;
        forgetLost((seq) => seq > lastSeq);
      } else if (event.type === "chunks") {
        if (!event.fromStart) return live?.push(event.chunks);
        const isOf = isTurn(state) && state.epoch === event.epoch;
        const said = event.chunks[0]?.["messageId"];
        const messageId = isOf
          ? state.messageId
          : typeof said === "string"
            ? said
            : `@${event.epoch}`;
        live = createLive(event, messageId, onLoaded);
      } else if (event.type === "reset") this.clear();
    },
    entries: (after) => (after === 0 ? [...log] : log.filter(({ seq }) => seq > after)),
    get live() {
      return live;
    },
    endAnswer() {
      live = undefined;
    },
    unsent(message) {
      unsent.delete(message.id);
      unsent.set(message.id, message);
      listed = undefined;
      const refused = [...unsent.values()].filter(({ error }) => error !== undefined);
      if (refused.length > refusedMost) unsent.delete(refused[0]!.id);
    },
    stored(id, seq) {
      const message = unsent.get(id);
      if (!message) return;
      if (seq === undefined || log.length >= seq) return drop(id);
      unsent.set(id, { ...message, seq });
      listed = undefined;
    },
    clear() {
      forgetLost(() => true);
      view = createView();
      log = [];
      stored = undefined;
      live = undefined;
    },
    snapshot({ status, state, lastSeq, incarnation, error }) {
      const answer = live?.answer();
      // An attempt that was lost can't say that it waits no more.
      const isPast =
        live && isTurn(state) && state.epoch === live.epoch && state.attempt > live.attempt;
      const waiting = isPast ? undefined : live?.waiting;
      return {
        status,
        messages: messages(),
        ...(answer && { answer }),
        ...(waiting && { waiting }),
        unsent: list(),
        state,
        lastSeq,
        ...(incarnation !== undefined && { incarnation }),
        ...(error !== undefined && { error }),
      };
    },
  };
}
