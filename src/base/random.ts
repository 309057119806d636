/** The program's only source of randomness. */
export type Random = {
  /** An integer in [0, 2^32). */
  uint32(): number;
};

// One system call fills many numbers, because ids are made by the hundred thousand.
const pool = new Uint32Array(1_024);
let used = pool.length;

export const systemRandom: Random = {
  uint32() {
    if (used === pool.length) {
      crypto.getRandomValues(pool);
      used = 0;
    }
    return pool[used++]!;
  },
};

/** The same numbers for the same seed, on every machine. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return {
    uint32() {
      state = (state + 0x9e3779b9) >>> 0;
      let mixed = state;
      mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
      mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
      return (mixed ^ (mixed >>> 15)) >>> 0;
    },
  };
}

/** A fraction in [0, 1). */
export function fraction(random: Random): number {
  return random.uint32() / 2 ** 32;
}

/** An integer from `low` to `high`, both included. */
export function between(random: Random, low: number, high: number): number {
  return low + Math.floor(fraction(random) * (high - low + 1));
}

/** Random bytes, as for keys, tickets and nonces. */
export function drawBytes(random: Random, count: number): Uint8Array<ArrayBuffer> {
  const words = new Uint32Array(Math.ceil(count / 4));
  for (let at = 0; at < words.length; at++) words[at] = random.uint32();
  return new Uint8Array(words.buffer, 0, count);
}
