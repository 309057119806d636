import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { coldReads, type Database, type Row } from "../store/database.ts";
import { untilKnown, writeUntilKnown } from "../store/retry.ts";
import type { CommandRouter } from "./log/command-router.ts";
import { isSamePlace, maxSegments, placeOfRow } from "./log/forks.ts";
import { letGo, readFork, walkForks } from "./log/sql/forks.ts";
import { toHeader } from "./log/sql/reading.ts";

/** Lets go of entries that were held for forks which are gone. */
export type ForkCollector = {
  /** For a session that may have been a fork and is deleted. Never rejects: what fails is done later. */
  letGo(sessionId: string): Promise<void>;
  /** Looks at all forks, for those of processes that ended in between. Never rejects. */
  pass(): Promise<void>;
};

type CollectorParts = {
  database: Database;
  router: Pick<CommandRouter, "submit">;
  clock: Clock;
  random: Random;
  log: Logger;
};

/** After this long a fork that was begun and never made is given up. Its caller has stopped trying. */
export const abandonedAfterMs = 3_600_000;
const forksPerRead = 500;

type Fate =
  /** It is there, or may still be made. */
  | "held"
  | "gone"
  /** Its id is that of a session which is no fork. */
  | "other"
  /** It was begun so long ago that it is to be given up. */
  | "abandoned";

export function createForkCollector(parts: CollectorParts): ForkCollector {
  const { database, router, clock, random, log } = parts;

  const free = async (sessionId: string, parentId: string, isOther: boolean): Promise<void> => {
    const statements = letGo({ sessionId, parentId }, { isOther });
    const options = { clock, random, ...untilKnown, writeOptions: { channels: [] } };
    await writeUntilKnown(database, statements, options);
  };

  /** And of what its parents have held for it alone, if they are deleted too. */
  const freeUpwards = async (sessionId: string): Promise<void> => {
    let next = sessionId;
    for (let steps = 0; steps <= maxSegments; steps++) {
      const [row] = await database.read(readFork(next));
      const fate = row && fateOf(row);
      if (fate !== "gone" && fate !== "other") return;
      const { sessionId: parentId } = placeOfRow(row!);
      await free(next, parentId, fate === "other");
      next = parentId;
    }
  };

  const collect = async (row: Row): Promise<void> => {
    const sessionId = row["session_id"] as string;
    const fate = fateOf(row, clock.now());
    if (fate === "held") return;
    if (fate !== "abandoned") return freeUpwards(sessionId);
    const tenant = (row["tenant"] as string | null) ?? "default";
    // A caller that would create it comes too late from here on. What it holds is let go by a later pass.
    await router.submit(tenant, sessionId, { type: "abandon", sessionId, tenant });
  };

  return {
    letGo: (sessionId) =>
      freeUpwards(sessionId).catch((error: unknown) => {
        log.debug({ session: sessionId, error: messageOf(error) }, "entries not let go yet");
      }),

    async pass() {
      let after = "";
      try {
        for (;;) {
          const rows = await coldReads(database).read(walkForks(after, forksPerRead));
          for (const row of rows) {
            await collect(row).catch((error: unknown) => {
              log.debug({ fork: row["session_id"], error: messageOf(error) }, "fork not collected");
            });
          }
          if (rows.length < forksPerRead) return;
          after = rows.at(-1)!["session_id"] as string;
        }
      } catch (error) {
        log.warn({ error: messageOf(error) }, "forks not looked at");
      }
    },
  };
}

function fateOf(row: Row, nowMs = 0): Fate {
  if (row["header"] === null) {
    const isOld = nowMs - Number(row["created_at"] ?? nowMs) >= abandonedAfterMs;
    return isOld ? "abandoned" : "held";
  }
  const header = toHeader(row);
  if (header.status === "deleted") return "gone";
  return isSamePlace(header.parent, placeOfRow(row)) ? "held" : "other";
}
