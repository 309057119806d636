import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { settledWithin } from "../../base/timeout.ts";
import type { Database } from "../../store/database.ts";
import type { StatedRate } from "../limiter/limiter.ts";
import { createDemands, encodeDemands } from "./demands.ts";
import { decodeDocument, documentOf, encodeDocument, type ShareDocument } from "./document.ts";
import {
  byThrottle,
  type HeldThrottle,
  mapKey,
  type ShareChange,
  type SharedThrottle,
  type ShareStore,
} from "./share-store.ts";
import {
  changeShares,
  getShares,
  insertThrottles,
  noteFirstUse,
  putReports,
  putSettings,
  type SharedRow,
  type ThrottleId,
  toSharedRow,
} from "./sql.ts";
import { raiseToRate } from "./stated-rate.ts";

/**
 * One document for each throttle and key, which changes by compare-and-set, and messages to all pods. Both go
 * on while the database is away.
 */
export type ShareDocuments = {
  /** Rejects with `store_unavailable` where that can't be known now. Undefined: there is none. */
  read(id: ThrottleId): Promise<StoredDocument | undefined>;
  /** Replaces the document that has this revision, or makes it where that is 0. Sends once. */
  write(id: ThrottleId, rev: number, text: string): Promise<DocumentWrite>;
  /** Sends to all pods, this one among them. May be lost. */
  announce(text: string): void;
  /** The callback must not throw. */
  onAnnounced(listener: (text: string) => void): () => void;
};

export type StoredDocument = {
  /** Rises with every change, and is never 0. */
  readonly rev: number;
  readonly text: string;
};

export type DocumentWrite =
  | { readonly type: "stored"; readonly rev: number }
  /** It isn't stored, and never will be. */
  | { readonly type: "refused"; readonly why: string }
  | { readonly type: "unknown"; readonly why: string };

export type DocumentSharesParts = {
  readonly podId: string;
  readonly documents: ShareDocuments;
  /** Where limits are learned. It may be away. */
  readonly database: Database;
  readonly clock: Clock;
  readonly log: Logger;
};

/** What this pod knows of one throttle. */
type Known = {
  /** As it was read or written last, also where it is gone since. */
  document: StoredShares | undefined;
  /** When this pod read or wrote it last, and when it read the copy in the row. */
  readMs: number;
  copyMs: number;
  /** Since when no document was found, read after read. */
  missing: { readonly sinceMs: number; readonly lastMs: number } | undefined;
  /** The database has a row of it. */
  hasRow: boolean;
  learned: LearnedRow | undefined;
};

type StoredShares = ShareDocument & { readonly rev: number };

/** What the database said last of a throttle, and of which revision the document had its limit before. */
type LearnedRow = { readonly row: SharedRow; readonly shares: string; readonly before: number };

export type DocumentShares = ShareStore & {
  /** Hears no more demands, and waits a moment for the last copies. */
  stop(): Promise<void>;
};

/** How long a sync waits for the database, so that the first use of a throttle begins with what was learned. */
const databaseMs = 250;
/** From then on no leader closes a breaker: until the database is back, one call at a time tries. */
const leaderlessMs = 60_000;
/**
 * How long a pod that hasn't learned just now who has which share waits for others to make a document that is
 * missing. Pods that have a share read it each second.
 */
const absentMs = 3_000;
/** How many documents are asked for at a time. */
const maxReads = 32;
/** How many shares are copied at a time, and how often that is tried while rows change under it. */
const maxCopies = 100;
const maxCopyTries = 5;
const stopMs = 1_000;

/**
 * Shares in documents that don't need the database. The document of a throttle alone says which pod has which
 * share. Its limit is learned in the database as ever, from the same reports, and copied into the document by
 * the first pod that sees another one; shares are copied into the row, where pages and the leader read them.
 * Nothing here waits for the database for longer than a moment.
 * While the database is away, limits stay as they are.
 */
