import { backoffMs } from "../../../base/backoff.ts";
import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Random } from "../../../base/random.ts";
import type { Database } from "../../../store/database.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { LogLife } from "../jetstream/streams.ts";
import type { Head, LogRecord } from "../journal.ts";
import {
  type AsideItem,
  readWatermark,
  storeAside,
  toWatermark,
  type Watermark,
} from "../sql/archive.ts";
import { readBusy, toHeader } from "../sql/reading.ts";

/** A log that isn't served, because its database lacks records that the log doesn't have any more either. */
export type BrokenLog = {
  readonly logId: number;
  /** Up to where the database has it, and up to where the log goes. */
  readonly archived: number;
  readonly through: number;
  /** `set_back`: the log begins later. `different`: it has other records. `missing`: there is no archive. */
  readonly why: "set_back" | "different" | "missing";
};

/** What became of one. `aside`: how many records were set aside, because entries before them are lost. */
export type RebasedLog = BrokenLog & { readonly aside: number };

export type RebaseParts = {
  stream: StreamLog;
  database: Pick<Database, "read" | "write">;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Who takes the log for the moment that this needs. */
  owner: { readonly podId: string; readonly host: string | null };
};

/** Pods that can't serve a log take it again and again, a few seconds apart. */
const tries = 20;
const backoff = { baseMs: 50, maxMs: 1_000 };
const batchBytes = 1_024 * 1_024;
/** As many as a log names of the lives before it. */
const maxEarlierLives = 8;

/** The logs that can only go on without what their database lacks. Changes nothing. */
export async function findBroken(parts: RebaseParts): Promise<BrokenLog[]> {
  const broken: BrokenLog[] = [];
  for (const head of await parts.stream.heads()) {
    const found = await faultOf(head, parts);
    if (found) broken.push(found);
  }
  return broken;
}

/**
 * Has a log go on with what its database has: in a new stream, whose first offset is behind all that there
 * were. Records that the log still has and the database doesn't are set aside there first. Undefined: the
 * log isn't broken, or not any more.
 */
export async function rebase(logId: number, parts: RebaseParts): Promise<RebasedLog | undefined> {
  const { stream, database, clock, random, ids, owner } = parts;
  for (let nth = 1; nth <= tries; nth++) {
    const seen = (await stream.heads())[logId];
    if (!seen) throw new FlotillaError("not_found", `there is no log ${logId}`);
    const broken = await faultOf(seen, parts);
    if (!broken) return undefined;
    // From here on no pod stores into it, so that what is set aside is all that there is.
    const taken = await stream.take(seen, { ...owner, recordId: ids.next() });
    const life = taken && (await stream.lifeOf(taken));
    if (life) {
      const aside = await setAside(taken, broken, parts);
      const busy = (await database.read(readBusy(logId))).map(toHeader);
      const standing = await standingOf(logId, database);
      const through = Math.max(taken.offset, standing?.offset ?? 0);
      const made = await stream.renew(taken, {
        from: through + 1,
        through,
        recordAt: async () => undefined,
        busy,
        follows: { incarnations: livesBefore(life, standing), archived: standing?.offset ?? 0 },
      });
      if (made === "made") return { ...broken, aside };
    }
    await sleep(clock, backoffMs(nth, random, backoff));
  }
  throw new FlotillaError(
    "unavailable",
    `log ${logId} is taken by pods again and again: try again, or stop them first`,
  );
}

async function faultOf(head: Head, parts: RebaseParts): Promise<BrokenLog | undefined> {
  const { stream, database } = parts;
  const { logId, offset: through } = head;
  const life = await stream.lifeOf(head);
  const standing = await standingOf(logId, database);
  const broken = (why: BrokenLog["why"]): BrokenLog => ({
    logId,
    archived: standing?.offset ?? 0,
    through,
    why,
  });
  // Another life has begun since, and is looked at the next time.
  if (!life) return undefined;
  const isFirst = through < life.firstSequence && !life.follows;
  if (!standing) return isFirst ? undefined : broken("missing");
  if (standing.incarnation !== life.incarnation) {
    const { incarnations = [], archived = 0 } = life.follows ?? {};
    if (!incarnations.includes(standing.incarnation)) return broken("different");
    // Its next owner has the archive be that of this life.
    return standing.offset < archived ? broken("set_back") : undefined;
  }
  // Where servers have lost what the database has, owners go on by themselves.
  if (standing.offset > through) return undefined;
  const { offset: after, chain } = standing;
  if (after === through) {
    return (await stream.chainAt(head, through)) === chain ? undefined : broken("different");
  }
  const read = await stream.readRange(head, { after, chain, through }, () => {});
  if (read === "whole") return undefined;
  return broken(read === "trimmed" ? "set_back" : "different");
}

async function standingOf(
  logId: number,
  database: RebaseParts["database"],
): Promise<Watermark | undefined> {
  return (await database.read(readWatermark(logId))).map(toWatermark)[0];
}

/** Stores the records that only the log has where operators find them. Done again, it stores them once. */
async function setAside(
  head: Head,
  { archived, why }: BrokenLog,
  { stream, database }: RebaseParts,
): Promise<number> {
  const reason = `the database was at ${archived} when the log was rebased (${why})`;
  let batch: AsideItem[] = [];
  let [bytes, count] = [0, 0];
  const store = async (): Promise<void> => {
    if (batch.length > 0) await database.write(storeAside(head, batch));
    [batch, bytes] = [[], 0];
  };
  await stream.readKept(head, async (record: LogRecord, offset: number) => {
    // What it has of another life it may have, or not: both are kept.
    if (why === "set_back" && offset <= archived) return;
    const body = JSON.stringify(record);
    batch.push({ offset, place: -1, sessionId: null, seq: null, body, reason });
    bytes += body.length;
    count++;
    if (bytes >= batchBytes) await store();
  });
  await store();
  return count;
}

function livesBefore(life: LogLife, standing: Watermark | undefined): string[] {
  const lives = [
    ...(life.follows?.incarnations ?? []),
    ...(standing ? [standing.incarnation] : []),
    life.incarnation,
  ];
  return [...new Set(lives)].slice(-maxEarlierLives);
}
