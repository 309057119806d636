import type { Clock } from "../../base/clock.ts";
import { hasCode, messageOf, storeWideCodes } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Finish } from "../sql/finish.ts";
import type { TaskStep } from "../sql/steps.ts";
import type { FinishResult, FinishWriter } from "./finish-writer.ts";

type OutboxOptions = {
  disk: OutboxDisk;
  podId: string;
  clock: Clock;
  /**
   * The most bytes kept on disk at once. Further outcomes stay in memory, and the pod stops
   * claiming.
   */
  maxBytes: number;
  log?: Logger;
};

/**
 * Keeps outcomes on this machine's disk while the store cannot take them, so that they survive the
 * process. It only remembers what is not stored yet; the callers send it.
 */
export type Outbox = {
  /** An outcome, or what a step has returned, is about to be stored. */
  watch(kept: Kept): void;
  /** It need not be sent any more. */
  done(kept: Kept): void;
  /**
   * The outcome will be decided again and then watched in its new form. The entry on disk stays
   * until then.
   */
  again(finish: Finish): void;
  /**
   * The store refused or did not answer. Unsent outcomes are written to disk now, and so are new
   * ones until the store is back.
   */
  storeFailed(): void;
  /** Resolves when all unsent outcomes are on disk, as far as possible. */
  flush(): Promise<void>;
  /** Returns what earlier processes left on this disk; this process must send it. */
  takeOver(): Promise<LeftOver[]>;
  /** The tasks of taken-over entries that are not sent yet. */
  readonly leftOver: readonly string[];
  /** True when more must be kept than fits, so that the pod must not claim more. */
  readonly full: boolean;
  close(): Promise<void>;
};

/** The sender calls `done` when the entry need not be sent any more. */
export type LeftOver = OutboxEntry & { done(): void };

/**
 * An outcome with the pod that produced it, because its row may name another pod by the time it is
 * sent.
 */
export type OutboxEntry = { readonly podId: string; readonly finish: Kept };

/** The outcome of an attempt, or a step of it that has ended. */
export type Kept = Finish | TaskStep;

/**
 * Every claim has its own token, so this identifies an attempt forever, and within it a write of a
 * step by its number.
 */
export type OutboxKey = Pick<Finish, "taskId" | "token"> & {
  readonly step?: { readonly seq: number };
};

/** The disk of an outbox: files, or a lossy disk in simulations. */
export type OutboxDisk = {
  /**
   * Takes over the entries that dead processes have left here. Creates nothing if there are none.
   */
  takeOver(): Promise<OutboxEntry[]>;
  /**
   * Keeps some entries and drops others, atomically. Once it resolves, the change survives a power
   * cut.
   */
  write(kept: readonly OutboxEntry[], dropped: readonly OutboxKey[]): Promise<void>;
  close(): Promise<void>;
};

// A healthy store answers sooner, and a hanging store is detected only after most of a minute. An
// outcome that two consecutive sweeps find is written to disk, so no outcome needs a timer of its
// own.
const sweepEveryMs = 500;
const diskRetryMs = 5_000;

// The approximate size of the fields that are not text.
const restBytes = 200;

