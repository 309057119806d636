import { actAs } from "../../src/audit/actor.ts";
import { silentLogger } from "../../src/base/log.ts";
import { connect } from "../../src/index.ts";
import { runWithOrigin } from "../../src/pods/unhandled-errors.ts";
import { openStore } from "../../src/store/open.ts";
import { sql, table } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";

/** A process that fills a store, or acts on what is there. It returns how long the acts took. */
export type OperatorParams = {
  readonly url: string;
  readonly work: "fill" | "fill bulk" | "fill acts" | "bulk" | "acts";
  readonly tasks: number;
  /** Without entries: as a handler acts, whose acts leave none. */
  readonly isPlain: boolean;
};

const name = "report";
const atOnce = 64;
const bulkTasks = 1_000;
const idOf = (at: number) => `task-${String(at).padStart(9, "0")}`;

playRole(async ({ url, work, tasks, isPlain }: OperatorParams): Promise<number> => {
  if (work.startsWith("fill")) {
    await fill(url, tasks, work === "fill bulk" ? "failed" : "pending");
    return 0;
  }
  await using flotilla = connect(url);
  await flotilla.ping();
  const act = <Value>(run: () => Promise<Value>): Promise<Value> =>
    isPlain
      ? runWithOrigin({ by: "handler", from: handler, fields: {}, log: silentLogger }, run)
      : actAs({ kind: "key", keyName: "web", role: "admin", address: "10.0.0.1" }, run);
  const startedMs = performance.now();
  if (work === "bulk") {
    const { discarded } = await act(() => flotilla.deadLetters.discard({ name }));
    if (discarded !== tasks) throw new Error(`${discarded} of ${tasks} were discarded`);
    return performance.now() - startedMs;
  }
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < tasks) {
      const taskId = idOf(next++);
      await act(() => flotilla.tasks.cancel(taskId));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return performance.now() - startedMs;
});

const handler = { id: "task-1", what: "task" } as const;

/** Tasks with a kilobyte of input each, some of which looks like secrets. */
async function fill(url: string, tasks: number, status: "failed" | "pending"): Promise<void> {
  await using flotilla = connect(url);
  await flotilla.ping();
  const store = await openStore(url);
  const payload = JSON.stringify({
    url: "https://api.example/v1/items?page=3",
    apiKey: "not-to-be-shown",
    note: "x".repeat(700),
    items: Array.from({ length: 10 }, (_, at) => ({
      id: at,
      price: at * 1.5,
      label: `item ${at}`,
    })),
  });
  const error = JSON.stringify({ code: "handler_failed", message: "no such user 7" });
  for (let from = 0; from < tasks; from += bulkTasks) {
    const inserts = Array.from({ length: Math.min(bulkTasks, tasks - from) }, (_, at) => {
      const taskId = idOf(from + at);
      return sql`insert into ${table("task")} (task_id, name, payload, status, error)
        values (${taskId}, ${name}, ${payload}, ${status}, ${status === "failed" ? error : null})`;
    });
    await store.write(inserts);
  }
  await store.close();
}
