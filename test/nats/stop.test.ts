import { expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { startNatsCluster } from "./server.ts";

test("a pod stops though two of three servers are gone and it isn't known what became of a message", async () => {
  const cluster = await startNatsCluster({ maxFileStore: "64GB" });
  const place = await temporaryDatabase();
  const left: string[] = [];
  const pod = await startPod({
    store: place.url,
    log: { ...silentLogger, warn: (_: unknown, message: string) => left.push(message) },
    dataDir: false,
    shutdownMs: 1_000,
    nats: {
      servers: cluster.urls,
      use: "all",
      monitor: cluster.servers.map(({ monitorUrl }) => monitorUrl),
      namespace: "stop",
    },
  });
  try {
    const session = await pod.sessions.create([], { user: "ada" });
    await session.send("stored");
    await Promise.all(cluster.servers.slice(1).map((server) => server.kill()));
    const sent = session.send("in doubt").catch((error: unknown) => error);
    await expect.poll(() => left).toContain("session log commit failed, retrying");
    await pod.stop();
    expect(left).toContain("session log left without an answer");
    expect(await sent).toMatchObject({ code: "unknown_outcome" });
  } finally {
    await pod.stop();
    await place.remove();
    await cluster.stop();
  }
});
