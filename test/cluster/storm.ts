import { between, fraction, seededRandom } from "../../src/base/random.ts";
import { keepTalking } from "../crash/sessions/load.ts";
import { refusals } from "../crash/sessions/nemesis.ts";
import { diedUnasked } from "../crash/sessions/storm.ts";
import { pauseFor, until } from "../crash/until.ts";
import { clusterViolations, mostAtOnce, vacuity } from "./checkers.ts";
import { callsMax, type Cluster, places } from "./cluster.ts";
import type { ArchiveTables, ClusterEvidence, Look, Owned, SeenHead } from "./evidence.ts";
import { type Faults, fire, makesSessions, processFaults, surroundingFaults } from "./faults.ts";
import { keepMoving } from "./moves.ts";
import { outside } from "./network.ts";
import { rivalVacuity, rivalViolations } from "./rivals/checkers.ts";
import type { RivalEvidence } from "./rivals/evidence.ts";
import { startRivals } from "./rivals/rivals.ts";

export type ClusterStorm = {
  /** What speaks against the promises. */
  readonly violations: readonly string[];
  /** What didn't happen, so that the storm shows less than it should. */
  readonly mildness: readonly string[];
  readonly evidence: ClusterEvidence & { readonly rivals: RivalEvidence };
  readonly counts: Readonly<Record<string, number>>;
};

export type ClusterStormPlan = {
  readonly seed: number;
  /** It goes on for so long, and at least until each fault has fired and met what it can meet. */
  readonly forMs: number;
  /**
   * Postgres is away for so long, in place of what else is done to it: with logs on NATS everything goes on, and pods
   * start.
   */
  readonly awayMs?: number | undefined;
  readonly say?: (line: string) => void;
};

const agents = { local: 3, remote: 6, plain: 2 } as const;
const settleMs = 90_000;
/** How much longer it goes on for what is rare, such as a record of another's where an outcome is unknown. */
const longerMs = 90_000;
const readers = ["eve", "fay"];
/** What an owner is refused by: at its next record, or at its next sign of life. */
const ownerFence = "an owner whose log is another's";
const startsLate =
  "the store is away: this pod serves sessions by their logs, and the rest once it is back";
const answerFence = "an answer of a turn that is another's";

/** Clients that talk while everything that they need is killed, paused, cut off, filled and set wrong. */
export async function runClusterStorm(
  cluster: Cluster,
  { seed, forMs, awayMs, say = () => {} }: ClusterStormPlan,
): Promise<ClusterStorm> {
  const { fleet, network } = cluster;
  await fleet.startAgent(network.addressOf(outside));
  await Promise.all(places.map(cluster.startPod));
  const sessions = Object.entries(agents).flatMap(([agent, count]) =>
    Array.from({ length: count }, (_, at) => ({ session: `${agent}-${at}`, agent })),
  );
  await Promise.all(
    sessions.map(({ session, agent }) => cluster.open(session, agent === "plain" ? null : agent)),
  );
  const names = sessions.map(({ session }) => session);
  const clients = ["ada", "bob", "cid", "dan"].map((name) =>
    fleet.client(name, { losesAckOf: 20 }),
  );
  const rivals = await startRivals(cluster, seed + 6);
  const talking = keepTalking(clients, names, seededRandom(seed + 1));
  const watching = keepWatching(cluster, names, seed + 2);
  const moves =
    cluster.mode === "move"
      ? keepMoving(cluster, { random: seededRandom(seed + 7), say })
      : undefined;

  let quiet = 0;
  const quietSession = async () => {
    const session = `quiet-${quiet++}`;
    await cluster.open(session, "local");
    return session;
  };
  const onProcesses = withoutPostgres(
    processFaults({ cluster, random: seededRandom(seed), sessions: names, quietSession }),
    awayMs,
  );
  const surrounding = surroundingFaults({ cluster, random: seededRandom(seed + 3) });
  const around = withoutPostgres(surrounding, awayMs);
  const away = awayMs === undefined ? undefined : takeAway(cluster, awayMs, say);
  const endMs = performance.now() + forMs;
  let isDone = false;
  const isLate = () => {
    const overMs = performance.now() - endMs;
    const lacks = [...rivals.lacks(), ...(moves?.lacks() ?? [])];
    return overMs > 0 && (overMs > longerMs || lacks.length === 0);
  };
  const [harm, others] = await Promise.all([
    fire(onProcesses, { random: seededRandom(seed + 4), isOver: isLate, say }).finally(
      () => (isDone = true),
    ),
    fire(around, { random: seededRandom(seed + 5), isOver: () => isDone, say }),
  ]).catch((error: unknown) => {
    rivals.kill();
    throw error;
  });
  await away;
  say("the storm is over");
  const moved = await moves?.stop();
  await talking.stop();
  const { looks, heads } = await watching.stop();
  const contended = await rivals.gather();
  await settled(cluster);
  const gathered = await fleet.gather();
  const evidence: ClusterEvidence = {
    ...gathered,
    looks,
    heads,
    owned: fleet.logged("session log owned") as unknown as Owned[],
    calls: fleet.calls().filter(({ agent }) => agent === "remote"),
    callsMax,
    replicas: await cluster.replicas(),
    archives: await cluster.archives(),
  };

  const { history } = evidence;
  const count = (type: string) => history.filter((event) => event.type === type).length;
  const refusedBy = (words: string) => fleet.logged(words).length;
  const refused = {
    [ownerFence]: refusedBy(refusals.record) + refusedBy(refusals.beat),
    [answerFence]: refusedBy(refusals.answer),
  };
  const happened = {
    fired: [...harm, ...others],
    refused,
    looks: looks.length,
    invoked: count("invoke"),
    acked: count("ok"),
    mostAtOnce: mostAtOnce(evidence),
    callsMax,
    trimmed: evidence.archives?.trimmed ?? [],
  };
  const wanted = {
    faults: [...Object.keys(onProcesses), ...Object.keys(around)],
    fences: awayMs === undefined ? [ownerFence, answerFence] : [ownerFence],
  };
  const violations = [...clusterViolations(evidence), ...rivalViolations(contended)];
  for (const pod of diedUnasked(fleet)) violations.push(`R2: ${pod} ended, and no fault ended it`);
  const { invoked, acked } = happened;
  const startedLate = refusedBy(startsLate);
  const lacked = awayMs === undefined || startedLate > 0 ? [] : ["a pod that starts meanwhile"];
  const contendedBy = (event: string) =>
    contended.notes.filter((each) => each.event === event).length;
  return {
    violations,
    mildness: [
      ...vacuity(wanted, happened),
      ...rivalVacuity(contended),
      ...lacked,
      ...(moves?.lacks() ?? []),
    ],
    evidence: { ...evidence, rivals: contended },
    counts: {
      invoked,
      acked,
      unknown: count("info"),
      refused: count("refused"),
      delivered: count("deliver"),
      connections: count("closed"),
      looks: looks.length,
      ownersRefused: refused[ownerFence]!,
      answersRefused: refused[answerFence]!,
      answersAtOnce: happened.mostAtOnce,
      faults: happened.fired.length,
      ...(awayMs !== undefined && { startedLate }),
      ...moved,
      recordsCommitted: contendedBy("committed"),
      recordsFenced: contendedBy("fenced"),
      recordsUnknown: contendedBy("unknown"),
      placesEmpty: contendedBy("nothing"),
      logsTaken: contendedBy("recovered"),
      rowsRebuilt: rowsOf(evidence.archives?.rebuilt),
    },
  };
}

