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
import { untilAnswered } from "./retried.ts";
import { startNatsCluster } from "./server.ts";

const messages = 50;

type Flush = { readonly beganMs: number; readonly endedMs: number };

/**
 * The flushes of files that a trace tells of, by the clock of the machine. What other threads do meanwhile
 * cuts a call into two lines, each with its own time.
 */
function flushesOf(trace: string): Flush[] {
  const begun = new Map<string, number>();
  return trace.split("\n").flatMap((line) => {
    const [, thread, seconds, call] = /^(\d+) +(\d+\.\d+) (.*)/.exec(line) ?? [];
    if (!call || !/^(?:<\.\.\. )?f(?:data)?sync\b/.test(call)) return [];
    const atMs = Number(seconds) * 1_000;
    if (call.endsWith("<unfinished ...>")) {
      begun.set(thread!, atMs);
      return [];
    }
    const [, took] = / = 0 <(\d+\.\d+)>$/.exec(call) ?? [];
    if (took === undefined) return [];
    if (!call.startsWith("<")) return [{ beganMs: atMs, endedMs: atMs + Number(took) * 1_000 }];
    return [{ beganMs: begun.get(thread!)!, endedMs: atMs }];
  });
}

test("S6: each of fifty messages is flushed by two of three servers before it is acked", async () => {
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
    expect(await untilAnswered(() => engine.create(settings))).toEqual({ type: "made" });
    const traced = cluster.servers.map(({ name, pid }) => {
      const output = join(folder, name);
      const calls = "trace=fsync,fdatasync,sync_file_range";
      const args = ["-f", "-ttt", "-T", "-p", String(pid), "-e", calls, "-o", output];
      const child = spawn(part("strace"), args, { stdio: ["ignore", "ignore", "pipe"] });
      return { child, output, exited: once(child, "exit") };
    });
    // It says so once it is attached.
    await Promise.all(traced.map(({ child }) => once(child.stderr, "data")));
    const body = Buffer.from("{}");
    const message = { subject: "flotilla.flushes.log.0.one.r", headers: {}, body };
    const acks: { sentMs: number; ackedMs: number }[] = [];
    for (let lastSequence = 0; lastSequence < messages; lastSequence++) {
      const condition = { stream: settings.name, lastSequence, limitMs: 90_000 };
      const sentMs = Date.now();
      expect(await engine.publish(message, condition)).toMatchObject({ type: "acked" });
      // A clock that is read in whole milliseconds is late by up to one.
      acks.push({ sentMs, ackedMs: Date.now() + 1 });
    }
    const flushes: Flush[][] = [];
    for (const { child, output, exited } of traced) {
      child.kill("SIGINT");
      await exited;
      flushes.push(flushesOf(readFileSync(output, "utf8")));
    }
    const flushedBy = acks.map(
      ({ sentMs, ackedMs }) =>
        flushes.filter((each) =>
          each.some(({ beganMs, endedMs }) => beganMs >= sentMs && endedMs <= ackedMs),
        ).length,
    );
    expect(flushedBy.filter((servers) => servers < 2)).toEqual([]);
  } finally {
    await connection.close();
    await cluster.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
