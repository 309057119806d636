/** The work that every part of this bench, and its limit, does: a no-op with about 100 bytes of payload. */
export const workName = "noop";

const filler = "x".repeat(80);

export function payload(number: number) {
  return { number, text: filler };
}

/** What a pod with short tasks should be given, so that it holds several batches at once. */
export const manySlots = 1_000;

/** What encodes payloads and results where that is measured. No store that matters has this key. */
export const benchKeys = { bench: Buffer.alloc(32, 7).toString("base64") };
