import { between, seededRandom } from "../../../src/base/random.ts";
import { gather, violations } from "./checkers.ts";
import type { Fleet, StartOptions } from "../fleet.ts";
import { createHistory, type History } from "../history.ts";
import { type Entry, monotonicMs, startsIn } from "../ledger.ts";
import { type CommonFaults, type Places, podFaults, torment } from "../nemesis.ts";
import { type ProducerEvidence, producerViolations, type Snapshot } from "./producer-checkers.ts";
import { pauseFor, until } from "../until.ts";
import { beginSchedule, block, keepBusy, type Knowledge, produce } from "../workload.ts";

export type StormPlan = {
  readonly seed: number;
  readonly pods: number;
  /** Tasks before anything goes wrong, and after it has begun to. */
  readonly calmTasks: number;
  readonly stormTasks: number;
  readonly stormMs: number;
  readonly heartbeatMs: number;
  readonly deadAfterMs: number;
  /** Harm to all at once, beside what is done to pods. */
  readonly common?: CommonFaults;
  /** How the pod at a place lives, where not as the others do. */
  readonly placeAt?: (at: number) => StartOptions;
  readonly say?: (line: string) => void;
};

export type Storm = {
  /** What speaks against the promises. */
  readonly violations: readonly string[];
  /** What didn't happen, so that the storm shows less than it should. */
  readonly mildness: readonly string[];
  readonly evidence: ProducerEvidence;
  readonly counts: Readonly<Record<string, number>>;
};

/** A fleet at work through every fault there is, in an order that follows from the seed. */
export async function runStorm(fleet: Fleet, plan: StormPlan): Promise<Storm> {
  const { seed, calmTasks, stormTasks, stormMs, heartbeatMs, deadAfterMs, say = () => {} } = plan;
  const history = createHistory();
  const config = { heartbeatMs, deadAfterMs, pollMs: 300, shutdownMs: 500, graceMs: 300 };
  const places: Places = Array.from({ length: plan.pods }, (_, at) => ({
    // One pod doesn't know every task.
    names: at === plan.pods - 1 ? ["work"] : ["work", "rare", "blocks", "due"],
    config,
    ...plan.placeAt?.(at),
  }));
  const pods = await Promise.all(places.map((place) => fleet.start(place)));
  const sampling = sample(fleet, history);
  const mildness: string[] = [];
  const hope = (happened: boolean, what: string) => {
    if (!happened) mildness.push(what);
  };

  const startedMs = monotonicMs();
  await calm(fleet, history, calmTasks);
  const calmMs = Math.round(monotonicMs() - startedMs);
  // Without faults nothing runs twice, unless this machine itself has paused a pod.
  const doubled = startsIn(fleet.ledger()).length - calmTasks;
  const excused = tally(fleet.ledger()).recovered;
  say(`${calmTasks} tasks in ${calmMs} ms`);

  const known: Knowledge = { deployed: false };
  const blocked: CommonFaults = {
    "block an event loop": (random) =>
      block(fleet.flotilla, history, between(random, deadAfterMs, 3 * deadAfterMs)),
  };
  const busy = keepBusy(fleet.flotilla, history, plan);
  await beginSchedule(fleet.flotilla, { everyMs: 200, forMs: stormMs });
  const common = { ...blocked, ...plan.common };
  const [harm] = await Promise.all([
    torment({
      fleet,
      pods,
      places,
      common,
      random: seededRandom(seed),
      forMs: stormMs,
      deadAfterMs,
      say,
      onDeploy: () => (known.deployed = true),
    }),
    produce(fleet.flotilla, history, seededRandom(seed + 1), {
      count: stormTasks,
      overMs: stormMs,
      known,
    }),
  ]);
  await busy.stop();
  say("the storm is over");
  const stoppedMs = monotonicMs();
  // What is left open after this is a violation that the checkers name.
  await until("every task has ended", () => allHaveEnded(fleet)).catch(() => {});
  const quietMs = Math.round(monotonicMs() - stoppedMs);
  const agreed = await until("all agree on the oldest pod as leader", () =>
    allFollowTheOldest(fleet),
  ).catch(() => false);
  const snapshots = await sampling.stop();

  const evidence = {
    ...(await gather(fleet, { deadAfterMs })),
    history: history.operations,
    snapshots,
  };
  const wrong = [...violations(evidence), ...producerViolations(evidence)];
  if (!agreed) wrong.push("L2: the pods don't agree on the oldest as their leader");
  for (const podId of diedUnasked(fleet)) wrong.push(`R2: ${podId} ended, and nobody had ended it`);
  if (doubled > excused) wrong.push(`T8: ${doubled} tasks ran twice while nothing went wrong`);

  const count = tally(evidence.ledger);
  const dues = evidence.rows.filter(({ name }) => name === "due").length;
  for (const kind of [...podFaults, ...Object.keys(common), "deploy"]) {
    hope(harm.includes(kind), `the fault: ${kind}`);
  }
  for (const outcome of ["recovered", "lost", "retry", "failed", "cancelled"] as const) {
    hope(count[outcome] > 0, `an attempt that ended: ${outcome}`);
  }
  hope(
    evidence.rows.some(({ status }) => status === "cancelled"),
    "a cancelled task",
  );
  hope(
    evidence.rows.some(({ name }) => name === "fresh"),
    "a task that only new pods know",
  );
  hope(dues > 5, "due times of a schedule");
  const refused = history.operations.filter(({ type }) => type !== "ok").length;
  hope(refused < history.operations.length / 2, "answers to most calls");
  return {
    violations: wrong,
    mildness,
    evidence,
    counts: { quietMs, harm: harm.length, refused, dues, ...count },
  };
}

