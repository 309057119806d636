import { seededRandom } from "../../../src/base/random.ts";
import { sessionViolations } from "./checkers.ts";
import type { SessionEvidence } from "./evidence.ts";
import type { SessionFleet } from "./fleet.ts";
import { keepTalking } from "./load.ts";
import { refusals, type StoreHarm, tormentServers } from "./nemesis.ts";

export type SessionStormPlan = {
  readonly seed: number;
  readonly servers: number;
  /** What is done to the database server as well. */
  readonly store?: StoreHarm;
  readonly say?: (line: string) => void;
};

export type SessionStorm = {
  /** What speaks against the promises. */
  readonly violations: readonly string[];
  /** What didn't happen, so that the storm shows less than it should. */
  readonly mildness: readonly string[];
  readonly evidence: SessionEvidence;
  readonly counts: Readonly<Record<string, number>>;
};

const agents = { local: 4, remote: 2, plain: 2 } as const;

/** Clients that talk while servers, and perhaps their store, are killed, paused and restarted, in an order that follows from the seed. */
export async function runSessionStorm(
  fleet: SessionFleet,
  { seed, servers, store, say = () => {} }: SessionStormPlan,
): Promise<SessionStorm> {
  await fleet.startAgent();
  await Promise.all(Array.from({ length: servers }, () => fleet.startServer()));
  const sessions = Object.entries(agents).flatMap(([agent, count]) =>
    Array.from({ length: count }, (_, at) => ({ session: `${agent}-${at}`, agent })),
  );
  const quiet = ["quiet-0"];
  await Promise.all([
    ...sessions.map(({ session, agent }) => fleet.open(session, agent === "plain" ? null : agent)),
    ...quiet.map((session) => fleet.open(session, "local")),
  ]);
  const names = sessions.map(({ session }) => session);
  const clients = ["ada", "bob", "cid", "dan"].map((name) =>
    fleet.client(name, { losesAckOf: 20 }),
  );
  const talking = keepTalking(clients, names, seededRandom(seed + 1));
  const harm = await tormentServers({
    fleet,
    random: seededRandom(seed),
    quiet,
    sessions: names,
    store,
    say,
  });
  await talking.stop();
  say("the storm is over");
  const evidence = await fleet.gather();

  const { history } = evidence;
  const count = (type: string) => history.filter((event) => event.type === type).length;
  const acks = history.filter((event) => event.type === "ok");
  const counts = {
    invoked: count("invoke"),
    acked: acks.length,
    unknown: count("info"),
    refused: count("refused"),
    delivered: count("deliver"),
    connections: count("closed"),
    duplicates: acks.filter(({ duplicate }) => duplicate).length,
    recordsRefused: fleet.logged(refusals.record).length,
    beatsRefused: fleet.logged(refusals.beat).length,
    answersRefused: fleet.logged(refusals.answer).length,
    answers: fleet.calls().filter(({ event }) => event === "ended").length,
    harm: harm.length,
  };
  const mildness: string[] = [];
  const hope = (happened: boolean, what: string) => {
    if (!happened) mildness.push(what);
  };
  hope(counts.acked >= counts.invoked / 2, "answers to most of what was said");
  hope(counts.acked > 100, "a hundred messages");
  hope(counts.duplicates > 0, "a message that was sent again after it had been stored");
  hope(
    counts.recordsRefused + counts.beatsRefused > 0,
    "a record or a beat of an owner whose log was another's",
  );
  hope(counts.answersRefused > 0, "an answer of a turn that was another's");
  const violations = sessionViolations(evidence);
  for (const pod of diedUnasked(fleet))
    violations.push(`R2: ${pod} ended, and nobody had ended it`);
  return { violations, mildness, evidence, counts };
}

export function diedUnasked({ faults }: SessionFleet): string[] {
  const asked = new Set(
    faults.flatMap(({ kind, podId }) => (kind === "kill" || kind === "terminate" ? [podId] : [])),
  );
  return faults.flatMap(({ kind, podId }) => (kind === "exit" && !asked.has(podId) ? [podId] : []));
}
