import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { connect, startPod, task } from "../../src/index.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { serve } from "../../src/server/serve.ts";
import { playRole } from "../roles.ts";
import { workName } from "../tasks/work.ts";
import { countUsage, type Usage } from "../usage.ts";

/** A server whose pod runs a backlog of no-op tasks once it is told to. */
export type ServedDrainerParams = {
  readonly store: string;
  readonly tasks: number;
  readonly slots: number;
  /** Gives up counting after this long, and tells how far it came. */
  readonly cutMs: number;
};

export type ServedDrain = Usage & { readonly tasks: number };

playRole(
  async ({ store, tasks, slots, cutMs }: ServedDrainerParams, bench): Promise<ServedDrain> => {
    const flotilla = connect(store);
    const metrics = createMetrics();
    const server = await serve({
      flotilla,
      metrics,
      isStopping: () => false,
      clock: systemClock,
      log: silentLogger,
      server: { host: "127.0.0.1", port: 0, dashboard: false },
    });
    bench.tell("listens", server.url);
    await bench.heard("begin");
    let finished = 0;
    let used: (() => Usage) | undefined;
    let enough = () => {};
    const done = new Promise<void>((resolve) => (enough = resolve));
    const noop = task(workName, {}, () => {
      // The first handler that starts starts the clock.
      if (used) return;
      used = countUsage();
      setTimeout(enough, cutMs).unref();
    });
    await using pod = await startPod(
      { store, use: [noop], slots, dataDir: false, log: silentLogger },
      {
        onEvent(event) {
          metrics.observe(event);
          if (event.type !== "ended" || event.outcome !== "completed") return;
          if (++finished === tasks) enough();
        },
      },
    );
    setTimeout(() => used ?? enough(), cutMs).unref();
    await done;
    if (!used) throw new Error(`no task of ${store} was started within ${cutMs} ms`);
    const drained = { ...used(), tasks: finished };
    await pod.stop();
    await server.close();
    await flotilla.close();
    return drained;
  },
  { ends: "at once" },
);
