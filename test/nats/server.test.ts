import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { startNats, startNatsCluster } from "./server.ts";

const told = async (url: string) => (await (await fetch(url)).json()) as Record<string, unknown>;

test("a NATS server is started on free ports, killed, started again, and leaves nothing behind", async () => {
  const server = await startNats({ config: "max_connections: 7" });
  const { pid } = server;
  expect(await told(`${server.monitorUrl}/varz`)).toMatchObject({
    server_name: "n1",
    port: server.port,
    max_payload: 8 * 1024 * 1024,
    max_connections: 7,
  });
  await server.kill();
  await expect(told(`${server.monitorUrl}/varz`)).rejects.toThrow(/fetch failed/);
  await server.start();
  expect(server.pid).not.toBe(pid);
  expect(server.log()).toContain("Server is ready");
  await server.stop();
  expect(existsSync(server.folder)).toBe(false);
});

test("a NATS server that can't start says why", async () => {
  await expect(startNats({ config: "no_such_setting: 1" })).rejects.toThrow(/has ended/);
});

test("three NATS servers are one cluster that flushes before it acknowledges", async () => {
  const cluster = await startNatsCluster();
  try {
    expect(cluster.urls).toHaveLength(3);
    const varz = () => Promise.all(cluster.servers.map((each) => told(`${each.monitorUrl}/varz`)));
    // Each server counts the others once it has heard of them.
    const jetstream = { config: { sync_always: true }, meta: { cluster_size: 3 } };
    await expect
      .poll(varz)
      .toMatchObject(["n1", "n2", "n3"].map((name) => ({ server_name: name, jetstream })));
  } finally {
    await cluster.stop();
  }
});
