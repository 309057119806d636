import { inject, onTestFinished } from "vitest";
import { connect, type Flotilla } from "flotilla";
import { type Fleet, openFleet, type StartOptions } from "../fleet.ts";
import type { PodProcess } from "../pod-handle.ts";
import { postgresStore } from "../stores.ts";
import { type ChaosProxy, startChaosProxy } from "./chaos-proxy.ts";
import { type Timeouts, withTimeouts } from "./harness-store.ts";

export type Scene = {
  readonly fleet: Fleet;
  readonly proxy: ChaosProxy;
  /** A producer whose way to the server is the proxy. */
  readonly producer: Flotilla;
  /** Starts a pod whose way to the server is the proxy. */
  start(options?: StartOptions): Promise<PodProcess>;
  close(): Promise<void>;
};

export type SceneOptions = {
  timeouts?: Timeouts;
  /** A superuser's URL. Default: this run's own server. */
  server?: string;
};

/** A fleet on Postgres, and a bad network for pods that are to suffer from it. */
export async function openScene({ timeouts = {}, server }: SceneOptions = {}): Promise<Scene> {
  const fleet = await openFleet(() => postgresStore(server ?? inject("postgresUrl")));
  const proxy = await startChaosProxy(fleet.store);
  const store = withTimeouts(proxy.through(fleet.store), timeouts);
  const producer = connect(store, { migrate: "check" });
  return {
    fleet,
    proxy,
    producer,
    start: (options) => fleet.start({ store, ...options }),
    async close() {
      // Callers that still wait for an answer are told that there will be none.
      await proxy.close();
      await producer.close();
      await fleet.close();
    },
  };
}

/** The same, gone when the test is over. */
export async function createScene(options?: SceneOptions): Promise<Scene> {
  const harness = await openScene(options);
  onTestFinished(harness.close);
  return harness;
}

export async function openTasks(fleet: Fleet): Promise<number> {
  const [row] = await fleet.sql(
    "select count(*) as tasks from flotilla_task where status in ('pending', 'claimed')",
  );
  return row!["tasks"];
}