/** Creates an outbox on a disk. Outcomes are written there only when the store does not take them in time. */
export function createOutbox(options: OutboxOptions): Outbox {
  const { disk, podId, clock, maxBytes, log = silentLogger } = options;
  /** Unstored outcomes that are only in memory: since the last sweep, and from before it. */
  let fresh = new Set<Kept>();
  let seen = new Set<Kept>();
  /** Pending disk writes: an entry to keep, or undefined to drop the key. The newest counts. */
  let pendingWrites = new Map<string, OutboxEntry | undefined>();
  /** The sizes of the entries that are on disk or about to be written. */
  const sizes = new Map<string, number>();
  const inherited = new Map<string, Kept>();
  let bytes = 0;
  let storeAway = false;
  let full = false;
  let diskFailing = false;
  let cancelSweep: (() => void) | undefined;
  let cancelAgain: (() => void) | undefined;
  let writing: Promise<void> | undefined;

  const sweep = () => {
    cancelSweep = undefined;
    for (const finish of seen) keep(finish);
    for (const finish of seen) fresh.add(finish);
    [seen, fresh] = [fresh, new Set()];
    if (seen.size > 0 && !full) cancelSweep ??= clock.after(sweepEveryMs, sweep);
  };

  const keep = (finish: Kept) => {
    const key = outboxKeyOf(finish);
    const size = sizeOf(finish);
    if (bytes + size > maxBytes) {
      if (!full) {
        const fields = { pod: podId, bytes, maxBytes };
        log.warn(fields, "outbox full, claiming paused until the store accepts results");
      }
      full = true;
      return;
    }
    forget(finish);
    bytes += size - (sizes.get(key) ?? 0);
    sizes.set(key, size);
    pendingWrites.set(key, { podId, finish });
    scheduleWrite();
  };

  const forget = (finish: Kept) => fresh.delete(finish) || seen.delete(finish);

  const keepAll = () => {
    for (const finish of [...seen, ...fresh]) keep(finish);
  };

  const drop = (finish: Kept) => {
    forget(finish);
    // Nearly always nothing is on disk, and then this costs nothing.
    if (sizes.size === 0 && !full) return;
    const key = outboxKeyOf(finish);
    const size = sizes.get(key);
    if (size !== undefined) {
      sizes.delete(key);
      bytes -= size;
      pendingWrites.set(key, undefined);
      scheduleWrite();
    }
    if (!full) return;
    full = false;
    if (storeAway) keepAll();
    else sweep();
  };

  const scheduleWrite = () => {
    writing ??= (async () => {
      // Entries of the same tick go into one write.
      await Promise.resolve();
      while (pendingWrites.size > 0 && !cancelAgain) await write();
      writing = undefined;
    })();
  };

  const write = async (): Promise<void> => {
    const batch = pendingWrites;
    pendingWrites = new Map();
    const kept = [...batch.values()].filter((entry) => entry !== undefined);
    const dropped = [...batch].flatMap(([key, entry]) => (entry ? [] : [parseOutboxKey(key)]));
    try {
      await disk.write(kept, dropped);
      if (diskFailing) log.info({ pod: podId }, "outbox writable again");
      diskFailing = false;
    } catch (error) {
      if (!diskFailing) {
        const fields = { pod: podId, error: messageOf(error) };
        log.warn(fields, "outbox write failed, results kept in memory only");
      }
      diskFailing = true;
      pendingWrites = new Map([...batch, ...pendingWrites]);
      cancelAgain = clock.after(diskRetryMs, () => {
        cancelAgain = undefined;
        scheduleWrite();
      });
    }
  };

  return {
    watch(finish) {
      fresh.add(finish);
      // An outcome that was decided again replaces the entry on disk.
      if (storeAway || (sizes.size > 0 && sizes.has(outboxKeyOf(finish)))) keep(finish);
      else cancelSweep ??= clock.after(sweepEveryMs, sweep);
    },
    done(finish) {
      storeAway = false;
      drop(finish);
    },
    again: (finish) => void forget(finish),
    storeFailed() {
      storeAway = true;
      keepAll();
    },
    async flush() {
      keepAll();
      await writing;
    },
    async takeOver() {
      const entries = await disk.takeOver();
      return entries.map((entry) => {
        const { finish } = entry;
        const key = outboxKeyOf(finish);
        const size = sizeOf(finish);
        sizes.set(key, size);
        bytes += size;
        inherited.set(key, finish);
        return {
          ...entry,
          done() {
            inherited.delete(key);
            drop(finish);
          },
        };
      });
    },
    get leftOver() {
      return [...new Set([...inherited.values()].map(({ taskId }) => taskId))];
    },
    get full() {
      return full;
    },
    async close() {
      cancelSweep?.();
      await writing;
      cancelAgain?.();
      await disk.close();
    },
  };
}

/**
 * Wraps a finish writer: outcomes that the store does not take at once are kept on this machine
 * until it does.
 */
export function withOutbox(
  outbox: Outbox,
  finishWriter: FinishWriter,
  signal: AbortSignal,
): FinishWriter {
  const recordResult = (finish: Finish, finished: FinishResult) => {
    if (finished.type === "woken") outbox.again(finish);
    else outbox.done(finish);
  };
  const recordError = (finish: Kept, error: unknown) => {
    // A permanent refusal would be repeated. Everything else is left for the next process to send.
    const mayPass = signal.aborted || hasCode(error, ...storeWideCodes);
    if (!mayPass) outbox.done(finish);
  };
  return {
    ...finishWriter,
    async finish(finish, how) {
      outbox.watch(finish);
      try {
        const finished = await finishWriter.finish(finish, how);
        recordResult(finish, finished);
        return finished;
      } catch (error) {
        recordError(finish, error);
        throw error;
      }
    },
    async storeStep(step) {
      outbox.watch(step);
      try {
        const result = await finishWriter.storeStep(step);
        outbox.done(step);
        return result;
      } catch (error) {
        recordError(step, error);
        throw error;
      }
    },
    put(finish, onFinished, onError) {
      outbox.watch(finish);
      finishWriter.put(
        finish,
        (finished) => {
          recordResult(finish, finished);
          onFinished(finished);
        },
        (error) => {
          recordError(finish, error);
          onError(error);
        },
      );
    },
  };
}

export function outboxKeyOf({ taskId, token, step }: OutboxKey): string {
  return step ? `${token} ${taskId} ${step.seq}` : `${token} ${taskId}`;
}

export function isKeptStep(kept: Kept): kept is TaskStep {
  return "step" in kept;
}

function parseOutboxKey(key: string): OutboxKey {
  const [token, taskId, seq] = key.split(" ") as [string, string, string?];
  return { token: Number(token), taskId, ...(seq !== undefined && { step: { seq: Number(seq) } }) };
}

function sizeOf(kept: Kept): number {
  const texts = isKeptStep(kept)
    ? [kept.step.value, kept.step.key]
    : [kept.result, kept.error, kept.event?.detail];
  return texts.reduce<number>((sum, text) => sum + Buffer.byteLength(text ?? ""), restBytes);
}
