import { expect } from "vitest";
import { openTasks } from "../../tasks/contract/harness.ts";
import { noteRecovery, type Orphan, recoverTasks } from "../../tasks/sql/recover.ts";
import { leaveRuns } from "../../tasks/sql/runs.ts";
import { wakeDependents } from "../../tasks/sql/dependencies.ts";
import type { TaskHandler } from "../../tasks/task.ts";
import type { Worker, WorkerOptions } from "../../tasks/run/worker.ts";
import { readPods, toPodSeen } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import type { CallerConnection, StoreKind } from "../../store/contract/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import type { Flow } from "../flow.ts";
import { createRuns } from "../runs.ts";
import { type EventRow, fold, type HistoryEvent, toHistory } from "../decide/run.ts";
import { flowHandler, isFlow } from "../drive/drive.ts";
import type { Doing, RunView } from "../rows.ts";
import { firstSignal } from "../sql.ts";
import { toColumns } from "../drive/load.ts";

const tasks = table("task");
const events = table("task_event");

/** Runs on an empty store, with time in hand. */
export type RunWorkersHarness = Awaited<ReturnType<typeof openRunWorkers>>;

/** Retries come at once, so that nothing but what a test is about takes time. */
export const soon = { baseMs: 1, factor: 1, jitter: 0 } as const;

export async function openRunWorkers(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { database, clock } = queue;
  const workers: Worker[] = [];
  const onEnqueued = () => workers.forEach((worker) => worker.wake());
  const runs = createRuns(queue, { ...queue, onEnqueued });

  const harness = {
    ...runs,
    queue,
    database,
    clock,

    /** Starts a pod's worker, which looks for itself every few moments. */
    async work(
      podId: string,
      use: readonly (Flow | TaskHandler)[],
      more: Partial<WorkerOptions> = {},
    ): Promise<Worker> {
      const handlers = use.map((each) =>
        isFlow(each) ? flowHandler(each) : (each as TaskHandler),
      );
      const worker = await queue.work(podId, handlers, { pollMs: 20, graceMs: 20, ...more });
      workers.push(worker);
      return worker;
    },

    async view(runId: string): Promise<RunView> {
      return (await runs.get(runId))!;
    },

    async ended(runId: string): Promise<RunView> {
      return queue.until(`the end of ${runId}`, async () => {
        const run = await harness.view(runId);
        return run.status === "open" ? undefined : run;
      });
    },

    /** The run once it is given back and does this. */
    async doing<Type extends Doing["type"]>(runId: string, type: Type): Promise<RunView> {
      return queue.until(`${runId} ${type}`, async () => {
        const run = await harness.view(runId);
        return run.doing?.type === type ? run : undefined;
      });
    },

    async childrenOf(runId: string): Promise<RunView[]> {
      return (await runs.list({ parent: runId, limit: 1_000 })).runs.toReversed();
    },

    /** The children that a run waits for, once it does. */
    async childrenAwaited(runId: string): Promise<RunView[]> {
      await harness.doing(runId, "waiting_for_children");
      return harness.childrenOf(runId);
    },

    /** What was noted of a run, in short. */
    async noted(runId: string): Promise<string[]> {
      return (await runs.history(runId)).map(({ type, transition }) =>
        transition === null ? type : `${type} ${transition}`,
      );
    },

    /** The times of the first wait that was noted of a run, which may be over by now. */
    async parkedFor(runId: string): Promise<{ sinceMs: number; untilMs: number }> {
      const park = (await runs.history(runId)).find(({ type }) => type === "park")!;
      return (park.detail as { waiting: { sinceMs: number; untilMs: number } }).waiting;
    },

    /** A pod claims the run, whatever that waits for, and dies; and a leader recovers it. */
    async die(runId: string): Promise<void> {
      await queue.beat("mortal");
      await queue.until(`a claim of ${runId}`, async () => {
        await database.write([
          sql`update ${tasks} set status = 'claimed', claimed_by = 'mortal', parked = 0, run_at = 0,
            claim_token = claim_token + 1 where task_id = ${runId} and status = 'pending'`,
        ]);
        return (await queue.row(runId))["claimed_by"] === "mortal";
      });
      await harness.recover("mortal", runId);
    },

    /** As a leader does that has seen the pod silent. */
    async recover(podId: string, taskId: string): Promise<void> {
      const pods = (await database.read(readPods())).map(toPodSeen);
      const pod = pods.find((each) => each.podId === podId)!;
      const token = Number((await queue.row(taskId))["claim_token"]);
      const orphans: Orphan[] = [{ taskId, token, pod }];
      const statements = [
        noteRecovery(orphans),
        recoverTasks(orphans),
        ...wakeDependents([taskId]),
      ];
      const [, recovered] = await database.write(statements);
      expect(recovered).toHaveLength(1);
      onEnqueued();
    },

    /** Waits until somebody waits for what a transaction of the caller's holds, on Postgres. */
    async untilBlocked(caller: CallerConnection): Promise<void> {
      await queue.until("that somebody waits for a row", async () => {
        const blocked = await caller.all(`select 1 from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'`);
        return blocked.length > 0;
      });
    },

    /** Every run in the store is what its history tells. */
    async folds(): Promise<void> {
      await queue.until("a moment of quiet", async () => {
        const before = await database.read(allRuns);
        const noted = await database.read(sql`select * from ${events} order by task_id, seq`);
        const after = await database.read(allRuns);
        if (JSON.stringify(before) !== JSON.stringify(after)) return false;
        for (const row of after) {
          const { task_id: runId } = row;
          isFolded(
            row,
            noted.filter((event) => event["task_id"] === runId),
          );
        }
        return true;
      });
    },

    async close(): Promise<void> {
      try {
        await harness.folds();
      } finally {
        await queue.close();
      }
    },
  };
  return harness;
}

