/**
 * What a text's characters cost in `run`, each in steps of a plain loop on the same machine. Where the
 * cost is linear it is about the same for every length, some hundreds at most; where it is quadratic it
 * grows with the text's length. The cheapest of a few runs counts, since other programs only make one dearer.
 */
export function stepsPerCharacter(run: (text: string) => unknown, text: string): number {
  // Text that was put together from pieces becomes one on its first reading, which isn't counted.
  walk(text);
  let least = Infinity;
  for (let round = 0; round < 3 && least > stepsMost; round++) {
    least = Math.min(least, spentNs(run, text) / text.length / stepNs);
  }
  return least;
}

/** More than ten times what the dearest linear expression takes, and far less than a quadratic one does. */
export const stepsMost = 10_000;

export function spentNs(run: (text: string) => unknown, text: string): number {
  const startedAt = process.hrtime.bigint();
  run(text);
  return Number(process.hrtime.bigint() - startedAt);
}

function walk(text: string): number {
  let sum = 0;
  for (let at = 0; at < text.length; at++) sum = (sum + text.charCodeAt(at)) | 0;
  return sum;
}

const measured = "plain text ".repeat(10_000);
const stepNs =
  Math.min(...Array.from({ length: 100 }, () => spentNs(walk, measured))) / measured.length;
