/** Lets so many things be under way at once; the others begin in the order of asking. */
export type Turns = <Given>(act: () => Promise<Given>) => Promise<Given>;

export function createTurns(most: number): Turns {
  const waiting: (() => void)[] = [];
  let free = most;
  return async (act) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await act();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}
