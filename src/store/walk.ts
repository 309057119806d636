import crypto from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { isStorable } from "../base/options.ts";
import { maxPageBytes } from "../base/page.ts";

/**
 * Lists go along an index from the newest entry to the oldest, and stop after so many entries or so
 * long, whatever they have found: a filter that matches nothing costs the same in a store of any size.
 * The next page goes on where this one stopped.
 */
export const walkBounds = {
  /** The most entries of indexes that are read for a page. */
  entries: 20_000,
  /** No piece begins later than this after the first was read. */
  ms: 100,
  /** How many entries one statement reads at most, so that the time is checked in between. */
  piece: 2_000,
} as const;

/** Where a piece of a walk begins and ends: below `before`, not below `from`, at most `count` entries. */
export type WalkSpan = {
  readonly before: string;
  readonly from: string;
  readonly count: number;
};

export type WalkEntry = { readonly id: string; readonly atMs: number; readonly bytes: number };

/** What one statement has found, newest first. */
export type WalkPiece = {
  /** The entries that the filter matches: the first `wanted` of them at least. */
  readonly found: readonly WalkEntry[];
  /** How many entries of indexes were read. */
  readonly walked: number;
  /** The last entry that was checked; undefined if there was none. */
  readonly last: { readonly id: string; readonly atMs: number } | undefined;
  /** True if no entries follow. */
  readonly isEnd: boolean;
};

export type Walk = {
  readonly clock: Pick<Clock, "monotonic">;
  readonly before: string;
  readonly from: string;
  /** How many may be found. */
  readonly limit: number;
  /** How many entries may be read. Default: as many as a page may. */
  readonly entries?: number;
  readonly read: (span: WalkSpan, wanted: number) => Promise<WalkPiece>;
};

export type Walked = {
  readonly found: readonly WalkEntry[];
  /** The entry to go on below, and its time; undefined if all entries were read. */
  readonly stoppedAt: { readonly id: string; readonly atMs: number } | undefined;
};

/** Walks until a page is full, until there are no more entries, or until a bound is reached. */
export async function walk({ clock, limit, from, read, ...walk }: Walk): Promise<Walked> {
  // From the first answer on: a connection that had to be opened for it leaves time for the second.
  let startedMs: number | undefined;
  const found: WalkEntry[] = [];
  let { before, entries = walkBounds.entries } = walk;
  let bytes = 0;
  // Where every entry matches, the first piece is the page.
  let next = limit + 1;
  for (;;) {
    const count = Math.min(next, walkBounds.piece, entries);
    const piece = await read({ before, from, count }, limit + 1 - found.length);
    for (const entry of piece.found) {
      bytes += entry.bytes;
      const isFull = found.length >= limit || (found.length > 0 && bytes > maxPageBytes);
      if (isFull) return { found, stoppedAt: found.at(-1) };
      found.push(entry);
    }
    const { last } = piece;
    if (last === undefined || piece.isEnd) return { found, stoppedAt: undefined };
    entries -= piece.walked;
    startedMs ??= clock.monotonic();
    const isLate = clock.monotonic() - startedMs >= walkBounds.ms;
    if (entries <= 0 || isLate) return { found, stoppedAt: last };
    before = last.id;
    next = walkBounds.piece;
  }
}

/** Sorts after every id. */
export const afterAllIds = "\u{10ffff}";

export type Cursors = {
  /** The cursor of a page that goes on below this place. */
  encode(place: string): string;
  /** Throws if the cursor is of a list with another filter, or of none. */
  decode(cursor: string): string;
};

const maxPlaceChars = 600;

/** Cursors of a list with this filter. They name it, because pages of another would overlap or have gaps. */
export function cursorsOf(list: string, filter: Readonly<Record<string, unknown>>): Cursors {
  const given = Object.entries(filter)
    .filter(([, value]) => value !== undefined)
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  const mark = crypto.hash("sha256", JSON.stringify([list, given]), "base64url").slice(0, 10);
  return {
    encode: (place) => `${mark}.${place}`,
    decode(cursor) {
      const place = cursor.slice(mark.length + 1);
      const isOurs = cursor.startsWith(`${mark}.`) && place !== "";
      if (isOurs && place.length <= maxPlaceChars && isStorable(place)) return place;
      throw new FlotillaError(
        "invalid_option",
        "cursor must be the `next` of an earlier page of the same list with the same filter: leave it out to begin anew",
      );
    },
  };
}
