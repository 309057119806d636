import type { Clock } from "../../../base/clock.ts";

/** How long a log keeps what is archived: for an archive that is set back, and for what is sent again. */
const marginMs = 600_000;
const marginBytes = 64 * 1_024 * 1_024;
/** Of a small log, no more than this part of it. */
const marginShare = 0.25;
/** How exactly it is known how old and how large the margin is. */
const stepMs = 10_000;
const steps = 16;

/** What a log keeps of what is archived. */
export type Margin = {
  /** So many bytes of records have come into the archive. */
  addArchived(bytes: number): void;
  /** All up to this offset is archived, and a mark says so. */
  add(offset: number): void;
  /** Appends are worth more than a margin: there is none until the next trim. */
  fill(): void;
  /** The offset below which the log need not be kept; undefined if it has none that is new. */
  trimBelow(archived: number): number | undefined;
};

export function createMargin({
  clock,
  maxLogBytes,
}: {
  clock: Clock;
  maxLogBytes: number;
}): Margin {
  const maxBytes = Math.min(marginBytes, maxLogBytes * marginShare);
  let archivedBytes = 0;
  let isFull = false;
  /** Where marks have stood, when, and how much was archived by then. */
  let marks: { readonly offset: number; readonly atMs: number; readonly bytes: number }[] = [];
  return {
    addArchived(bytes) {
      archivedBytes += bytes;
    },
    add(offset) {
      const atMs = clock.monotonic();
      const last = marks.at(-1);
      const isSoon = last && atMs - last.atMs < stepMs;
      if (isSoon && archivedBytes - last.bytes < maxBytes / steps) return;
      marks.push({ offset, atMs, bytes: archivedBytes });
    },
    fill() {
      isFull = true;
    },
    trimBelow(archived) {
      if (isFull) {
        isFull = false;
        marks = [];
        return archived;
      }
      const nowMs = clock.monotonic();
      const past = marks.findLast(
        ({ atMs, bytes }) => nowMs - atMs > marginMs || archivedBytes - bytes > maxBytes,
      );
      if (!past) return undefined;
      marks = marks.slice(marks.indexOf(past) + 1);
      return past.offset;
    },
  };
}
