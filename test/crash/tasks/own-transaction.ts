import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { task, type TaskHandler } from "flotilla";
import type { Surroundings } from "../handlers.ts";
import { pauseFor } from "../until.ts";

/** The table that the handler writes to, beside ours: one row for each time that it had its effect. */
export const effectsTable =
  "create table effects (task_id text not null, pod text not null, attempt integer, token bigint)";

/** By which the sessions of handlers are told from those of pods. */
export const handlerSession = "handler";

/** How a first attempt goes wrong, by the handler's own doing. */
export type Mishap =
  | "rolls back and returns"
  | "rolls back and throws"
  | "throws after the commit"
  | "returns before it commits";

export type Effect = {
  /** How long it takes before its transaction, and twice within. */
  readonly ms: number;
  readonly withinMs: number;
  readonly mishap?: Mishap;
  /** Where the task's first holder stops for good. */
  readonly stopsWhen?: "written" | "committed";
  /** The gate that its first holder waits at before its transaction, whatever its signal says. */
  readonly gate?: string;
};

/** Has its effect in a transaction on a connection of its own, and completes its task in there. */
export function handlerWithin(
  store: string,
  { podId, say, opened }: Pick<Surroundings, "podId" | "say" | "opened">,
): TaskHandler {
  const name = "within";
  return task(name, { backoff: { baseMs: 20, maxMs: 200, jitter: 0 } }, async (context) => {
    const { taskId, token, attempt, complete } = context;
    const { ms, withinMs, mishap, stopsWhen, gate } = context.input as Effect;
    const goesWrong = (how: Mishap) => attempt === 1 && mishap === how;
    const run = { task: taskId, name, token, attempt };
    const reach = async (event: "written" | "committed") => {
      say({ event, ...run });
      if (stopsWhen === event && token === 1) await new Promise(() => {});
    };
    say({ event: "start", ...run });
    await pauseFor(ms);
    if (gate !== undefined && token === 1) await opened(gate, new AbortController().signal);
    const transaction = await begin(store);
    const commit = async () => {
      await pauseFor(withinMs);
      await transaction.run("commit");
      await reach("committed");
    };
    let ends: Promise<void> | undefined;
    let ok = false;
    try {
      await transaction.run(
        `insert into effects values ('${taskId}', '${await podId()}', ${attempt}, ${token})`,
      );
      await pauseFor(withinMs);
      const result = await complete(transaction.handle, { pod: await podId(), token });
      await reach("written");
      if (goesWrong("rolls back and throws")) throw new Error("rolled back, as ordered");
      if (goesWrong("returns before it commits")) ends = commit();
      else if (!goesWrong("rolls back and returns")) await commit();
      if (goesWrong("throws after the commit")) throw new Error("thrown, as ordered");
      ok = true;
      return result;
    } finally {
      say({ event: "end", ok, ...run });
      const closed = (ends ?? Promise.resolve()).catch(() => {}).then(transaction.close);
      if (!ends) await closed;
    }
  });
}

type Transaction = {
  readonly handle: unknown;
  run(text: string): Promise<unknown>;
  /** Closes its connection, which undoes what wasn't committed. */
  close(): Promise<unknown>;
};

async function begin(store: string): Promise<Transaction> {
  return store.startsWith("sqlite:") ? beginOnSqlite(store) : beginOnPostgres(store);
}

async function beginOnPostgres(url: string): Promise<Transaction> {
  const client = new pg.Client({ connectionString: url, application_name: handlerSession });
  // A session that is ended from outside emits an error here too, where no caller would catch it.
  client.on("error", () => {});
  await client.connect();
  await client.query("begin");
  return {
    handle: client,
    run: (text) => client.query(text),
    close: () => client.end().catch(() => {}),
  };
}

let turn = Promise.resolve();

/** One at a time in this process: a second one would wait for the lock and block the first. */
async function beginOnSqlite(url: string): Promise<Transaction> {
  const before = turn;
  let done = () => {};
  turn = new Promise((resolve) => (done = resolve));
  await before;
  const db = new DatabaseSync(url.slice("sqlite:".length), { timeout: 20_000 });
  const close = async () => {
    db.close();
    done();
  };
  try {
    db.exec("begin immediate");
  } catch (error) {
    await close();
    throw error;
  }
  return { handle: db, run: async (text) => db.exec(text), close };
}
