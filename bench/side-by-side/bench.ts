import type { BenchOptions } from "../run.ts";
import type { Server } from "../servers/server.ts";
import type { ServerKind, Variant } from "../systems/variants.ts";

/** What every kind of work is given: who takes part, and where. */
export type SideBySide = {
  readonly options: BenchOptions;
  readonly servers: Readonly<Partial<Record<ServerKind, Server>>>;
  readonly rounds: number;
  /** The systems of this run that do this work. */
  only(keys: readonly string[]): readonly Variant[];
};

export function serverOf({ servers }: SideBySide, variant: Variant): Server {
  const server = servers[variant.server];
  if (!server) throw new Error(`no ${variant.server} was started`);
  return server;
}

/**
 * Systems take turns within a round, and in the other direction in every other round, so that a
 * machine that gets slower or faster doesn't favour anybody.
 */
export async function takeTurns<Entrant>(
  { rounds }: Pick<SideBySide, "rounds">,
  entrants: readonly Entrant[],
  turn: (entrant: Entrant, round: number) => Promise<void>,
): Promise<void> {
  for (let round = 1; round <= rounds; round++) {
    for (const entrant of inTurn(round, entrants)) await turn(entrant, round);
  }
}

/** The order of turns in a round. */
export function inTurn<Entrant>(round: number, entrants: readonly Entrant[]): readonly Entrant[] {
  return round % 2 === 1 ? entrants : entrants.toReversed();
}