const allRuns = sql`select * from ${tasks} where flow_version is not null order by task_id`;

/** F2: what is stored of a run is what its events make of it, also how it ended. */
function isFolded(row: Row, noted: readonly Row[]): void {
  const json = (text: unknown) => (typeof text === "string" ? (JSON.parse(text) as unknown) : null);
  const history = toHistory(noted as unknown as EventRow[]);
  const run = fold(history);
  const folded = toColumns(run);
  const number = (name: string) => Number(row[name]);
  expect(
    {
      version: number("flow_version"),
      cursor: row["cursor"],
      state: json(row["state"]) ?? {},
      intent: json(row["intent"]),
      waiting: json(row["waiting"]),
      stoppedAt: row["stopped_at"],
      failures: number("retry_count"),
      deaths: number("deaths"),
    },
    `run ${row["task_id"]}: ${JSON.stringify(history)}`,
  ).toEqual({
    ...folded,
    state: json(folded.state),
    intent: json(folded.intent),
    waiting: json(folded.waiting),
  });
  const isOpen = row["status"] === "pending" || row["status"] === "claimed";
  expect(isOpen ? null : row["status"]).toBe(endOf(history));
}

/** How a run has ended, by its history; null while it is open. */
export function endOf(history: readonly HistoryEvent[]): string | null {
  const last = history.findLast(({ type }) => !["pod_died", "set_aside", "resume"].includes(type));
  if (last?.type === "given_up") return "cancelled";
  return last?.type === "finish" ? last.status : null;
}

/** What the writes and reads of a pod are known by. */
export const givesBack: Statement["strings"] = leaveRuns([], true).strings;
export const looksForSignal: Statement["strings"] = firstSignal("", []).strings;

/**
 * A store that keeps the first call with such a statement until it is let go: before it is made, or when
 * it is done and its answer is on the way.
 */
export function holding(
  database: Database,
  strings: Statement["strings"],
  when: "before" | "answer" = "before",
) {
  let isReached = false;
  let letGo = () => {};
  const over = new Promise<void>((resolve) => (letGo = resolve));
  const isMeant = (statements: readonly Statement[]) =>
    !isReached && statements.some((each) => each.strings === strings);
  const held = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    if (when === "before") {
      isReached = true;
      await over;
      return ask();
    }
    const answer = await ask();
    isReached = true;
    await over;
    return answer;
  };
  return {
    database: {
      ...database,
      read: (statement) =>
        isMeant([statement]) ? held(() => database.read(statement)) : database.read(statement),
      write: (statements, options) =>
        isMeant(statements)
          ? held(() => database.write(statements, options))
          : database.write(statements, options),
    } satisfies Database as Database,
    get reached() {
      return isReached;
    },
    letGo: () => letGo(),
  };
}
