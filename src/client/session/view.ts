import type { FlotillaError } from "../../base/errors.ts";
import type { Assembler } from "../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { type Entry, isTurn, type SessionState, type UIMessage } from "../../protocol/message.ts";
import { createView, type View } from "../../protocol/view.ts";
import { isBeside, type Waiting, waitingAfter, waitingChunk } from "../../protocol/waiting.ts";
import { asError } from "../http.ts";
import type { LiveAnswer, SessionEvent, SessionSnapshot, Unsent } from "./session.ts";

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

type Now = Pick<SessionSnapshot, "status" | "state" | "lastSeq"> & {
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

type Chunks = Extract<SessionEvent, { type: "chunks" }>;

/** The answer that is being made, put together from its chunks. */
type Live = {
  readonly epoch: number;
  readonly attempt: number;
  push(chunks: readonly Chunk[]): void;
  /** The same object until more has come. Undefined until it begins, and what puts it together is loaded. */
  answer(): LiveAnswer | undefined;
  /** Where its turn stands in line, while it waits for a permit. */
  readonly waiting: Waiting | undefined;
  /** What was said so far, from `start` on. */
  snapshot(): readonly Chunk[];
};

type Beside = typeof import("../lazy.ts");

let make: Beside["createAssembler"] | undefined;
let loading: Promise<Beside> | undefined;

/**
 * What puts answers together is a third of the whole client, and not needed to follow, to send or to show
 * what is stored; nor is what reads events one by one. So both are loaded beside, as soon as there is a
 * connection. Rejects where that fails, and the next call tries again.
 */
export function loadBeside(): Promise<Beside> {
  loading ??= import("../lazy.ts").then(
    (loaded) => {
      make = loaded.createAssembler;
      return loaded;
    },
    (error: unknown) => {
      loading = undefined;
      throw asError(error);
    },
  );
  return loading;
}

// What the server lets through is bounded there; this is against endless memory only.
const maxBytes = 64 * 1024 * 1024;

/** `onLoaded`: there is an answer to be shown, where there was none. */
function createLive(
  { epoch, attempt, chunks }: Chunks,
  messageId: string,
  onLoaded: () => void,
): Live {
  let assembler: Assembler | undefined;
  let held: Chunk[] = [];
  let answer: LiveAnswer | undefined;
  let waiting: Waiting | undefined;
  let begun = false;

  const push = (more: readonly Chunk[]) => {
    answer = undefined;
    waiting = waitingAfter(waiting, more);
    begun ||= !isBeside(more);
    assembler ??= make?.({ messageId, maxBytes });
    // As arguments, so many would be too many for some browsers.
    held = [...held, ...more];
    if (!assembler) return loadBeside().then(load, () => {});
    // One that is refused has changed nothing: it is a preview, and the entry is what counts.
    for (const chunk of held) assembler.push(chunk);
    held = [];
    return undefined;
  };
  const load = () => {
    if (assembler) return;
    void push([]);
    onLoaded();
  };
  void push(chunks);
  return {
    epoch,
    attempt,
    push: (more) => void push(more),
    answer() {
      if (!assembler || !begun) return undefined;
      return (answer ??= { messageId, epoch, attempt, message: assembler.message() });
    },
    get waiting() {
      return waiting;
    },
    snapshot() {
      if (!begun) return waiting ? [waitingChunk(waiting)] : [];
      return assembler?.snapshot() ?? [...held];
    },
  };
}
