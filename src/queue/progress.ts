import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Database } from "../store/database.ts";
import type { Running } from "./run.ts";
import { saveProgress } from "./statements/finish.ts";

// Often enough for people to watch, seldom enough to cost nothing.
const everyMs = 250;

/** Keeps the newest progress of each task and stores it a few times a second, for all in one write. */
export function createProgress(parts: { database: Database; clock: Clock; log?: Logger }) {
  const { database, clock, log = silentLogger } = parts;
  const newest = new Map<Running, string>();
  let cancel: (() => void) | undefined;

  const flush = async (): Promise<void> => {
    cancel = undefined;
    const saved = [...newest].map(([{ claim }, value]) => ({
      taskId: claim.taskId,
      token: claim.token,
      value,
    }));
    newest.clear();
    if (saved.length === 0) return;
    // Progress is for people: one that is lost is followed by a newer one.
    await database.write([saveProgress(saved)]).catch((error: unknown) => {
      log.debug({ error: messageOf(error) }, "progress couldn't be stored");
    });
  };

  return {
    save(running: Running, value: string) {
      newest.set(running, value);
      cancel ??= clock.after(everyMs, () => void flush());
    },
    forget: (running: Running) => void newest.delete(running),
    stop() {
      cancel?.();
      newest.clear();
    },
  };
}
