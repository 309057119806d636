import type { Entry } from "../../protocol/message.ts";
import type { Database, Row } from "../../store/database.ts";
import type { ForkPlace, Header } from "../conversation/header.ts";
import { entryBytes } from "./archive/peek.ts";
import type { Reads } from "./journal.ts";
import { readFork } from "./sql/forks.ts";
import { type RowsPage, toHeader } from "./sql/reading.ts";

/**
 * A fork begins with entries of its parent, which may have begun with those of another session. Nothing is
 * copied: a lineage says whose rows they are, one segment after the other. It never changes.
 */
export type Segment = {
  readonly sessionId: string;
  /** Its entries from after the segment before up to this one. */
  readonly upTo: number;
};
export type Lineage = readonly Segment[];

/** How many sessions one fork may have entries of, so that reading it is bounded. */
export const maxSegments = 100;

/** Whose rows the entries of a session are, up to a seq. */
export function lineageUpTo(lineage: Lineage, sessionId: string, atSeq: number): Lineage {
  const kept: Segment[] = [];
  for (const segment of [...lineage, { sessionId, upTo: Infinity }]) {
    const from = kept.at(-1)?.upTo ?? 0;
    const upTo = Math.min(segment.upTo, atSeq);
    if (upTo > from) kept.push({ sessionId: segment.sessionId, upTo });
  }
  return kept;
}

export function encodeLineage(lineage: Lineage): string {
  return JSON.stringify(lineage.map(({ sessionId, upTo }) => [sessionId, upTo]));
}

export function decodeLineage(text: string): Lineage {
  return (JSON.parse(text) as [string, number][]).map(([sessionId, upTo]) => ({ sessionId, upTo }));
}

/** The place that a row of `session_fork` names. */
export function placeOfRow(row: Row): ForkPlace {
  return { sessionId: row["parent_id"] as string, atSeq: Number(row["at_seq"]) };
}

export function isSamePlace(one: ForkPlace | undefined, other: ForkPlace): boolean {
  return one?.sessionId === other.sessionId && one.atSeq === other.atSeq;
}

/** Reads the rows of one session alone. */
export type RowReads = {
  entries(sessionId: string, page: RowsPage): Promise<Entry[]>;
  tail: Reads["tail"];
  newest(sessionId: string, messageId: string, upTo?: number): Promise<Entry | undefined>;
};

export type ForkReadsParts = {
  database: Pick<Database, "read">;
  rows: RowReads;
  /** The header of a session that the database doesn't have yet. */
  unstored?: ((sessionId: string) => Promise<Header | undefined>) | undefined;
};

/** Of how many sessions a process remembers whether they are forks. */
const maxKnown = 2_000;

/**
 * Reads sessions whose first entries may be rows of others. A session whose own rows are whole costs
 * nothing more: only where they begin too late, or there are none, it is looked up whether it is a fork.
 */