/** Faults that leave Postgres to itself, and need no session that only it could tell to be new. */
function withoutPostgres(faults: Faults, awayMs: number | undefined): Faults {
  if (awayMs === undefined) return faults;
  const isLeft = (name: string) => !name.includes("Postgres") && name !== makesSessions;
  return Object.fromEntries(Object.entries(faults).filter(([name]) => isLeft(name)));
}

async function takeAway(
  { postgres, fleet }: Cluster,
  awayMs: number,
  say: (line: string) => void,
): Promise<void> {
  say("take Postgres away");
  await postgres.kill();
  await pauseFor(awayMs);
  const hasStarted = () => fleet.logged(startsLate).length > 0;
  await until("a pod has started meanwhile", hasStarted, longerMs).catch(() => {});
  await postgres.start();
  say("bring Postgres back");
}

function rowsOf(tables: ArchiveTables = {}): number {
  return Object.values(tables).reduce((sum, rows) => sum + Object.keys(rows).length, 0);
}

/** Has readers ask any pod for the tails of sessions, and an observer for the heads of logs. */
function keepWatching(cluster: Cluster, sessions: readonly string[], seed: number) {
  const random = seededRandom(seed);
  const looks: Look[] = [];
  const heads: SeenHead[] = [];
  let stopped = false;
  const read = async (reader: string): Promise<void> => {
    while (!stopped) {
      const session = sessions[Math.floor(fraction(random) * sessions.length)]!;
      const found = await cluster.look(between(random, 0, places.length - 1), { reader, session });
      if (found) looks.push(found);
      await pauseFor(between(random, 50, 250));
    }
  };
  const observe = async (): Promise<void> => {
    while (!stopped) {
      heads.push(...(await cluster.heads().catch(() => [])));
      await pauseFor(250);
    }
  };
  const watching = [...readers.map(read), observe()];
  return {
    async stop() {
      stopped = true;
      await Promise.all(watching);
      return { looks, heads };
    },
  };
}

/** Waits until the database has all that was acked. What it lacks by then, the checkers name. */
async function settled({ fleet }: Cluster): Promise<void> {
  const acked = fleet.history.events.filter((event) => event.type === "ok");
  const isStored = async () => {
    const stored = await fleet.stored();
    const ends = new Map(stored.map(({ session, lastSeq }) => [session, lastSeq]));
    return acked.every(({ session, seq }) => (ends.get(session) ?? 0) >= seq);
  };
  await until("all that was acked is stored", isStored, settleMs).catch(() => {});
}
