import { once } from "node:events";
import { silentLogger } from "../../src/base/log.ts";
import { startPod, task } from "../../src/index.ts";
import { playRole, sharedMs } from "../roles.ts";

/** A pod whose tasks never end by themselves, and which tells when each starts. */
export type HolderParams = { readonly store: string };

export const holdName = "hold";

playRole(async ({ store }: HolderParams, bench) => {
  const hold = task(holdName, {}, async ({ taskId, signal }) => {
    bench.tell("started", { taskId, atMs: sharedMs() });
    await once(signal, "abort");
  });
  await using pod = await startPod({
    store,
    use: [hold],
    slots: 1_000,
    shutdownMs: 0,
    log: silentLogger,
  });
  bench.tell("ready", pod.podId);
  await bench.heard("stop");
});
