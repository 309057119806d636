import type { Clock } from "../../base/clock.ts";
import type { Json } from "../../base/json.ts";
import { type Assembler, createAssembler } from "../../protocol/assembler/assembler.ts";
import {
  type Chunk,
  isTerminal,
  parseChunk,
  hasContent,
  withMessageId,
} from "../../protocol/chunk.ts";
import { createRepair } from "../../protocol/limits.ts";
import type { EntryError, Part, UIMessage, Usage } from "../../protocol/message.ts";
import { messageToChunks } from "../../protocol/to-chunks.ts";
import { waitingChunk } from "../../protocol/waiting.ts";
import type { LiveChunks, WorkId } from "../runner.ts";
import { AgentFailure } from "./failure.ts";
import type { QueuePosition } from "../../throttles/limiter/permit.ts";

type AnswerOptions = {
  readonly name: WorkId;
  readonly messageId: string;
  /** The message that the answer continues. */
  readonly initial?: UIMessage | undefined;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly live: (chunks: LiveChunks) => void;
  /** True if an earlier attempt has stored steps: nothing is sent before `release`. */
  readonly held?: boolean;
};

type Checkpoints = {
  /** The answer has grown. */
  changed(): void;
  stop(): void;
};

export type Answer = ReturnType<typeof createAnswer>;

// A long queue moves all the time, and most turns in it have long to wait.
const waitReportEveryMs = 1_000;
const checkpointEveryMs = 2_000;
/** Words that another attempt goes on with are worth more writes, as long as these are small. */
const unfinishedEveryMs = 1_000;
const maxFrequentBytes = 64 * 1024;
/** Smaller answers are not worth a write: another attempt makes them again in a moment. */
const minCheckpointBytes = 1_024;
/** How long chunks take from a stored step through the agent's own streams. */
const settleMs = 100;
/** Code that no longer asks for a stored step must not keep its words to itself. */
const maxHeldMs = 5_000;
/** How long a model may take to go on with words that pages show already. */
const maxContinuedMs = 30_000;

/**
 * An answer in progress. It is assembled here for the log, and sent live to subscribers, with all chunks
 * of a moment in one batch. Nothing is sent before the first content, so that a try that fails earlier can
 * be repeated without subscribers seeing it begin twice. Subscribers have seen what earlier attempts have
 * stored, so an answer that is made again from stored steps is sent once it has come as far.
 */
