import type { Assembler, createAssembler } from "../../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../../protocol/chunk.ts";
import { type Entry, isTurn, type Part, type SessionState } from "../../../protocol/message.ts";
import { areTransient, type Waiting, waitingAfter } from "../../../protocol/waiting.ts";

/** The answer that is being made, as far as it has come. */
export type AnswerSoFar = {
  readonly epoch: number;
  readonly attempt: number;
  readonly messageId: string;
  readonly agent: string | undefined;
  readonly parts: readonly Part[];
};

/** What is known of a session: the end of its log, without a gap, and what goes on. */
export type TailView = {
  /** `away`: the connection is lost, and is made again. `gone`: there is no such session, or no more. */
  readonly status: "loading" | "live" | "away" | "gone";
  /** The entries from `fromSeq` to the last one. */
  readonly entries: readonly Entry[];
  readonly fromSeq: number;
  readonly state: SessionState | undefined;
  readonly answer: AnswerSoFar | undefined;
  /** The place of the turn that waits for a permit. */
  readonly waiting: Waiting | undefined;
  /** How long turns were seen to wait for a permit, by `epoch.attempt`. */
  readonly throttledMs: ReadonlyMap<string, number>;
  /** When the first of their answers was seen, by the same. */
  readonly firstSeenAtMs: ReadonlyMap<string, number>;
  readonly error: Error | undefined;
};

/** A piece of the log, as it was read. */
export type TailPage = {
  readonly entries: readonly Entry[];
  readonly lastSeq: number;
  readonly incarnation: string;
};

/** Events of the session, as the server sends them. */
export type TailEvent =
  | {
      readonly type: "joined";
      readonly lastSeq: number;
      readonly incarnation: string;
      readonly state: SessionState;
    }
  | { readonly type: "reset" }
  | { readonly type: "entries"; readonly entries: readonly Entry[] }
  | { readonly type: "state"; readonly state: SessionState }
  | {
      readonly type: "chunks";
      readonly epoch: number;
      readonly attempt: number;
      readonly index: number;
      readonly nextIndex?: number;
      readonly chunks: readonly Chunk[];
    }
  | { readonly type: "deleted" };

/** What the follower does next. */
export type TailStep =
  | "go on"
  /** Something is missing: join again behind the last entry. */
  | "join again"
  /** The log is another one: read it anew from its end. */
  | "start over"
  | "gone";

export type Tail = {
  /** Where to follow from; undefined before its end was read. */
  position(): { lastSeq: number; incarnation: string; lastMessageId?: string } | undefined;
  begin(page: TailPage): void;
  /** Adds entries before the first one, if they are those that come before it. */
  prepend(entries: readonly Entry[]): void;
  take(event: TailEvent, nowMs: number): TailStep;
  lost(): void;
  end(error: Error): void;
  /** The same object until something changes. */
  view(): TailView;
};

type Answering = {
  readonly epoch: number;
  readonly attempt: number;
  readonly messageId: string;
  readonly assembler: Assembler;
  nextIndex: number;
  hasBegun: boolean;
};

// The server bounds answers; this bounds memory.
const maxAnswerBytes = 64 * 1024 ** 2;

/**
 * Follows a session from the end of its log on, however long the log is. The assembler is handed in,
 * because a page loads it after it has shown what is stored.
 */