/** Nothing in a storm makes a pod end by itself: no task does, and no fault of the store may. */
function diedUnasked({ faults }: Fleet): string[] {
  const asked = new Set(
    faults.flatMap(({ kind, podId }) => (kind === "kill" || kind === "terminate" ? [podId] : [])),
  );
  return faults.flatMap(({ kind, podId }) => (kind === "exit" && !asked.has(podId) ? [podId] : []));
}

/** Tasks by the thousand while nothing goes wrong. */
async function calm(fleet: Fleet, history: History, tasks: number): Promise<void> {
  const half = Array.from({ length: tasks / 2 }, () => ({ ms: 0 }));
  for (let part = 0; part < 2; part++) {
    await history.note(
      { kind: "enqueue" },
      () => fleet.flotilla.enqueueMany("work", half),
      (enqueued) => enqueued.map(({ taskId }) => taskId),
    );
  }
  await until("the calm tasks have ended", () => allHaveEnded(fleet));
}

// Among so many tasks a read is expensive, and would take its time from the pods.
const lookEveryMs = 100;

async function allHaveEnded(fleet: Fleet): Promise<boolean> {
  await pauseFor(lookEveryMs);
  const open = await fleet.sql(
    "select 1 from flotilla_task where status in ('pending', 'claimed') limit 1",
  );
  return open.length === 0;
}

/** Counts the tasks now and then, all states in one look. */
function sample(fleet: Fleet, history: History) {
  const snapshots: Snapshot[] = [];
  let stopped = false;
  const look = async (): Promise<void> => {
    while (!stopped) {
      const acked = history.operations.filter(
        (each) => each.kind === "enqueue" && each.type === "ok",
      );
      const ackedBefore = new Set(acked.flatMap(({ tasks }) => tasks)).size;
      // While the store is away there is nothing to count.
      const stats = await fleet.flotilla.tasks.stats({ exact: true }).catch(() => undefined);
      if (stats) snapshots.push({ ackedBefore, byStatus: stats.byStatus });
      await pauseFor(500);
    }
  };
  const looking = look();
  return {
    async stop(): Promise<Snapshot[]> {
      stopped = true;
      await looking;
      return snapshots;
    },
  };
}

/** L2: the oldest pod that beats leads, as all pods see it. */
async function allFollowTheOldest(fleet: Fleet): Promise<boolean> {
  await pauseFor(lookEveryMs);
  const alive = new Set(fleet.pods.filter((pod) => pod.alive).map(({ podId }) => podId));
  const rows = await fleet.sql("select pod_id from flotilla_pod order by started_at, pod_id");
  const oldest = rows.find((row) => alive.has(row["pod_id"]));
  const followed = new Map<string, string | null>();
  for (const entry of fleet.ledger()) {
    if (entry.event === "leading" && alive.has(entry.pod)) followed.set(entry.pod, entry.leader);
  }
  return [...alive].every((podId) => followed.get(podId) === oldest?.["pod_id"]);
}

function tally(ledger: readonly Entry[]) {
  const outcomes = {
    lost: 0,
    retry: 0,
    failed: 0,
    cancelled: 0,
    released: 0,
    recovered: 0,
    starts: 0,
  };
  for (const entry of ledger) {
    if (entry.event === "recovered") outcomes.recovered += entry.tasks;
    if (entry.event === "start") outcomes.starts++;
    if (entry.event === "ended") outcomes[entry.outcome as keyof typeof outcomes]++;
  }
  return outcomes;
}
