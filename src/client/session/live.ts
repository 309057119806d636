import type { Assembler } from "../../protocol/assembler/assembler.ts";
import {
  type Chunk,
  isBeside,
  type Waiting,
  waitingAfter,
  waitingChunk,
} from "../../protocol/chunk.ts";
import { asError } from "../http.ts";
import type { LiveAnswer, SessionEvent } from "./session.ts";

type Chunks = Extract<SessionEvent, { type: "chunks" }>;

/** The answer that is being made, put together from its chunks. */
export type Live = {
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
export function createLive(
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
