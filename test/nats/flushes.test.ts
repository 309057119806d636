import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "@nats-io/transport-node";
import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import { logStream } from "../../src/sessions/log/jetstream/streams.ts";
import { part } from "../parts.ts";
import { startNatsCluster } from "./server.ts";

const messages = 50;

test("S6: each of fifty messages that are acked one after the other was flushed by two of three servers", async () => {
  const cluster = await startNatsCluster();
  const folder = mkdtempSync(join(tmpdir(), "flotilla-strace-"));
  const connection = await connect({ servers: [...cluster.urls] });
  try {
    const readJson = async () => ({});
    const engine = await connectStreams({ connection, clock: systemClock, readJson });
    const deployment = {
      namespace: "flushes",
      clusterId: "c1",
      replicas: 3,
      maxLogBytes: 16 * 1_024 * 1_024,
    } as const;
    const life = { logId: 0, incarnation: "one", firstSequence: 1 };
    const settings = logStream(deployment, life);
    expect(await engine.create(settings)).toEqual({ type: "made" });
    const traced = cluster.servers.map(({ name, pid }) => {
      const output = join(folder, name);
      const calls = "trace=fsync,fdatasync,sync_file_range";
      const args = ["-f", "-p", String(pid), "-e", calls, "-o", output];
      const child = spawn(part("strace"), args, { stdio: ["ignore", "ignore", "pipe"] });
      return { child, output, exited: once(child, "exit") };
    });
    // It says so once it is attached.
    await Promise.all(traced.map(({ child }) => once(child.stderr, "data")));
    const body = Buffer.from("{}");
    const message = { subject: "flotilla.flushes.log.0.one.r", headers: {}, body };
    for (let lastSequence = 0; lastSequence < messages; lastSequence++) {
      const condition = { stream: settings.name, lastSequence, limitMs: 10_000 };
      expect(await engine.publish(message, condition)).toMatchObject({ type: "acked" });
    }
    const flushes: number[] = [];
    for (const { child, output, exited } of traced) {
      child.kill("SIGINT");
      await exited;
      flushes.push(readFileSync(output, "utf8").split(/\bf(?:data)?sync\(/).length - 1);
    }
    const [, second] = flushes.toSorted((one, other) => other - one);
    expect(second).toBeGreaterThanOrEqual(messages);
  } finally {
    await connection.close();
    await cluster.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
