import type { FlotillaError } from "../../base/errors.ts";
import type { Assembler } from "../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { type Entry, isTurn, type SessionState, type UIMessage } from "../../protocol/message.ts";
import { createMessageView, type MessageView } from "../../protocol/view.ts";
import { areTransient, type Waiting, waitingAfter, waitingChunk } from "../../protocol/waiting.ts";
import { asError } from "../http.ts";
import type { LiveAnswer, SessionEvent, SessionSnapshot, Unsent } from "./session.ts";

/** The messages of a session: its entries, the answer that is being made, and unsent messages. */
export type ClientView = {
  take(event: SessionEvent, state: SessionState): void;
  entries(after: number): readonly Entry[];
  readonly live: AnswerStream | undefined;
  /** The answer isn't being made any more. */
  endAnswer(): void;
  /** Adds a message that is being sent, or replaces it with its refusal. */
  unsent(message: Unsent): void;
  /** The message is stored or abandoned. With a `seq`, it is shown until that entry arrives. */
  stored(id: string, seq?: number): void;
  /** Forgets the log. Unsent messages stay. */
  clear(): void;
  snapshot(now: SnapshotParts): SessionSnapshot;
};

type SnapshotParts = Pick<SessionSnapshot, "status" | "state" | "lastSeq"> & {
  readonly incarnation?: string | undefined;
  readonly error?: FlotillaError | undefined;
};

type ChunksEvent = Extract<SessionEvent, { type: "chunks" }>;

/** The answer that is being made, assembled from its chunks. */
type AnswerStream = {
  readonly epoch: number;
  readonly attempt: number;
  push(chunks: readonly Chunk[]): void;
  /** The same object until more chunks arrive. Undefined before it begins, or before the assembler loads. */
  answer(): LiveAnswer | undefined;
  /** Its turn's position in the queue, while it waits for a permit. */
  readonly waiting: Waiting | undefined;
  /** The chunks so far, from `start` on. */
  snapshot(): readonly Chunk[];
};

type LazyModule = typeof import("../lazy.ts");

/** How many refused messages are kept to be shown. */
const maxRefused = 50;
// The server bounds answers; this only bounds memory.
const maxAnswerBytes = 64 * 1024 * 1024;

let makeAssembler: LazyModule["createAssembler"] | undefined;
let loadingModule: Promise<LazyModule> | undefined;