export function createAnswer(options: AnswerOptions) {
  const { name, messageId, initial, maxBytes, clock, live } = options;
  const assemble = () => createAssembler({ messageId, maxBytes, ...(initial && { initial }) });
  let assembler: Assembler = assemble();
  let repair = createRepair();
  let started = false;
  let begun = false;
  let held = options.held ?? false;
  let waiting: Chunk[] = [];
  let sent = 0;
  let pushed = 0;
  let cancelFlush: (() => void) | undefined;
  let wait: QueuePosition | undefined;
  let waitReportedMs = -Infinity;

  const flush = (): void => {
    cancelFlush?.();
    cancelFlush = undefined;
    if (held || !begun || waiting.length === 0) return;
    const chunks = waiting;
    waiting = [];
    const index = sent;
    sent += chunks.length;
    live({ ...name, index, chunks });
  };

  const send = (chunk: Chunk): void => {
    if (!started) {
      started = true;
      // Subscribers build the whole message, so it begins with the continued one.
      if (initial) waiting.push(...messageToChunks(initial, { live: true }));
      else if (chunk.type !== "start") waiting.push({ type: "start", messageId });
    }
    waiting.push(chunk);
    begun ||= hasContent(chunk);
    if (begun && !held) cancelFlush ??= clock.after(0, flush);
  };

  const release = (): void => {
    held = false;
    flush();
  };

  return {
    /** Sends what was held back, and everything else from now on. */
    release,

    /** Adds a chunk of the agent. Throws an `AgentFailure` if it is not valid. */
    push(value: unknown): void {
      const parsed = parseChunk(value);
      if (!isChunk(parsed)) throw new AgentFailure("agent_invalid", parsed.error);
      const chunk = withMessageId(repair(parsed), messageId);
      const { error } = assembler.push(chunk);
      if (error) {
        const code = error.code === "payload_too_large" ? "answer_too_large" : "agent_invalid";
        throw new AgentFailure(code, error.message);
      }
      pushed++;
      if (!isTerminal(chunk)) send(chunk);
    },

    /**
     * Sends the position in the queue for a permit to subscribers, at a limited rate; undefined once the
     * turn no longer waits. Nothing of it is stored.
     */
    reportWait(at: QueuePosition | undefined): void {
      const nowMs = clock.monotonic();
      const isNew =
        at === undefined ? wait !== undefined : isWorthReporting(at, wait, nowMs - waitReportedMs);
      if (begun || held || !isNew) return;
      wait = at;
      waitReportedMs = nowMs;
      const index = sent++;
      live({ ...name, index, chunks: [waitingChunk(at)] });
    },

    /** Discards a try that failed before any content. */
    reset(): void {
      assembler = assemble();
      repair = createRepair();
      started = false;
      begun = false;
      waiting = [];
      pushed = 0;
    },

    /**
     * Adds the tokens to the metadata, here and for subscribers, unless the agent has put its own there. An
     * answer that continues another adds to what that has.
     */
    describe(usage: Usage): void {
      const { metadata } = assembler.message();
      const own = usageIn(metadata);
      const earlier = usageIn(initial?.metadata);
      if (own === notOurs || (own && JSON.stringify(own) !== JSON.stringify(earlier))) return;
      const messageMetadata = { usage: own ? sumOf(own, usage) : usage };
      const chunk: Chunk = { type: "message-metadata", messageMetadata };
      if (assembler.push(chunk).error === undefined && begun) send(chunk);
    },

    /** Closes open parts, here and for subscribers. */
    close(how: "finish" | "abort" | "error", reason?: string): void {
      held = false;
      const closing = assembler.close(how, reason);
      if (begun) for (const chunk of closing) send(chunk);
      flush();
    },

    /** Sends nothing more. */
    drop(): void {
      waiting = [];
      cancelFlush?.();
    },

    /** True once there is content that subscribers may have seen. */
    get begun() {
      return begun && !held;
    },
    get outcome() {
      return assembler.outcome;
    },
    get bytes() {
      return assembler.bytes;
    },
    /** How many chunks the agent has sent. */
    get chunks() {
      return pushed;
    },

    /** The parts and metadata to store. */
    content(): { parts: readonly Part[]; metadata?: Json } {
      const { parts, metadata } = assembler.message();
      const kept = parts.some(({ type }) => type !== "step-start") ? parts : [];
      return { parts: kept, ...(metadata !== undefined && { metadata: metadata as Json }) };
    },

    /** The answer so far, for a new subscriber. */
    snapshot(): LiveChunks | undefined {
      flush();
      if (sent === 0) return undefined;
      const chunks = begun ? assembler.snapshot() : wait ? [waitingChunk(wait)] : [];
      return { ...name, index: 0, fromStart: true, nextIndex: sent, chunks };
    },
  };
}

/**
 * Stores the partial answer now and then, in case this pod is lost. One write is in flight at a time, and
 * none if nothing has changed.
 */
export function keepCheckpoints(
  clock: Clock,
  answer: {
    readonly bytes: () => number;
    /** True if another attempt can't make the answer again as it is: what steps have done has happened. */
    readonly hasSteps: () => boolean;
    readonly unfinished: {
      /** True while a step is under way that another attempt may go on with. */
      readonly isOpen: boolean;
      /** True if there is something to go on with. */
      readonly isWorthKeeping: boolean;
    };
    /** Never rejects. */
    readonly store: () => Promise<void>;
  },
): Checkpoints {
  let cancel: (() => void) | undefined;
  let dueAtMs = 0;
  let underWay = false;
  let changedMeanwhile = false;
  let stopped = false;

  const changed = (): void => {
    if (stopped) return;
    if (underWay) {
      changedMeanwhile = true;
      return;
    }
    const everyMs = waitMs();
    const atMs = clock.monotonic() + everyMs;
    // The wait may have begun before there was something to go on with.
    if (cancel && dueAtMs <= atMs) return;
    cancel?.();
    dueAtMs = atMs;
    cancel = clock.after(everyMs, () => void due());
  };

  const waitMs = (): number =>
    answer.unfinished.isOpen && answer.bytes() <= maxFrequentBytes
      ? unfinishedEveryMs
      : checkpointEveryMs;

  const due = async (): Promise<void> => {
    cancel = undefined;
    const isNeeded = answer.hasSteps() || answer.unfinished.isWorthKeeping;
    const minBytes = isNeeded ? 1 : minCheckpointBytes;
    if (underWay || answer.bytes() < minBytes) return;
    underWay = true;
    changedMeanwhile = false;
    await answer.store();
    underWay = false;
    if (changedMeanwhile) changed();
  };
  return {
    changed,
    stop() {
      stopped = true;
      cancel?.();
    },
  };
}

