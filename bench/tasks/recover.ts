import { setTimeout as wait } from "node:timers/promises";
import { connect } from "../../src/index.ts";
import { type Measure, spreadOf } from "../report.ts";
import { type Role, sharedMs, startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { FreshStore } from "./store.ts";
import { percentile } from "../statistics.ts";

export type RecoverSizes = {
  readonly rounds: number;
  /** Rounds at once, each with a store of its own: the machine is idle for most of one. */
  readonly atOnce: number;
};

const name = "hold";
const heartbeatMs = 1_000;
/** The victim holds at least this many tasks when it is killed. */
const heldTasks = 10;

/** From the SIGKILL of a pod to each of its tasks running on another, with the default limits. */
export async function measureRecovery(
  { progress }: Pick<BenchOptions, "progress">,
  { rounds, atOnce }: RecoverSizes,
  freshStore: FreshStore,
): Promise<Measure[]> {
  const seconds: number[] = [];
  for (let first = 0; first < rounds; first += atOnce) {
    const some = Array.from({ length: Math.min(atOnce, rounds - first) }, (_, at) => first + at);
    const found = await Promise.all(
      some.map(async (round) =>
        oneKill({
          store: await freshStore(`recover-${round}`),
          victim: round % 2 === 0 ? "leader" : "follower",
          // Kills are spread over the time between two heartbeats, which is what chance would do.
          afterMs: (heartbeatMs * round) / rounds,
        }),
      ),
    );
    seconds.push(...found.flat());
    const slowest = found.map((each) => Math.max(...each).toFixed(1));
    progress(`recovery, kills ${first + 1} to ${first + some.length}: ${slowest.join(", ")} s`);
  }
  const value = percentile(seconds, 0.95);
  return [{ metric: "tasks.recover.p95_s", unit: "s", ...spreadOf(seconds), value, versus: {} }];
}

type Kill = {
  readonly store: string;
  readonly victim: "leader" | "follower";
  readonly afterMs: number;
};

async function oneKill({ store, victim, afterMs }: Kill): Promise<number[]> {
  await using flotilla = connect(store);
  const older = await startHolder(store);
  const younger = await startHolder(store);
  const [killed, survivor] = victim === "leader" ? [older, younger] : [younger, older];
  while (killed.tasks.size < heldTasks) {
    await flotilla.enqueue(name, null);
    await wait(2);
  }
  // Long enough for each to know of the other, so that nothing but the kill is new.
  await wait(1.2 * heartbeatMs + afterMs);
  killed.role.kill("SIGKILL");
  const killedMs = sharedMs();
  const orphans = [...killed.tasks.keys()];
  await survivor.until(() => orphans.every((taskId) => survivor.tasks.has(taskId)));
  survivor.role.send("stop");
  await survivor.role.result;
  return orphans.map((taskId) => (survivor.tasks.get(taskId)! - killedMs) / 1_000);
}

async function startHolder(store: string) {
  const role: Role = startRole(new URL("./holder.ts", import.meta.url), { store });
  const tasks = new Map<string, number>();
  let check = () => {};
  role.on("started", ({ taskId, atMs }: { taskId: string; atMs: number }) => {
    tasks.set(taskId, atMs);
    check();
  });
  await role.next("ready");
  const until = (met: () => boolean) =>
    Promise.race([
      role.result,
      new Promise<void>((resolve) => {
        check = () => {
          if (met()) resolve();
        };
        check();
      }),
    ]);
  return { role, tasks, until };
}
