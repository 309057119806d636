import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { silentLogger } from "../../src/base/log.ts";
import { connect, startPod, task, type TaskShortcuts } from "../../src/index.ts";
import { playRole, sharedMs } from "../roles.ts";

/**
 * Two processes of one measurement, or one that is both: one enqueues now and then, or inserts rows whose
 * trigger does, and the other notes when each task started.
 */
export type WakerParams = {
  readonly part: "producer" | "trigger" | "pod" | "both";
  readonly store: string;
  readonly tasks: number;
};

const name = "wake";
const everyMs = 20;
// Long enough for a pod to find nothing and to be idle again.
const insertEveryMs = 100;
// The first few find cold code on both sides.
const warmTasks = 25;

playRole(async ({ part, store, tasks }: WakerParams, bench) => {
  if (part === "producer") {
    await using flotilla = connect(store);
    await flotilla.tasks.stats();
    // Awaited here: the connection is closed when this block ends.
    await produce(flotilla, tasks);
    return;
  }
  if (part === "trigger") {
    await insert(store, tasks);
    return;
  }
  const latenciesMs: number[] = [];
  let enough = () => {};
  const done = new Promise<void>((resolve) => {
    enough = resolve;
  });
  const note = task<{ sentMs: number }>(name, {}, ({ input }) => {
    if (latenciesMs.push(sharedMs() - input.sentMs) === tasks + warmTasks) enough();
  });
  await using pod = await startPod({ store, use: [note], log: silentLogger });
  bench.tell("ready", pod.podId);
  if (part === "both") await produce(pod, tasks);
  await done;
  return latenciesMs.slice(warmTasks);
});

async function produce(flotilla: TaskShortcuts, tasks: number): Promise<void> {
  for (let sent = 0; sent < tasks + warmTasks; sent++) {
    await wait(everyMs);
    await flotilla.enqueue(name, { sentMs: sharedMs() });
  }
}

/** As docs/postgres.md has it for tasks of triggers. */
const made = `
  create table signs (sent_ms double precision);
  create function wake_sign() returns trigger language plpgsql as $$
  begin
    insert into flotilla.task (name, payload)
    values ('${name}', json_build_object('sentMs', new.sent_ms)::text);
    perform flotilla.wake();
    return new;
  end $$;
  create trigger wake_sign after insert on signs for each row execute function wake_sign()`;

async function insert(store: string, tasks: number): Promise<void> {
  const client = new pg.Client(store);
  await client.connect();
  await client.query(made);
  for (let sent = 0; sent < tasks + warmTasks; sent++) {
    await wait(insertEveryMs);
    await client.query("insert into signs values ($1)", [sharedMs()]);
  }
  await client.end();
}
