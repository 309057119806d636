import { between, type Random } from "../../src/base/random.ts";
import type { Fleet, StartOptions } from "./fleet.ts";
import { monotonicMs } from "./ledger.ts";
import type { PodProcess } from "./pod-handle.ts";
import { pauseFor, until } from "./until.ts";

/** What can be done to one pod. */
export const podFaults = [
  "kill",
  "kill the leader",
  "pause shortly",
  "pause past the limit",
  "pause the leader past the limit",
  "terminate",
] as const;
export type PodFault = (typeof podFaults)[number];

/** What can be done to all at once. Each is over, and undone, when its promise resolves. */
export type CommonFaults = Readonly<Record<string, (random: Random) => Promise<void>>>;

/** How the pod at each place is started, whenever it is. */
export type Places = StartOptions[];

/** The task that only pods of a new deploy know. */
export const newName = "fresh";

export type Torment = {
  readonly fleet: Fleet;
  readonly pods: PodProcess[];
  readonly places: Places;
  readonly common: CommonFaults;
  /** A rolling restart has begun, after which half of the places know this task too. */
  readonly onDeploy: () => void;
  readonly random: Random;
  readonly forMs: number;
  readonly deadAfterMs: number;
  readonly say?: (line: string) => void;
};

/**
 * Does harm to a fleet by a seed: each kind once in a drawn order, then any, until the time is over.
 * It leaves as many pods as it found, all running.
 */
export async function torment(parts: Torment): Promise<string[]> {
  const { fleet, pods, places, random, forMs, deadAfterMs, say = () => {} } = parts;
  const done: string[] = [];
  const mending = new Map<number, Promise<void>>();
  const untilMs = monotonicMs() + forMs;
  const failures: unknown[] = [];
  let shared: Promise<void> | undefined;

  const harm = async (kind: PodFault, at: number): Promise<void> => {
    const pod = pods[at]!;
    switch (kind) {
      case "pause shortly":
        await pod.pause();
        await pauseFor(between(random, 20, deadAfterMs / 2));
        return pod.resume();
      case "pause past the limit":
      case "pause the leader past the limit":
        await pauseAtWork(fleet, pod);
        // On a busy machine the others need longer to be sure, so what counts is that they are.
        await until("its tasks were given to others", async () => {
          return !pod.alive || (await claimsOf(fleet, pod)) === 0;
        });
        await pauseFor(between(random, 100, 2 * deadAfterMs));
        return pod.resume();
      case "kill":
      case "kill the leader":
        await pod.kill();
        break;
      case "terminate":
        await pod.terminate();
        break;
    }
    await pauseFor(between(random, 0, deadAfterMs));
    pods[at] = await restarted(fleet, places[at]!);
  };

  /** Harms one pod, as soon as no more than one other suffers and it doesn't itself. */
  const begin = async (kind: PodFault, at: number): Promise<void> => {
    while (mending.has(at) || mending.size >= 2) await Promise.race(mending.values());
    say(`${kind}: ${pods[at]!.podId}`);
    const mended = harm(kind, at)
      .catch((error: unknown) => void failures.push(error))
      .finally(() => mending.delete(at));
    mending.set(at, mended);
  };

  const deploy = async (): Promise<void> => {
    parts.onDeploy();
    for (let at = 0; at < pods.length / 2; at++) {
      const { names = [] } = places[at]!;
      places[at] = { ...places[at], names: [...new Set([...names, newName])] };
      await begin("terminate", at);
    }
  };

  const common: CommonFaults = { ...parts.common, deploy };
  const kinds = [...podFaults, ...Object.keys(common)];
  const first = shuffled(kinds, random);
  // While there are tasks yet to come that only the new pods know.
  const early = between(random, 0, Math.floor(first.length / 3));
  first.splice(early, 0, ...first.splice(first.indexOf("deploy"), 1));
  for (let round = 0; monotonicMs() < untilMs || round < first.length; round++) {
    const kind = first[round] ?? kinds[between(random, 0, kinds.length - 1)]!;
    if (isPodFault(kind)) {
      const leader = kind.includes("the leader") ? await leaderAt(fleet, pods) : undefined;
      const at = leader ?? between(random, 0, pods.length - 1);
      await begin(kind, at);
    } else {
      await shared;
      say(kind);
      shared = common[kind]!(random).catch((error: unknown) => void failures.push(error));
    }
    done.push(kind);
    await pauseFor(between(random, 100, 600));
  }
  await shared;
  await Promise.all(mending.values());
  if (failures.length > 0) throw failures[0];
  // One that ended by itself is a violation; the others' tasks still have to end.
  for (const [at, pod] of pods.entries()) {
    if (!pod.alive) pods[at] = await restarted(fleet, places[at]!);
  }
  return done;
}

function isPodFault(kind: string): kind is PodFault {
  return (podFaults as readonly string[]).includes(kind);
}

/** Does what a supervisor does: a pod that can't start because the store is away is started again. */
export async function restarted(fleet: Fleet, place: StartOptions): Promise<PodProcess> {
  for (let tries = 1; ; tries++) {
    try {
      return await fleet.start(place);
    } catch (error) {
      if (tries === 10) throw error;
      await pauseFor(100);
    }
  }
}

/** Pauses a pod while it has tasks and the others can still write. */
async function pauseAtWork(fleet: Fleet, pod: PodProcess): Promise<void> {
  while (pod.alive) {
    await until("it has tasks", async () => !pod.alive || (await claimsOf(fleet, pod)) > 0);
    await pod.pauseOutsideWrites();
    if ((await claimsOf(fleet, pod)) > 0) return;
    pod.resume();
  }
}

async function claimsOf(fleet: Fleet, { podId }: PodProcess): Promise<number> {
  const [row] = await fleet.sql(
    "select count(*) as tasks from flotilla_task where status = 'claimed' and claimed_by = ?",
    podId,
  );
  return row!["tasks"];
}

async function leaderAt(fleet: Fleet, pods: readonly PodProcess[]): Promise<number | undefined> {
  const [oldest] = await fleet.sql(
    "select pod_id from flotilla_pod where status = 'up' order by started_at, pod_id",
  );
  const at = pods.findIndex(({ podId }) => podId === oldest?.["pod_id"]);
  return at < 0 ? undefined : at;
}

function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const left = [...items];
  return items.map(() => left.splice(between(random, 0, left.length - 1), 1)[0]!);
}
