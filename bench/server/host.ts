import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { connect } from "../../src/index.ts";
import { verbs } from "../../src/protocol/verbs.ts";
import { createRedactor } from "../../src/redaction/redactor.ts";
import { createCallerLimits } from "../../src/server/admission/caller-limits.ts";
import { createApp } from "../../src/server/app.ts";
import { type Authenticator, createAuthenticator } from "../../src/server/auth/authenticate.ts";
import type { Caller } from "../../src/server/auth/caller.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { createSerializer, type Serializer } from "../../src/server/serializer.ts";
import { listen } from "../../src/server/serve.ts";
import { playRole } from "../roles.ts";
import { countUsage } from "../usage.ts";

/** A server, with everything that keeps callers apart, or with none of it. */
export type HostParams = { readonly store: string; readonly isPlain: boolean };

export type Served = {
  readonly url: string;
  /** What the caller sends in both cases. */
  readonly key: string;
  readonly taskIds: readonly string[];
};

const otherKeys = 50;
const rate = 1_000_000;

playRole(
  async ({ store, isPlain }: HostParams, bench) => {
    const flotilla = connect(store);
    // A store with some keys, of which callers use one.
    for (let at = 0; at < otherKeys; at++)
      await flotilla.keys.create({ name: `other-${at}`, role: "viewer" });
    const { text: key } = await flotilla.keys.create({
      name: "caller",
      role: "viewer",
      payloads: true,
    });
    const clock = systemClock;
    const keyed = createAuthenticator(
      { apiKeys: [], keys: "store" },
      { clock, random: systemRandom, credentials: flotilla.credentials },
    );
    await keyed.ready;
    const limits = createCallerLimits(clock, {
      requestsPerSecond: { user: rate, key: rate, address: rate },
    });
    const guarded = {
      authenticator: keyed,
      serializer: createSerializer({ redactor: createRedactor(["input.card", /\bcus_\w{8,32}/]) }),
    };
    const app = createApp({
      flotilla,
      apiKeys: [],
      metrics: createMetrics(),
      isStopping: () => false,
      limits,
      clock,
      log: silentLogger,
      ...(isPlain ? plain(keyed) : guarded),
    });
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const { tasks } = await flotilla.tasks.list({ limit: 1_000 });
    const taskIds = tasks.map(({ taskId }) => taskId);
    bench.tell("listens", { url: server.url, key, taskIds } satisfies Served);
    // It ends with its process, however often it is asked to count before.
    void (async () => {
      for (;;) {
        await bench.heard("count");
        const used = countUsage();
        await bench.heard("counted");
        bench.tell("used", used().cpuMs);
      }
    })();
    await bench.heard("stop");
    await server.close();
    await flotilla.close();
  },
  { ends: "at once" },
);

/** Takes every caller for an administrator without a look, and shows everything as it is. */
function plain(keyed: Authenticator): { authenticator: Authenticator; serializer: Serializer } {
  const anyCaller: Caller = {
    kind: "server",
    tenant: "default",
    allTenants: true,
    keyId: "0",
    verbs: new Set(verbs),
  };
  return {
    authenticator: { ...keyed, caller: () => Promise.resolve(anyCaller) },
    serializer: { shown: (_, value) => value, feed: () => (event) => event },
  };
}
