import pg from "pg";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { updateIdle, beat } from "../../src/pods/sql.ts";
import { completedFinish } from "../../src/tasks/finish/outcome.ts";
import { claimTasks, type Frontier, frontierOf, readAhead } from "../../src/tasks/sql/claim.ts";
import { insertTasks } from "../../src/tasks/sql/enqueue.ts";
import { finishTasks } from "../../src/tasks/sql/finish.ts";
import { sendBatch } from "../../src/store/postgres/transaction.ts";
import { postgresDialect } from "../../src/store/postgres/dialect.ts";
import { plainNumbers, startUpConfig } from "../../src/store/postgres/driver.ts";
import { hintChannel, notifyQuery } from "../../src/store/postgres/notifications.ts";
import { type Query, render, type Statement } from "../../src/store/sql.ts";
import { workName } from "../tasks/work.ts";
import { system as flotilla } from "./flotilla.ts";
import type { Payload, Producer, Run, System } from "./system.ts";

/**
 * What bare `pg` can do: the very statements that our tasks are made of, on our tables, with the
 * same settings, prepared and sent as one batch as we do, a hundred tasks at a time, with nothing
 * around them.
 */
const batch = 100;
// More than this brings nothing on two cores.
const connections = 4;
const schema = "flotilla";

export const system: System = {
  ...flotilla,
  async producer(url) {
    const idle = await Promise.all(Array.from({ length: connections }, () => openBare(url)));
    const ids = uuidv7(systemClock, systemRandom);
    const rowOf = (payload: Payload) => ({
      taskId: ids.next(),
      tenant: "default",
      name: workName,
      payload: JSON.stringify(payload),
      priority: 0,
      delayMs: 0,
      maxAttempts: null,
      key: null,
      trace: null,
    });
    /** There are never more callers than connections. */
    const bulk: Producer["bulk"] = async (payloads) => {
      const bare = idle.pop()!;
      for (let from = 0; from < payloads.length; from += batch) {
        await bare.commit([insertTasks(payloads.slice(from, from + batch).map(rowOf))], "hint");
      }
      idle.push(bare);
    };
    return {
      one: (payload) => bulk([payload]),
      bulk,
      close: () => Promise.all(idle.map((bare) => bare.close())),
    };
  },
  async work(url, _settings, run) {
    const listener = new pg.Client(url);
    await listener.connect();
    const loops = await Promise.all(Array.from({ length: connections }, () => claimLoop(url, run)));
    listener.on("notification", () => loops[0]!.wake());
    await listener.query(`listen ${hintChannel(schema)}`);
    for (const loop of loops) loop.wake();
  },
};

/** One connection that claims and finishes until nothing is left, and again when it is woken. */
async function claimLoop(url: string, run: Run) {
  const bare = await openBare(url);
  const podId = `limit ${Math.random()}`;
  const names = [workName];
  // Whoever enqueues calls out only if somebody waits.
  await bare.commit([beat(podId, "{}", 0), updateIdle(podId, true)]);
  let call = 0;
  let from: Frontier | undefined;
  let busy = false;
  let again = false;

  /** A task is claimed for good before it runs, so claim and finish are two commits. */
  const turn = async (): Promise<boolean> => {
    const goesOn = from !== undefined;
    const claiming = claimTasks({
      podId,
      call: ++call,
      names,
      limit: batch,
      ...(from && { from }),
    });
    const [claimed] = await bare.commit([claiming, readAhead(names)]);
    const full = claimed!.length === batch;
    from = full ? frontierOf(claimed!) : undefined;
    // Something may have come before the place that this claim began at.
    if (claimed!.length === 0) return goesOn;
    const waits = claimed!.map((row) => run(JSON.parse(row["payload"]) as Payload));
    await Promise.all(waits.filter((wait) => wait !== undefined));
    const finishes = claimed!.map((row) =>
      completedFinish({ taskId: row["task_id"], token: Number(row["claim_token"]) }, "null"),
    );
    await bare.commit([finishTasks(finishes)]);
    return full || goesOn;
  };
  const wake = async (): Promise<void> => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do again = false;
    while ((await turn()) || again);
    busy = false;
  };
  return { wake: () => void wake() };
}

export type Bare = {
  commit(statements: readonly Statement[], hint?: "hint"): Promise<Record<string, any>[][]>;
  close(): Promise<void>;
};

export async function openBare(url: string): Promise<Bare> {
  const dialect = postgresDialect({ schema });
  const types = plainNumbers(pg);
  const client = new pg.Client({ connectionString: url, ...startUpConfig({}, "full") });
  await client.connect();
  const names = new Map<string, string>();
  const named = (query: Query) => {
    const name = names.get(query.text) ?? `limit_${names.size}`;
    names.set(query.text, name);
    return { ...query, name };
  };
  return {
    async commit(statements, hint) {
      const queries = statements.map((statement) => render(statement, dialect));
      if (hint) queries.push(notifyQuery(schema));
      const sent = { types, answerTimeoutMs: 60_000 };
      const outcome = await sendBatch(pg, client, queries.map(named), sent);
      if ("error" in outcome) throw outcome.error;
      return outcome.results.map((result) => result.rows);
    },
    close: () => client.end(),
  };
}
