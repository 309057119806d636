import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { connect, startPod } from "../../src/index.ts";
import { machinesOf } from "../../src/runtime/flows.ts";
import { handlersByName } from "../../src/runtime/handlers.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { serve } from "../../src/server/serve.ts";
import { playRole } from "../roles.ts";
import { benchFleet, tickName } from "./fleet.ts";

/** A pod and its server in one process, as `flotilla dev` runs them. */
export type HostParams = {
  readonly store: string;
  /** Where the dashboard is built. */
  readonly dashboardFolder: string;
  /** How many tasks a second it stores and runs from "busy" on. */
  readonly tasksPerSecond: number;
};

const unlimited = 1_000_000;
const storesEveryMs = 50;

playRole(
  async ({ store, dashboardFolder, tasksPerSecond }: HostParams, bench) => {
    const fleet = benchFleet();
    const pod = await startPod({ store, ...fleet, log: silentLogger });
    const flotilla = connect(store);
    const isLeader = () => pod.leader === pod.podId;
    const server = await serve({
      flotilla,
      sessions: pod.sessionService!,
      deadLetters: () => (isLeader() ? pod.deadLetters : flotilla.deadLetters),
      contracts: handlersByName(fleet.use!),
      machines: machinesOf(fleet.use!),
      metrics: createMetrics({ pod: () => pod }),
      isStopping: () => false,
      clock: systemClock,
      log: silentLogger,
      dashboardFolder,
      server: {
        host: "127.0.0.1",
        port: 0,
        requestsPerSecond: { user: unlimited, key: unlimited, address: unlimited },
      },
    });
    while (!isLeader()) await new Promise((resolve) => setTimeout(resolve, 20));
    bench.tell("listens", server.url);
    let busy: NodeJS.Timeout | undefined;
    void bench.heard("busy").then(() => {
      const each = Array.from(
        { length: Math.round((tasksPerSecond * storesEveryMs) / 1_000) },
        (_, at) => at,
      );
      busy = setInterval(() => void pod.enqueueMany(tickName, each as never), storesEveryMs);
    });
    await bench.heard("stop");
    clearInterval(busy);
    await server.close();
    await flotilla.close();
    await pod.stop();
  },
  { ends: "at once" },
);