export function createForkReads({
  database,
  rows,
  unstored,
}: ForkReadsParts): Pick<Reads, "entries" | "tail" | "newest"> {
  /** Null: it is no fork. */
  const known = new Map<string, Lineage | null>();

  const remember = (sessionId: string, lineage: Lineage | null): void => {
    known.set(sessionId, lineage);
    if (known.size > maxKnown) known.delete(known.keys().next().value!);
  };

  /** `exists`: rows of it were found, so that it can't become a fork any more. */
  const lineageOf = async (sessionId: string, exists: boolean): Promise<Lineage | undefined> => {
    const remembered = known.get(sessionId);
    if (remembered !== undefined) return remembered ?? undefined;
    const read = async () => (await database.read(readFork(sessionId)))[0];
    const row = await read();
    if (!row) {
      if (exists) remember(sessionId, null);
      return undefined;
    }
    // The row comes before the session, and another session may have taken the id in between. What isn't
    // in the one place any more when it is looked for is in the other.
    const header = storedHeader(row) ?? (await unstored?.(sessionId)) ?? storedHeader(await read());
    if (!header) return undefined;
    const isFork = isSamePlace(header.parent, placeOfRow(row));
    const lineage = isFork ? decodeLineage(row["segments"] as string) : null;
    remember(sessionId, lineage);
    return lineage ?? undefined;
  };

  /** Its own rows come after those of its lineage. */
  const segmentsOf = (sessionId: string, lineage: Lineage): Lineage => [
    ...lineage,
    { sessionId, upTo: Number.MAX_SAFE_INTEGER },
  ];

  const entriesThrough = async (all: Lineage, page: RowsPage): Promise<Entry[]> => {
    const found: Entry[] = [];
    let { after } = page;
    let bytes = 0;
    for (const { sessionId, upTo } of all) {
      if (upTo <= after) continue;
      const next = await rows.entries(sessionId, {
        after,
        upTo,
        limit: page.limit - found.length,
        ...bytesLeft(page, bytes),
      });
      // Where a row is missing nothing after it is shown, so that no reader passes over a gap.
      if (next.length === 0 || next[0]!.seq !== after + 1) break;
      // The read itself keeps to the limit. Only what comes behind it has to know how much is left.
      const isFirst = found.length === 0;
      if (isFirst) found.push(...next);
      else {
        for (const entry of next) {
          bytes += page.maxBytes === undefined ? 0 : entryBytes(entry);
          if (bytes > (page.maxBytes ?? Infinity)) return found;
          found.push(entry);
        }
      }
      after = next.at(-1)!.seq;
      if (after < upTo || found.length >= page.limit) break;
      if (isFirst && page.maxBytes !== undefined) bytes = bytesOf(next);
    }
    return found;
  };

  const tailThrough = async (
    all: Lineage,
    page: Parameters<Reads["tail"]>[1],
  ): Promise<Entry[]> => {
    let found: Entry[] = [];
    let bytes = 0;
    for (let at = all.length - 1; at >= 0; at--) {
      const { sessionId, upTo } = all[at]!;
      const isOwn = at === all.length - 1;
      const low = Math.max(page.after, all[at - 1]?.upTo ?? 0);
      const high = Math.min(page.upTo, upTo);
      if (high <= low) continue;
      const limit = page.limit - found.length;
      const left = bytesLeft(page, bytes);
      const next = await rows.tail(sessionId, { after: low, upTo: high, limit, ...left });
      const isEnd = next.at(-1)?.seq === high;
      if (!isOwn && !isEnd) break;
      const isFirst = found.length === 0;
      if (isFirst) found = next;
      else {
        let fits = 0;
        for (const entry of next.toReversed()) {
          bytes += page.maxBytes === undefined ? 0 : entryBytes(entry);
          if (bytes > (page.maxBytes ?? Infinity)) break;
          fits++;
        }
        found = [...next.slice(next.length - fits), ...found];
        if (fits < next.length) return found;
      }
      const isWhole = next.length === 0 || next[0]!.seq === low + 1;
      if (!isWhole || found.length >= page.limit) break;
      if (isFirst && page.maxBytes !== undefined) bytes = bytesOf(next);
    }
    return found;
  };

  return {
    async entries(sessionId, page) {
      const lineage = known.get(sessionId);
      if (lineage) return entriesThrough(segmentsOf(sessionId, lineage), page);
      const found = await rows.entries(sessionId, page);
      if (lineage === null || found[0]?.seq === page.after + 1) return found;
      const read = await lineageOf(sessionId, found.length > 0);
      return read ? entriesThrough(segmentsOf(sessionId, read), page) : found;
    },

    async tail(sessionId, page) {
      const lineage = known.get(sessionId);
      if (lineage) return tailThrough(segmentsOf(sessionId, lineage), page);
      const found = await rows.tail(sessionId, page);
      const isWhole = found[0]?.seq === page.after + 1 || found.length >= page.limit;
      if (lineage === null || isWhole) return found;
      const read = await lineageOf(sessionId, found.length > 0);
      return read ? tailThrough(segmentsOf(sessionId, read), page) : found;
    },

    async newest(sessionId, messageId) {
      const found = await rows.newest(sessionId, messageId);
      if (found || known.get(sessionId) === null) return found;
      const lineage = (await lineageOf(sessionId, false)) ?? [];
      for (const segment of lineage.toReversed()) {
        const before = await rows.newest(segment.sessionId, messageId, segment.upTo);
        if (before) return before;
      }
      return undefined;
    },
  };
}

function bytesOf(entries: readonly Entry[]): number {
  return entries.reduce((sum, entry) => sum + entryBytes(entry), 0);
}

function storedHeader(row: Row | undefined): Header | undefined {
  return row && row["header"] !== null ? toHeader(row) : undefined;
}

/** What is left of a page. One entry at least is read of it, whatever its size. */
function bytesLeft({ maxBytes }: { maxBytes?: number }, used: number): { maxBytes?: number } {
  return maxBytes === undefined ? {} : { maxBytes: Math.max(1, maxBytes - used) };
}
