import { afterUnref, type Clock, systemClock } from "../../base/clock.ts";
import { tooManyReads } from "../../base/errors.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import { withTimeout } from "../../base/timeout.ts";
import { checkWanted, pageReadMs, pageTookTooLong } from "../database.ts";
import type { Query } from "../sql.ts";
import type { Table } from "./connection.ts";
import type { ThreadClient } from "./thread-client.ts";

/** Reads pages on a thread of their own, which is there only while pages are read. */
export type PageReader = {
  read(query: Query, signal?: AbortSignal): Promise<Table>;
  /** Rejects pages that wait, and resolves when the thread has ended. */
  close(error: unknown): Promise<void>;
};

type PageThread = Pick<ThreadClient, "request" | "close">;

type PageReaderParts = {
  open: () => Promise<PageThread>;
  clock?: Pick<Clock, "after">;
  /** A timer that lets the process end. */
  afterIdle?: Clock["after"];
};

const waitMs = 10_000;
const startMs = 10_000;
// A person who looks at pages asks again sooner.
const idleMs = 60_000;

export function createPageReader(parts: PageReaderParts): PageReader {
  const { open, clock = systemClock, afterIdle = afterUnref } = parts;
  const turns = createSemaphore(1, { clock, waitMs, late: tooManyReads });
  let current: Promise<PageThread> | undefined;
  let leaving: Promise<unknown> = Promise.resolve();
  let cancelIdle = () => {};
  let closed: { readonly error: unknown } | undefined;

  /** The thread ends after what it reads, which can't be interrupted. */
  const leave = () => {
    const thread = current;
    current = undefined;
    const ended = thread?.then((each) => each.close()).catch(() => {});
    leaving = Promise.all([leaving, ended]);
  };

  const started = async (): Promise<PageThread> => {
    if (closed) throw closed.error;
    current ??= open().catch((error: unknown) => {
      current = undefined;
      throw error;
    });
    return current;
  };

  return {
    read: (query, signal) =>
      turns.run(async () => {
        checkWanted(signal);
        cancelIdle();
        let isLate = false;
        const late = () => {
          isLate = true;
          return pageTookTooLong();
        };
        try {
          // Never two at once: a page that takes too long must not make the next ones slow as well.
          await withTimeout(clock, pageReadMs, leaving, pageTookTooLong);
          // On a busy machine a start takes longer than a page may, and is there for the next one.
          const thread = await withTimeout(clock, startMs, started(), pageTookTooLong);
          const answer = thread.request({ read: query });
          const [table] = await withTimeout(clock, pageReadMs, answer, late);
          return table!;
        } finally {
          if (isLate) leave();
          else if (!closed) cancelIdle = afterIdle(idleMs, leave);
        }
      }),
    async close(error) {
      closed = { error };
      turns.refuse(error);
      cancelIdle();
      leave();
      await leaving;
    },
  };
}
