import { setTimeout as wait } from "node:timers/promises";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { connect } from "../../src/runtime/connect.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { serve } from "../../src/server/serve.ts";
import { playRole, sharedMs } from "../roles.ts";
import { answerLooks, answerTidying } from "./looking.ts";

/** A pod with its server, as `flotilla serve` runs them, in a process of their own. */
export type ServerParams = {
  readonly store: string;
  /** How many logs it makes. Default: as many as by default. */
  readonly logs?: number | undefined;
  /** Servers of NATS between pods, or for their logs too. Default: all goes through the store. */
  readonly nats?: NatsConfig | undefined;
  /** How long the scripted agent talks, and how often a second. */
  readonly talk?: { readonly chunks: number; readonly perSecond: number };
};

export type Serving = { readonly url: string; readonly podId: string };

playRole(
  async ({ store, logs, nats, talk = { chunks: 1, perSecond: 1 } }: ServerParams, bench) => {
    const log = silentLogger;
    const { chunks, perSecond } = talk;
    // Every chunk says when it was made, on the clock that all processes of the machine share.
    const scripted = agent("scripted", async function* () {
      const startedMs = sharedMs();
      for (let at = 1; at <= chunks; at++) {
        yield `${sharedMs().toFixed(3)} `;
        await wait(Math.max(0, startedMs + (at * 1_000) / perSecond - sharedMs()));
      }
    });
    const sessions = logs === undefined ? {} : { logs };
    const between = nats === undefined ? {} : { nats };
    const use = [scripted];
    const pod = await startPod({ store, use, log, dataDir: false, sessions, ...between });
    const flotilla = connect(store, between);
    const server = await serve({
      flotilla,
      sessions: pod.sessionService!,
      metrics: createMetrics(),
      isStopping: () => false,
      clock: systemClock,
      log,
      // So many as a machine could have, and so much as no single client would send.
      server: {
        host: "127.0.0.1",
        port: 0,
        maxConnections: 20_000,
        maxAnonymous: 20_000,
        maxAnonymousPerAddress: 20_000,
        framesPerSecond: 1_000_000,
      },
    });
    void answerLooks(bench);
    void answerTidying(bench);
    bench.tell("ready", { url: server.url, podId: pod.podId } satisfies Serving);
    await bench.heard("stop");
    await server.close();
    await flotilla.close();
    await pod.stop();
  },
  { ends: "at once" },
);
