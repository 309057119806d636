import { onTestFinished, test } from "vitest";
import { createSessionFleet } from "../crash/sessions/harness.ts";
import { expectHeardOnce, missedWhenKilled } from "../crash/sessions/steered.ts";
import { startNatsCluster } from "./server.ts";
import { makeSession } from "./talking.ts";

test("W11: with logs on NATS, a message during an answer is heard once by it, at the same step, though two pods that make it are killed", async () => {
  const cluster = await startNatsCluster();
  onTestFinished(() => cluster.stop());
  const fleet = await createSessionFleet({ on: "postgres" });
  const monitor = cluster.servers.map(({ monitorUrl }) => monitorUrl);
  const nats = { servers: cluster.urls, namespace: "steered", use: "all", monitor };
  await expectHeardOnce({
    fleet,
    start: () =>
      fleet.startServer({ config: { nats, sessions: { logs: 4 }, ...missedWhenKilled } }),
    // By a pod: a program beside them doesn't know of their logs.
    async open(sessionId) {
      const { url } = fleet.servers[0]!;
      await makeSession(url, { sessionId, agents: ["steered"], users: ["ada"] });
    },
  });
}, 240_000);
