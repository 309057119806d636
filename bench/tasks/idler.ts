import { setTimeout as wait } from "node:timers/promises";
import { silentLogger } from "../../src/base/log.ts";
import { agent, startPod, task } from "../../src/index.ts";
import { playRole } from "../roles.ts";
import { countUsage } from "../usage.ts";

/** A pod that has nothing to do, and says what that costs. */
export type IdlerParams = {
  readonly store: string;
  readonly sessions: boolean;
  readonly forMs: number;
};

export type Idled = { readonly cpuShare: number };

// What follows a start (first claims, first beats, a leader) is over by then.
const settleMs = 5_000;

playRole(async ({ store, sessions, forMs }: IdlerParams, bench) => {
  const noop = task("idle", {}, () => null);
  const echo = agent("echo", () => "hello");
  await using pod = await startPod({
    store,
    use: sessions ? [noop, echo] : [noop],
    log: silentLogger,
  });
  if (sessions) await pod.sessions.create(echo);
  await wait(settleMs);
  bench.tell("settled", pod.podId);
  await bench.heard("go");
  const used = countUsage();
  await wait(forMs);
  const { cpuMs, wallMs } = used();
  // What follows is the pod's stop.
  bench.tell("idled", null);
  await bench.heard("stop");
  return { cpuShare: cpuMs / wallMs } satisfies Idled;
});
