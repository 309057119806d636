import { between, type Random } from "../../src/base/random.ts";
import type { Fleet } from "./fleet.ts";
import type { PodProcess } from "./pod-handle.ts";
import { pauseFor, until } from "./until.ts";
import { monotonicMs } from "./ledger.ts";
import type { PodSpec } from "./pod-process.ts";

export const faultKinds = [
  "kill",
  "kill the leader",
  "pause shortly",
  "pause past the limit",
  "terminate",
] as const;
export type FaultKind = (typeof faultKinds)[number];

export type Places = Pick<PodSpec, "names" | "config">[];

/**
 * Does harm to a fleet by a seed: each kind once in a drawn order, then any, until the time is over.
 * It leaves as many pods as it found, all running.
 */
export async function torment(
  fleet: Fleet,
  pods: PodProcess[],
  places: Places,
  random: Random,
  { forMs, deadAfterMs }: { forMs: number; deadAfterMs: number },
): Promise<FaultKind[]> {
  const done: FaultKind[] = [];
  const mending = new Map<number, Promise<void>>();
  const untilMs = monotonicMs() + forMs;
  const first = shuffled(faultKinds, random);

  const harm = async (kind: FaultKind, at: number): Promise<void> => {
    const pod = pods[at]!;
    switch (kind) {
      case "pause shortly":
        await pod.pause();
        await pauseFor(between(random, 20, deadAfterMs / 2));
        return pod.resume();
      case "pause past the limit":
        await pauseAtWork(fleet, pod);
        // On a busy machine the others need longer to be sure, so what counts is that they are.
        await until(
          "its tasks were given to others",
          async () => (await claimsOf(fleet, pod)) === 0,
        );
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
    pods[at] = await fleet.start(places[at]);
  };

  for (let round = 0; monotonicMs() < untilMs || round < first.length; round++) {
    const kind = first[round] ?? faultKinds[between(random, 0, faultKinds.length - 1)]!;
    const wanted = kind === "kill the leader" ? await leaderAt(fleet, pods) : undefined;
    const at = wanted ?? between(random, 0, pods.length - 1);
    // Harm comes to two pods at most at a time, and never to one that still suffers.
    while (mending.has(at) || mending.size >= 2) await Promise.race(mending.values());
    done.push(kind);
    mending.set(
      at,
      harm(kind, at).finally(() => mending.delete(at)),
    );
    await pauseFor(between(random, 100, 600));
  }
  await Promise.all(mending.values());
  return done;
}

/** Pauses a pod while it has tasks and the others can still write. */
async function pauseAtWork(fleet: Fleet, pod: PodProcess): Promise<void> {
  for (;;) {
    await until("it has tasks", async () => (await claimsOf(fleet, pod)) > 0);
    await pod.pauseOutsideWrites();
    if ((await claimsOf(fleet, pod)) > 0) return;
    pod.resume();
  }
}

async function claimsOf(fleet: Fleet, { podId }: PodProcess): Promise<number> {
  const [row] = await fleet.sql(
    "select count(*) as tasks from flotilla_step_tracker where status = 'claimed' and claimed_by = ?",
    podId,
  );
  return row!["tasks"];
}

async function leaderAt(fleet: Fleet, pods: readonly PodProcess[]): Promise<number | undefined> {
  const [oldest] = await fleet.sql(
    "select pod_id from flotilla_pod_health where status = 'up' order by birth_timestamp, pod_id",
  );
  const at = pods.findIndex(({ podId }) => podId === oldest?.["pod_id"]);
  return at < 0 ? undefined : at;
}

function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const left = [...items];
  return items.map(() => left.splice(between(random, 0, left.length - 1), 1)[0]!);
}