/**
 * Tells when an answer that is made again from stored steps has come as far as they go: a moment after the
 * last was answered or another runs, so that what was made of the last has arrived. A step that goes on
 * with kept words has time to say them.
 */
export function catchUpWithin(
  clock: Clock,
  onCaughtUp: () => void,
  unfinished: { readonly isAwaited: boolean; readonly isAsked: boolean },
) {
  let cancel: (() => void) | undefined;
  let isDone = false;
  const late = (): void => {
    if (!unfinished.isAsked) return onCaughtUp();
    cancel = clock.after(maxContinuedMs - maxHeldMs, onCaughtUp);
  };
  return {
    begin(): void {
      if (!isDone) cancel ??= clock.after(maxHeldMs, late);
    },
    done(): void {
      if (isDone || unfinished.isAwaited) return;
      isDone = true;
      cancel?.();
      cancel = clock.after(settleMs, onCaughtUp);
    },
    stop: () => cancel?.(),
  };
}

const notOurs = Symbol("not ours");

/** The tokens in the metadata of an answer that goes on; undefined if an agent has put its own there. */
export function usageOfAnswer(message: UIMessage | undefined): Usage | undefined {
  const usage = usageIn(message?.metadata);
  return usage === notOurs ? undefined : usage;
}

/** The tokens in an answer's metadata; `notOurs` where an agent has put something else in their place. */
function usageIn(metadata: unknown): Usage | typeof notOurs | undefined {
  if (metadata === undefined || metadata === null) return undefined;
  if (typeof metadata !== "object" || Array.isArray(metadata)) return notOurs;
  const { usage } = metadata as { usage?: Partial<Usage> };
  if (usage === undefined) return undefined;
  const numbers = [usage?.input, usage?.output, usage?.cached];
  return numbers.every((each) => typeof each === "number") ? (usage as Usage) : notOurs;
}

/** A cost has whole millionths, which sums of floating-point numbers lose. */
function roundedCost(cost: number): number {
  return Math.round(cost * 1e6) / 1e6;
}

function sumOf(one: Usage, other: Usage): Usage {
  const models = [one, other].flatMap(({ model }) => model?.split(",") ?? []);
  const isPriced = typeof one.cost === "number" && other.cost !== null;
  return {
    input: one.input + other.input,
    output: one.output + other.output,
    cached: one.cached + other.cached,
    model: models.length > 0 ? [...new Set(models)].join(",") : null,
    cost: isPriced ? roundedCost(one.cost + other.cost) : null,
    ...sumOfCalls(one, other),
  };
}

function sumOfCalls(one: Usage, other: Usage): Pick<Usage, "calls" | "ms"> {
  if (one.calls === undefined && other.calls === undefined) return {};
  const sum = (name: "calls" | "ms") => (one[name] ?? 0) + (other[name] ?? 0);
  return { calls: sum("calls"), ms: sum("ms") };
}

export function entryErrorOf({ code, message }: AgentFailure): EntryError {
  return { code, message };
}

function isWorthReporting(
  at: QueuePosition,
  last: QueuePosition | undefined,
  sinceMs: number,
): boolean {
  if (!last) return true;
  if (sinceMs < waitReportEveryMs) return false;
  const movedBy = Math.abs(at.ahead - last.ahead);
  const isKnownNow = (at.aboutMs === undefined) !== (last.aboutMs === undefined);
  return isKnownNow || movedBy >= Math.max(1, last.ahead / 10);
}

function isChunk(parsed: Chunk | { readonly error: string }): parsed is Chunk {
  return "type" in parsed;
}
