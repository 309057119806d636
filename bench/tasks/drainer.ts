import { silentLogger } from "../../src/base/log.ts";
import { encryption, schedule, startPod, task } from "../../src/index.ts";
import { playRole } from "../roles.ts";
import { countUsage, rssMib, type Usage } from "../usage.ts";
import { benchKeys, payload, workName } from "./work.ts";

/** A pod that runs no-op tasks until so many are stored as finished. */
export type DrainerParams = {
  readonly store: string;
  readonly tasks: number;
  readonly slots: number;
  /** Gives up counting after this long, and tells how far it came. */
  readonly cutMs: number;
  /** Notes its memory each time so many more are finished. */
  readonly sampleEvery?: number;
  /** So many schedules beside, each of which makes one more such task every second. */
  readonly schedules?: number;
  /** Whether what is stored is encrypted. */
  readonly codec?: boolean | undefined;
  /** Whether the store records changes meanwhile. */
  readonly feed?: boolean | undefined;
};

export type Drained = Usage & { readonly tasks: number; readonly samplesMib: readonly number[] };

const startLimitMs = 30_000;

playRole(async (params: DrainerParams, bench) => {
  const { store, tasks, slots, cutMs, sampleEvery, schedules = 0, codec, feed } = params;
  let finished = 0;
  const clock: { used?: () => Usage } = {};
  let enough = () => {};
  const done = new Promise<void>((resolve) => {
    enough = resolve;
  });
  const samples: number[] = [];
  const noop = task(workName, {}, () => {
    // The first handler that starts starts the clock.
    if (!clock.used) {
      clock.used = countUsage();
      setTimeout(enough, cutMs).unref();
    }
  });
  await using pod = await startPod(
    {
      store,
      use: [noop],
      slots,
      ...(codec && { codec: encryption({ keys: benchKeys }) }),
      ...(feed && { changes: {} }),
      schedules: Array.from({ length: schedules }, (_, at) =>
        schedule(`beside-${at}`, { name: workName, input: payload(at), everyMs: 1_000 }),
      ),
      log: silentLogger,
    },
    {
      onEvent(event) {
        if (event.type !== "ended" || event.outcome !== "completed") return;
        finished++;
        if (sampleEvery !== undefined && finished % sampleEvery === 0) {
          samples.push(rssMib());
          bench.tell("finished", finished);
        }
        if (finished === tasks) enough();
      },
    },
  );
  setTimeout(() => clock.used ?? enough(), startLimitMs).unref();
  await done;
  const usage = clock.used?.();
  if (!usage) throw new Error(`no task of ${store} was started within ${startLimitMs} ms`);
  const counted = finished;
  await pod.stop();
  return { ...usage, tasks: counted, samplesMib: samples } satisfies Drained;
});
