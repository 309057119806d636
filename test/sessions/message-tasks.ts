import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type pg from "pg";
import { expect, onTestFinished } from "vitest";
import { type Config, startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { built } from "../built.ts";
import { until } from "../crash/until.ts";
import type { FromSender, SenderGiven, ToSender } from "./sender-process.ts";

const program = built.program(fileURLToPath(new URL("sender-process.ts", import.meta.url)));

/** A pod in a process of its own that sends messages with tasks, until it is killed. */
export async function startSender(given: SenderGiven) {
  const child = spawn(process.execPath, [program, JSON.stringify(given)], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  /** The ids of tasks, by the message that was acknowledged with them. */
  const acked = new Map<string, readonly string[]>();
  child.on("message", (told: FromSender) => {
    if ("acked" in told) acked.set(told.acked, told.taskIds);
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const isReady = once(child, "message");
  await Promise.race([
    isReady,
    ended.then(() => Promise.reject(new Error("the sender has ended"))),
  ]);
  return {
    acked,
    send(id: string): void {
      child.send({ send: id } satisfies ToSender, () => {});
    },
    async kill(): Promise<void> {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Waits until a statement of some process waits for a lock. Returns the id of its server process. */
export async function waitsFor(client: pg.Client, statement: string): Promise<number> {
  const waiting = `
    select pid from pg_stat_activity
    where wait_event_type = 'Lock' and position($1 in query) > 0`;
  return until(`"${statement}" waits`, async () => {
    // A transaction sees the same statements until then.
    await client.query("select pg_stat_clear_snapshot()");
    const { rows } = await client.query<{ pid: number }>(waiting, [statement]);
    return rows[0]?.pid;
  });
}

/**
 * Runs what is left on another pod, and checks that each message is there with its tasks, and no task
 * without its message. Returns which messages there are.
 */
export async function expectWhole(
  { store, nats, session }: SenderGiven,
  acked: ReadonlyMap<string, readonly string[]>,
): Promise<ReadonlySet<string>> {
  const ran: string[] = [];
  type Note = { of: string; nth: number };
  const note = task("note", {}, async ({ input }: { input: Note }) => {
    ran.push(`${input.of} ${input.nth}`);
  });
  const config: Config = { store, use: [note], dataDir: false, log: silentLogger };
  const pod = await startPod({
    ...config,
    heartbeatMs: 200,
    deadAfterMs: 2_000,
    ...(nats && { nats }),
  });
  try {
    const { entries } = await pod.sessions.open(session, {}).entries({ limit: 1_000 });
    const tasksOf = new Map(entries.map(({ messageId, tasks = [] }) => [messageId, tasks]));
    for (const [id, taskIds] of acked) expect(tasksOf.get(id)).toEqual(taskIds);
    for (const [id, taskIds] of tasksOf) {
      expect(taskIds).toHaveLength(2);
      for (const taskId of taskIds) await pod.waitFor({ taskId }, { timeoutMs: 60_000 });
      expect(ran.filter((each) => each.startsWith(`${id} `))).toEqual([`${id} 1`, `${id} 2`]);
    }
    const { tasks } = await pod.tasks.list({ name: "note", limit: 1_000 });
    const known = new Set([...tasksOf.values()].flat());
    expect(tasks.filter(({ taskId }) => !known.has(taskId))).toEqual([]);
    expect(tasks).toHaveLength(known.size);
    return new Set(tasksOf.keys());
  } finally {
    await pod.stop();
  }
}
