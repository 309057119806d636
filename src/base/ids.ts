import type { Clock } from "./clock.ts";
import type { Random } from "./random.ts";

/** Makes ids that sort by their creation time. */
export type Ids = { next(): string };

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const counterLimit = 0x1000;
const pair = (bits: number) => hex[bits & 0xff]!;

/**
 * UUIDv7: 48 bits of milliseconds, a 12-bit counter so that ids of one millisecond keep their
 * order, 62 random bits. The order holds even if the clock steps back.
 */
export function uuidv7(clock: Pick<Clock, "now">, random: Random): Ids {
  let lastMs = 0;
  let counter = 0;
  return {
    next() {
      const nowMs = clock.now();
      if (nowMs > lastMs) {
        lastMs = nowMs;
        // Starting low leaves room to count within the millisecond.
        counter = random.uint32() & 0xff;
      } else if (++counter === counterLimit) {
        lastMs += 1;
        counter = 0;
      }
      const high = Math.floor(lastMs / 2 ** 16);
      const low = lastMs % 2 ** 16;
      const a = random.uint32();
      const b = random.uint32();
      return (
        `${pair(high >>> 24)}${pair(high >>> 16)}${pair(high >>> 8)}${pair(high)}-` +
        `${pair(low >>> 8)}${pair(low)}-` +
        `${pair(0x70 | (counter >>> 8))}${pair(counter)}-` +
        `${pair(0x80 | ((a >>> 24) & 0x3f))}${pair(a >>> 16)}-` +
        `${pair(a >>> 8)}${pair(a)}${pair(b >>> 24)}${pair(b >>> 16)}${pair(b >>> 8)}${pair(b)}`
      );
    },
  };
}

/** No id of ours that was made at this time or later sorts before it, and none that is earlier after it. */
export function idBoundAt(ms: number): string {
  const text = ms.toString(16).padStart(12, "0");
  return `${text.slice(0, 8)}-${text.slice(8)}`;
}

/** When an id of ours was made; undefined for other ids. */
export function idTime(id: string): number | undefined {
  const [, high, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-7/.exec(id) ?? [];
  return high === undefined ? undefined : Number.parseInt(`${high}${low}`, 16);
}