export function createTail(assembler: typeof createAssembler): Tail {
  let status: TailView["status"] = "loading";
  let entries: readonly Entry[] = [];
  let fromSeq = 1;
  let lastSeq = 0;
  let incarnation: string | undefined;
  let state: SessionState | undefined;
  let answering: Answering | undefined;
  let endedEpoch = 0;
  let waiting: Waiting | undefined;
  let waitsSince: { readonly turn: string; readonly atMs: number } | undefined;
  let throttledMs: ReadonlyMap<string, number> = new Map();
  let firstSeenAtMs: ReadonlyMap<string, number> = new Map();
  let error: Error | undefined;
  let shown: TailView | undefined;

  const clear = () => {
    status = "loading";
    entries = [];
    fromSeq = 1;
    lastSeq = 0;
    incarnation = undefined;
    answering = undefined;
    endedEpoch = 0;
    waiting = undefined;
  };
  const setState = (next: SessionState, nowMs: number) => {
    state = next;
    const turn = next.state === "waiting" ? `${next.epoch}.${next.attempt}` : undefined;
    if (waitsSince && waitsSince.turn !== turn) {
      const { turn: before, atMs } = waitsSince;
      const total = (throttledMs.get(before) ?? 0) + Math.max(0, nowMs - atMs);
      throttledMs = new Map(throttledMs).set(before, total);
      waitsSince = undefined;
    }
    if (turn !== undefined) waitsSince ??= { turn, atMs: nowMs };
    else waiting = undefined;
    if (!isTurn(next) || (answering && answering.epoch < next.epoch)) answering = undefined;
  };
  const add = (entry: Entry) => {
    lastSeq = entry.seq;
    if (entry.outcome) endedEpoch = Math.max(endedEpoch, entry.epoch ?? 0);
    if (answering && answering.epoch <= endedEpoch) answering = undefined;
  };
  const takeChunks = (event: Extract<TailEvent, { type: "chunks" }>, nowMs: number): TailStep => {
    const { epoch, attempt, index, nextIndex } = event;
    let { chunks } = event;
    const ahead = answering ? epoch - answering.epoch || attempt - answering.attempt : 1;
    if (ahead < 0 || epoch <= endedEpoch) return "go on";
    if (index === 0) {
      const messageId = state && isTurn(state) ? state.messageId : `@${epoch}`;
      answering = {
        epoch,
        attempt,
        messageId,
        assembler: assembler({ messageId, maxBytes: maxAnswerBytes }),
        nextIndex: nextIndex ?? chunks.length,
        hasBegun: false,
      };
    } else {
      const known = answering && ahead === 0 ? answering.nextIndex : 0;
      if (index > known || !answering) return "join again";
      chunks = chunks.slice(known - index);
      answering.nextIndex = known + chunks.length;
    }
    waiting = waitingAfter(waiting, chunks);
    answering.hasBegun ||= !areTransient(chunks);
    const key = `${epoch}.${attempt}`;
    if (answering.hasBegun && !firstSeenAtMs.has(key))
      firstSeenAtMs = new Map(firstSeenAtMs).set(key, nowMs);
    // A chunk that is refused changes nothing: the entry follows, and is what counts.
    for (const chunk of chunks) answering.assembler.push(chunk);
    return "go on";
  };

  return {
    position() {
      if (incarnation === undefined) return undefined;
      const lastMessageId = entries.at(-1)?.messageId;
      return { lastSeq, incarnation, ...(lastMessageId !== undefined && { lastMessageId }) };
    },
    begin(page) {
      clear();
      incarnation = page.incarnation;
      entries = [...page.entries];
      lastSeq = entries.at(-1)?.seq ?? page.lastSeq;
      fromSeq = entries[0]?.seq ?? lastSeq + 1;
      for (const entry of entries) add(entry);
      shown = undefined;
    },
    prepend(older) {
      const fitting = older.filter(({ seq }) => seq < fromSeq);
      if (fitting.at(-1)?.seq !== fromSeq - 1) return;
      entries = [...fitting, ...entries];
      fromSeq = fitting[0]!.seq;
      shown = undefined;
    },
    take(event, nowMs) {
      shown = undefined;
      switch (event.type) {
        case "joined":
          status = "live";
          error = undefined;
          setState(event.state, nowMs);
          return "go on";
        case "entries": {
          const fresh: Entry[] = [];
          for (const entry of event.entries) {
            if (entry.seq <= lastSeq) continue;
            if (entry.seq !== lastSeq + 1) return "start over";
            fresh.push(entry);
            add(entry);
          }
          if (fresh.length > 0) entries = [...entries, ...fresh];
          return "go on";
        }
        case "state":
          setState(event.state, nowMs);
          return "go on";
        case "chunks":
          return takeChunks(event, nowMs);
        case "reset":
          clear();
          return "start over";
        case "deleted":
          status = "gone";
          answering = undefined;
          return "gone";
        default:
          // A later server may send more kinds.
          return "go on";
      }
    },
    lost() {
      if (status === "live") status = "away";
      shown = undefined;
    },
    end(reason) {
      status = "gone";
      error = reason;
      answering = undefined;
      shown = undefined;
    },
    view: () =>
      (shown ??= {
        status,
        entries,
        fromSeq,
        state,
        answer: answering?.hasBegun ? liveAnswer(answering, state) : undefined,
        waiting,
        throttledMs,
        firstSeenAtMs,
        error,
      }),
  };
}

function liveAnswer(
  { epoch, attempt, messageId, assembler }: Answering,
  state: SessionState | undefined,
): AnswerSoFar {
  const agent = state && isTurn(state) ? state.agent : undefined;
  return { epoch, attempt, messageId, agent, parts: assembler.message().parts };
}