/** `onLoaded` is called when the assembler is loaded and more can be shown. */
export function createClientView(onLoaded: () => void): ClientView {
  let view: MessageView = createMessageView();
  let log: Entry[] = [];
  let stored: UIMessage[] | undefined;
  let live: AnswerStream | undefined;
  const unsent = new Map<string, Unsent & { readonly seq?: number }>();
  let unsentList: readonly Unsent[] | undefined = [];

  const drop = (id: string) => {
    if (unsent.delete(id)) unsentList = undefined;
  };
  /** Drops acked messages whose entries won't come, because the log was replaced. */
  const dropAcked = (isLost: (seq: number) => boolean) => {
    for (const { id, seq } of unsent.values()) if (seq !== undefined && isLost(seq)) drop(id);
  };
  const listUnsent = () =>
    (unsentList ??= [...unsent.values()].filter(({ seq }) => seq === undefined));

  const messages = (): readonly UIMessage[] => {
    stored ??= view.messages();
    const waiting = [...unsent.values()].filter(
      ({ id, error }) => error === undefined && view.indexOf(id) < 0,
    );
    if (!live && waiting.length === 0) return stored;
    const all = [...stored];
    const answer = live?.answer();
    if (answer) {
      const { message } = answer;
      const index = view.indexOf(message.id);
      if (index < 0) all.push(message);
      else all[index] = message;
    }
    for (const { id, parts, metadata } of waiting) {
      all.push({ id, role: "user", ...(metadata !== undefined && { metadata }), parts });
    }
    return all;
  };

  return {
    take(event, state) {
      if (event.type === "entry") {
        const { entry } = event;
        log.push(entry);
        view.add(entry);
        stored = undefined;
        drop(entry.messageId);
        dropAcked((seq) => seq <= entry.seq);
      } else if (event.type === "joined") {
        const { lastSeq } = event;
        dropAcked((seq) => seq > lastSeq);
      } else if (event.type === "chunks") {
        if (!event.fromStart) return live?.push(event.chunks);
        const isOfTurn = isTurn(state) && state.epoch === event.epoch;
        const announcedId = event.chunks[0]?.["messageId"];
        const messageId = isOfTurn
          ? state.messageId
          : typeof announcedId === "string"
            ? announcedId
            : `@${event.epoch}`;
        live = createAnswerStream(event, messageId, onLoaded);
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
      unsentList = undefined;
      const refused = [...unsent.values()].filter(({ error }) => error !== undefined);
      if (refused.length > maxRefused) unsent.delete(refused[0]!.id);
    },
    stored(id, seq) {
      const message = unsent.get(id);
      if (!message) return;
      if (seq === undefined || log.length >= seq) return drop(id);
      unsent.set(id, { ...message, seq });
      unsentList = undefined;
    },
    clear() {
      dropAcked(() => true);
      view = createMessageView();
      log = [];
      stored = undefined;
      live = undefined;
    },
    snapshot({ status, state, lastSeq, incarnation, error }) {
      const answer = live?.answer();
      // A lost attempt can't report the end of its wait.
      const isSuperseded =
        live && isTurn(state) && state.epoch === live.epoch && state.attempt > live.attempt;
      const waiting = isSuperseded ? undefined : live?.waiting;
      return {
        status,
        messages: messages(),
        ...(answer && { answer }),
        ...(waiting && { waiting }),
        unsent: listUnsent(),
        state,
        lastSeq,
        ...(incarnation !== undefined && { incarnation }),
        ...(error !== undefined && { error }),
      };
    },
  };
}

/**
 * The assembler is a third of the client, and not needed to follow, to send or to show stored messages;
 * nor is the iterator over events. So both are loaded after the page, once there is a connection.
 * Rejects where that fails, and the next call tries again.
 */
export function loadLazyModule(): Promise<LazyModule> {
  loadingModule ??= import("../lazy.ts").then(
    (loaded) => {
      makeAssembler = loaded.createAssembler;
      return loaded;
    },
    (error: unknown) => {
      loadingModule = undefined;
      throw asError(error);
    },
  );
  return loadingModule;
}

/** `onLoaded` is called when the answer can be shown. */
function createAnswerStream(
  { epoch, attempt, chunks }: ChunksEvent,
  messageId: string,
  onLoaded: () => void,
): AnswerStream {
  let assembler: Assembler | undefined;
  let buffered: Chunk[] = [];
  let answer: LiveAnswer | undefined;
  let waiting: Waiting | undefined;
  let hasBegun = false;

  const push = (more: readonly Chunk[]) => {
    answer = undefined;
    waiting = waitingAfter(waiting, more);
    hasBegun ||= !areTransient(more);
    assembler ??= makeAssembler?.({ messageId, maxBytes: maxAnswerBytes });
    // Not `buffered.push(...more)`: some browsers limit the number of arguments.
    buffered = [...buffered, ...more];
    if (!assembler) return loadLazyModule().then(onLoad, () => {});
    // A chunk that is refused changes nothing: this is a preview, and the entry is authoritative.
    for (const chunk of buffered) assembler.push(chunk);
    buffered = [];
    return undefined;
  };
  const onLoad = () => {
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
      if (!assembler || !hasBegun) return undefined;
      return (answer ??= { messageId, epoch, attempt, message: assembler.message() });
    },
    get waiting() {
      return waiting;
    },
    snapshot() {
      if (!hasBegun) return waiting ? [waitingChunk(waiting)] : [];
      return assembler?.snapshot() ?? [...buffered];
    },
  };
}