export function createDocumentShares(parts: DocumentSharesParts): DocumentShares {
  const { podId, documents, database, clock, log } = parts;
  const all = new Map<string, Known>();
  const demands = createDemands({ clock });
  const stopListening = documents.onAnnounced(demands.hear);
  /** Throttles whose shares this pod has changed, until the row has them. */
  const uncopied = new Map<string, ThrottleId>();
  let copying: Promise<void> | undefined;
  let asking: Promise<void> | undefined;
  let answeredMs = clock.monotonic();
  let isAway = false;
  /** The database's time, continued on this pod's clock. It only says whose turn it is. */
  let storeTime: { readonly nowMs: number; readonly atMs: number } | undefined;

  const knownOf = (id: ThrottleId): Known => {
    const at = mapKey(id);
    const known = all.get(at) ?? unknown();
    all.set(at, known);
    return known;
  };

  const note = (known: Known, document: StoredShares): void => {
    known.document = document;
    known.missing = undefined;
    known.readMs = clock.monotonic();
  };

  const timeNow = (): number =>
    storeTime === undefined ? clock.now() : storeTime.nowMs + clock.monotonic() - storeTime.atMs;

  const toRow = ({ rev, bound, epoch, gate, pass, shares }: StoredShares): SharedRow => {
    const row = toSharedRow({ rev, bound, epoch, gate, pass, shares, now_at: timeNow() });
    const isLeaderless = clock.monotonic() - answeredMs >= leaderlessMs;
    return isLeaderless && row.constraints.breaker === "open" ? probing(row) : row;
  };

  /** Tells the database what this pod needs, and reads what was learned. One at a time. */
  const askDatabase = async (held: readonly HeldThrottle[]): Promise<void> => {
    const before = new Map(held.map(({ id }) => [mapKey(id), knownOf(id).document?.of ?? 0]));
    const fresh = held
      .filter(({ id }) => !knownOf(id).hasRow)
      .map(({ id, declared }) => ({ ...id, ...declared }));
    const tables = await database.write([
      ...(fresh.length > 0
        ? [insertThrottles(fresh), noteFirstUse(fresh), putSettings(fresh)]
        : []),
      putReports(held.map(({ report }) => report)),
      getShares(held.map(({ id }) => id)),
    ]);
    const rows = byThrottle(tables.at(-1)!);
    for (const { id } of held) {
      const at = mapKey(id);
      const known = all.get(at);
      const row = rows.get(at)?.[0];
      if (!known) continue;
      known.hasRow = row !== undefined;
      known.learned = row && {
        row: toSharedRow(row),
        shares: row["shares"] as string,
        before: before.get(at)!,
      };
      if (row) known.copyMs = clock.monotonic();
      if (row) storeTime = { nowMs: Number(row["now_at"]), atMs: clock.monotonic() };
    }
  };

  /**
   * Copies shares into rows. A document is read after its row, so that an older one never replaces a newer:
   * a process that copies in between moves the row on.
   */
  const copyAll = async (): Promise<void> => {
    for (let tries = 1; tries <= maxCopyTries && uncopied.size > 0; tries++) {
      const ids = [...uncopied.values()].slice(0, maxCopies);
      for (const id of ids) uncopied.delete(mapKey(id));
      const later = (id: ThrottleId) => uncopied.set(mapKey(id), id);
      try {
        const rows = byThrottle(await database.read(getShares(ids)));
        const found = await readAll(ids);
        const changes = ids.flatMap((id, nth) => {
          const [row] = rows.get(mapKey(id)) ?? [];
          const shares = found[nth]?.shares;
          if (!row || shares === undefined || row["shares"] === shares) return [];
          return [{ id, statement: changeShares(id, Number(row["rev"]), shares) }];
        });
        if (changes.length === 0) continue;
        const tables = await database.write(changes.map(({ statement }) => statement));
        for (const [nth, { id }] of changes.entries()) if (tables[nth]!.length === 0) later(id);
      } catch (error) {
        for (const id of ids) later(id);
        throw error;
      }
    }
  };

  const copySoon = (): void => {
    if (uncopied.size === 0 || isAway) return;
    copying ??= copyAll()
      .catch((error: unknown) =>
        log.debug({ error: messageOf(error) }, "shares of throttles not copied"),
      )
      .finally(() => (copying = undefined));
  };

  const askSoon = (held: readonly HeldThrottle[]): Promise<void> => {
    asking ??= askDatabase(held)
      .then(() => {
        if (isAway) log.info({}, "limits of throttles are learned again");
        isAway = false;
        answeredMs = clock.monotonic();
        copySoon();
      })
      .catch((error: unknown) => {
        if (!isAway) {
          log.warn(
            { error: messageOf(error) },
            "the database doesn't take reports of throttles: limits stay as they are",
          );
        }
        isAway = true;
      })
      .finally(() => (asking = undefined));
    return asking;
  };

  const read = async (id: ThrottleId): Promise<StoredShares | undefined> => {
    const stored = await documents.read(id);
    const document = stored && { ...decodeDocument(stored.text), rev: stored.rev };
    const known = all.get(mapKey(id));
    // Where one is gone for want of room, pods go on using the shares that it had.
    if (known && document) note(known, document);
    else if (known) {
      const nowMs = clock.monotonic();
      const { missing } = known;
      const sinceMs = missing && nowMs - missing.lastMs <= absentMs ? missing.sinceMs : nowMs;
      known.missing = { sinceMs, lastMs: nowMs };
    }
    return document;
  };

  /** Some at a time, in their order. */
  const readAll = async (ids: readonly ThrottleId[]): Promise<(StoredShares | undefined)[]> => {
    const found: (StoredShares | undefined)[] = [];
    for (let from = 0; from < ids.length; from += maxReads) {
      found.push(...(await Promise.all(ids.slice(from, from + maxReads).map(read))));
    }
    return found;
  };

  /** The document that should be there instead, if another limit was learned since, or if there is none. */
  const dueOf = ({ id, declared }: HeldThrottle, document: StoredShares | undefined) => {
    const { learned, document: last, missing, readMs, copyMs } = knownOf(id);
    if (!document) {
      // A pod that has a share looks each second, and makes it again with what all had.
      const nowMs = clock.monotonic();
      const isAbsent = missing !== undefined && nowMs - missing.sinceMs >= absentMs;
      if (nowMs - Math.max(readMs, copyMs) > absentMs && !isAbsent) return undefined;
      // Pods may have had shares in the row before they had them here. Of both, never a part of each: then all
      // would be more than there is. The row has them a moment later.
      const isLater = last !== undefined && readMs >= copyMs - absentMs;
      const shares = (isLater ? last.shares : learned?.shares) ?? "{}";
      if (last && (!learned || learned.row.rev < last.of)) return { ...last, shares };
      return documentOf({ ...(learned?.row ?? declared), shares });
    }
    // If the document has had its limit for as long, this row was read after the one that it is of.
    if (!learned || learned.before !== document.of) return undefined;
    const due = { ...documentOf({ ...learned.row, shares: document.shares }) };
    const { bound, epoch, gate, pass } = due;
    const isHeld = learned.row.constraints.holdMs > 0 && pass !== document.pass;
    const isSame = bound === document.bound && epoch === document.epoch && gate === document.gate;
    return isSame && !isHeld ? undefined : due;
  };

  const syncOne = async (held: HeldThrottle): Promise<SharedThrottle> => {
    const { id } = held;
    let document = await read(id);
    const due = dueOf(held, document);
    if (due) {
      const written = await documents.write(id, document?.rev ?? 0, encodeDocument(due));
      if (written.type === "stored") {
        document = { ...due, rev: written.rev };
        note(knownOf(id), document);
      } else document = await read(id);
    }
    return { row: document && toRow(document), demands: demands.of(id) };
  };

  return {
    async sync(held) {
      for (const text of encodeDemands(podId, held)) documents.announce(text);
      const asked = askSoon(held);
      if (!isAway) await settledWithin(clock, databaseMs, asked);
      const found: SharedThrottle[] = [];
      for (let from = 0; from < held.length; from += maxReads) {
        found.push(...(await Promise.all(held.slice(from, from + maxReads).map(syncOne))));
      }
      return found;
    },

    async change(id, rev, shares): Promise<ShareChange> {
      const known = knownOf(id);
      const { document } = known;
      if (document?.rev !== rev) {
        const found = await read(id);
        return { type: "refused", row: found && toRow(found) };
      }
      const next = { ...document, shares };
      const written = await documents.write(id, rev, encodeDocument(next));
      if (written.type === "stored") {
        const stored = { ...next, rev: written.rev };
        note(known, stored);
        uncopied.set(mapKey(id), id);
        copySoon();
        return { type: "stored", row: toRow(stored) };
      }
      if (written.type === "refused") throw new FlotillaError("store_unavailable", written.why);
      // Once another write is stored, this one can't be any more unless it is that.
      const found = await read(id).catch(() => undefined);
      if (found && found.rev > rev) return { type: "unknown", row: toRow(found) };
      throw new FlotillaError("unknown_outcome", written.why);
    },

    async raise(id: ThrottleId, rate: StatedRate) {
      // A database that is away learns nothing now. The rate is reported again with other calls.
      if (isAway) return;
      const raised = raiseToRate(database, id, rate).catch((error: unknown) =>
        log.debug({ error: messageOf(error) }, "throttle limit not raised"),
      );
      await settledWithin(clock, databaseMs, raised);
    },

    forget: (id) => void all.delete(mapKey(id)),
    async stop() {
      stopListening();
      if (copying) await settledWithin(clock, stopMs, copying);
    },
  };
}

function unknown(): Known {
  return {
    document: undefined,
    readMs: Number.NEGATIVE_INFINITY,
    copyMs: Number.NEGATIVE_INFINITY,
    missing: undefined,
    hasRow: false,
    learned: undefined,
  };
}

/** Without a leader an open breaker would never close. One call at a time goes through, of all pods. */
function probing(row: SharedRow): SharedRow {
  const constraints = { ...row.constraints, breaker: "half_open" as const };
  return { ...row, bound: Math.min(1, row.bound), constraints };
}
