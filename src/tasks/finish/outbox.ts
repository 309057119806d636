import type { Clock } from "../../base/clock.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { untilStoreRecovers } from "../../store/retry.ts";
import type { Finish } from "../sql/finish.ts";
import type { FinishResult, FinishWriter } from "./finish-writer.ts";

type OutboxOptions = {
  disk: OutboxDisk;
  podId: string;
  clock: Clock;
  /** What is kept at once has this size at most. More stays in memory, and the pod claims nothing. */
  maxBytes: number;
  log?: Logger;
};

/**
 * Keeps how attempts ended on this machine's disk while the store can't be told, so that they outlive
 * the process. Sending them is for those who bring them: this only remembers what isn't sent yet.
 */
export type Outbox = {
  /** An attempt has ended and is about to be stored. */
  watch(finish: Finish): void;
  /** It needn't be sent any more. */
  done(finish: Finish): void;
  /** It will be decided anew, and then watched in its new form. What is kept stays until then. */
  again(finish: Finish): void;
  /** The store refused or didn't answer: whatever waits for it is kept now, and what comes until it is back. */
  storeFailed(): void;
  /** Resolves when all that waits is kept, as far as it can be. */
  flush(): Promise<void>;
  /** What earlier processes left on this disk, to be sent by this one. */
  takeOver(): Promise<LeftOver[]>;
  /** The tasks that earlier processes have done and this one hasn't sent yet. */
  readonly leftOver: readonly string[];
  /** Whether there is more to keep than fits, so that nothing more should be begun. */
  readonly full: boolean;
  close(): Promise<void>;
};

/** `done` says that it needn't be sent any more. */
export type LeftOver = OutboxEntry & { done(): void };

// A store that is well answers sooner. One that hangs isn't known to be away for most of a minute. What
// is there at one look and still at the next is kept, so that nothing need be timed on its own.
const sweepEveryMs = 500;
const diskRetryMs = 5_000;

export function createOutbox(options: OutboxOptions): Outbox {
  const { disk, podId, clock, maxBytes, log = silentLogger } = options;
  /** What isn't stored yet and is only in memory: since the last look, and from before it. */
  let fresh = new Set<Finish>();
  let seen = new Set<Finish>();
  /** What the disk is to be told: to keep an entry, or to drop what has this key. The newest counts. */
  let pendingWrites = new Map<string, OutboxEntry | undefined>();
  /** What the disk holds or is being told to hold, with its size. */
  const sizes = new Map<string, number>();
  const inherited = new Map<string, Finish>();
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

  const keep = (finish: Finish) => {
    const key = outboxKeyOf(finish);
    const size = sizeOf(finish);
    if (bytes + size > maxBytes) {
      if (!full) {
        const fields = { pod: podId, bytes, maxBytes };
        log.warn(fields, "the outbox is full: nothing is claimed until the store takes results");
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

  const forget = (finish: Finish) => fresh.delete(finish) || seen.delete(finish);

  const keepAll = () => {
    for (const finish of [...seen, ...fresh]) keep(finish);
  };

  const drop = (finish: Finish) => {
    forget(finish);
    // Nearly always nothing is kept, and then this costs nothing.
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
      // What comes in the same moment is one write.
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
      if (diskFailing) log.info({ pod: podId }, "the outbox can be written again");
      diskFailing = false;
    } catch (error) {
      if (!diskFailing) {
        const fields = { pod: podId, error: messageOf(error) };
        log.warn(fields, "results that the store can't take now are kept in memory only");
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
      // What was decided anew takes the place of what is kept.
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
      return [...inherited.values()].map(({ taskId }) => taskId);
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

function parseOutboxKey(key: string) {
  const [token, taskId] = key.split(" ") as [string, string];
  return { token: Number(token), taskId };
}

// What isn't text takes about this much.
const restBytes = 200;

function sizeOf({ result, error, event }: Finish): number {
  const texts = [result, error, event?.detail];
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text ?? ""), restBytes);
}

/** The same way out, but what the store doesn't take at once is kept on this machine until it does. */
export function withOutbox(
  outbox: Outbox,
  finishWriter: FinishWriter,
  signal: AbortSignal,
): FinishWriter {
  const seen = (finish: Finish, finished: FinishResult) => {
    if (finished.type === "woken") outbox.again(finish);
    else outbox.done(finish);
  };
  const refused = (finish: Finish, error: unknown) => {
    // What is refused for good would be refused again. All else is for the next process to send.
    const mayPass = signal.aborted || hasCode(error, "closed", ...untilStoreRecovers);
    if (!mayPass) outbox.done(finish);
  };
  return {
    ...finishWriter,
    async finish(finish, how) {
      outbox.watch(finish);
      try {
        const finished = await finishWriter.finish(finish, how);
        seen(finish, finished);
        return finished;
      } catch (error) {
        refused(finish, error);
        throw error;
      }
    },
    put(finish, onFinished, onError) {
      outbox.watch(finish);
      finishWriter.put(
        finish,
        (finished) => {
          seen(finish, finished);
          onFinished(finished);
        },
        (error) => {
          refused(finish, error);
          onError(error);
        },
      );
    },
  };
}

/** How an attempt ended, with the pod that made it: its row names another by the time it is sent. */
export type OutboxEntry = { readonly podId: string; readonly finish: Finish };

/** Every claim has a token of its own, so this names an attempt for ever. */
export type OutboxKey = Pick<Finish, "taskId" | "token">;

/** Where endings are kept that the store can't take now: files, or in simulations a disk to lose. */
export type OutboxDisk = {
  /**
   * What earlier processes have left here, and nobody else sends. It is this one's from now on.
   * Where there is nothing, nothing is made.
   */
  takeOver(): Promise<OutboxEntry[]>;
  /** Keeps some and drops others, together. Once it resolves, a power cut changes nothing about it. */
  write(kept: readonly OutboxEntry[], dropped: readonly OutboxKey[]): Promise<void>;
  close(): Promise<void>;
};

export function outboxKeyOf({ taskId, token }: OutboxKey): string {
  return `${token} ${taskId}`;
}
