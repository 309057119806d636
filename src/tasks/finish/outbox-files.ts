import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Entry, OutboxDisk } from "./disk.ts";
import { openOutboxFile, type OutboxFile } from "./file.ts";
import { lockFile } from "./lock.ts";

type Own = { readonly number: number; readonly file: OutboxFile; release(): void };

// More processes on one folder than this is a mistake, and looking through them all takes time.
const filesMost = 100;

/**
 * Outboxes in a folder that several processes may share. Each live one has a file of its own, which it
 * holds the lock of; those of dead ones are taken over by the next that starts.
 */
export function outboxFolder(folder: string, log: Logger): OutboxDisk {
  let own: Promise<Own> | undefined;

  const take = async (number: number): Promise<Own | undefined> => {
    const path = join(folder, `outbox-${number}.db`);
    const lock = lockFile(join(folder, `outbox-${number}.lock`));
    if (!lock) return undefined;
    try {
      return { number, file: await openOutboxFile(path, log), release: lock.release };
    } catch (error) {
      lock.release();
      throw error;
    }
  };

  const letGo = async ({ file, release }: Own): Promise<void> => {
    await file.close();
    release();
  };

  const openOwn = async (): Promise<Own> => {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    for (let number = 1; number <= filesMost; number++) {
      const taken = await take(number);
      if (taken) return taken;
    }
    throw new FlotillaError(
      "overloaded",
      `${filesMost} processes keep results in ${folder} already: give some another dataDir`,
    );
  };

  const opened = (): Promise<Own> =>
    (own ??= openOwn().catch((error: unknown) => {
      own = undefined;
      throw error;
    }));

  /** Moves what a dead process left to our own file: whoever dies in between leaves it in both. */
  const adopt = async (number: number, into: OutboxFile): Promise<void> => {
    const left = await take(number);
    if (!left) return;
    try {
      const entries = await left.file.all();
      if (entries.length === 0) return;
      await into.write(entries, []);
      await left.file.write(
        [],
        entries.map(({ finish }) => finish),
      );
    } finally {
      await letGo(left);
    }
  };

  return {
    async takeOver(): Promise<Entry[]> {
      const numbers = filesIn(folder);
      if (numbers.length === 0) return [];
      const { number: ours, file } = await opened();
      for (const number of numbers) {
        if (number === ours) continue;
        await adopt(number, file).catch((error: unknown) => {
          log.warn({ folder, number, error: messageOf(error) }, "an outbox couldn't be taken over");
        });
      }
      return file.all();
    },
    async write(kept, dropped) {
      const { file } = await opened();
      await file.write(kept, dropped);
    },
    async close() {
      const held = await own?.catch(() => undefined);
      own = undefined;
      if (held) await letGo(held);
    },
  };
}

function filesIn(folder: string): number[] {
  if (!existsSync(folder)) return [];
  const numbers = readdirSync(folder).map((name) => /^outbox-(\d+)\.db$/.exec(name)?.[1]);
  return numbers
    .flatMap((number) => (number === undefined ? [] : [Number(number)]))
    .toSorted((one, other) => one - other);
}
