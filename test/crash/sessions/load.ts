import { between, type Random } from "../../../src/base/random.ts";
import type { Client } from "./client.ts";
import { pauseFor } from "../until.ts";

const inFlightMost = 3;

/** Has clients talk in sessions, each with a few things on the way at once, until it is stopped. */
export function keepTalking(
  clients: readonly Client[],
  sessions: readonly string[],
  random: Random,
): { stop(): Promise<void> } {
  let stopped = false;
  const talk = async (client: Client): Promise<void> => {
    const inFlight = new Set<Promise<unknown>>();
    while (!stopped) {
      const session = sessions[between(random, 0, sessions.length - 1)]!;
      const said = client.say(session).finally(() => inFlight.delete(said));
      inFlight.add(said);
      if (inFlight.size >= inFlightMost) await Promise.race(inFlight);
      await pauseFor(between(random, 20, 150));
    }
    await Promise.all(inFlight);
  };
  for (const client of clients) for (const session of sessions) client.follow(session);
  const talking = clients.map(talk);
  return {
    async stop() {
      stopped = true;
      await Promise.all(talking);
    },
  };
}
