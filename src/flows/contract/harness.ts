import { expect } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { readPods, toPodSeen } from "../../pods/sql.ts";
import { openTasks, rowsOf } from "../../tasks/contract/harness.ts";
import { noteRecovery, recoverTasks } from "../../tasks/sql/recover.ts";
import type { Worker, WorkerOptions } from "../../tasks/run/worker.ts";
import type { Database, Row } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import type { Flow } from "../flow.ts";
import { createRuns, type StartedRun } from "../runs.ts";
import { type EventRow, fold, type HistoryEvent, toHistory } from "../decide/run.ts";
import { flowHandler } from "../drive/drive.ts";
import type { RunView } from "../rows.ts";
import { endOf } from "./worker-harness.ts";
import { retrySetAsideRuns, toColumns } from "../drive/load.ts";

export type RunsHarness = Awaited<ReturnType<typeof openRuns>>;

const terminal = ["completed", "failed", "cancelled"];

/** Runs on an empty store, with time in hand. What is stored when it closes must fold from the history. */
export async function openRuns(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { database, clock, random, ids } = queue;
  const workers: Worker[] = [];
  const tampered = new Set<string>();
  const wake = () => workers.forEach((worker) => worker.wake());
  const runs = createRuns(queue, { database, clock, random, ids, onEnqueued: wake });

  const harness = {
    ...runs,
    wake,
    queue,
    database,
    clock,
    until: queue.until,
    outcome: queue.outcome,
    pass: queue.pass,

    /** Starts a pod that has these flows, as a pod does. */
    async pod(podId: string, flows: readonly Flow[], more: Partial<WorkerOptions> = {}) {
      const handlers = flows.map(flowHandler);
      await retrySetAsideRuns(database, handlers);
      const worker = await queue.work(podId, handlers, more);
      workers.push(worker);
      return worker;
    },

    /** Stops a pod whose transitions end when they are told to. */
    async stop(worker: Worker, waitMs = 0): Promise<void> {
      await queue.outcome(worker.stop({ waitMs }));
    },

    async ended(run: StartedRun | string): Promise<RunView> {
      const runId = idOf(run);
      return harness.seen(run, `the end of ${runId}`, ({ status }) => terminal.includes(status));
    },

    async seen(run: StartedRun | string, what: string, is: (run: RunView) => boolean) {
      return queue.until(what, async () => {
        const view = await runs.get(idOf(run));
        return view && is(view) ? view : undefined;
      });
    },

    doing: (run: StartedRun | string, type: NonNullable<RunView["doing"]>["type"]) =>
      harness.seen(run, `a run that is ${type}`, ({ doing }) => doing?.type === type),

    /** What was noted, each as its type and what it is about. */
    async told(run: StartedRun | string): Promise<string[]> {
      const history = await runs.history(idOf(run));
      return history.map(({ type, transition }) => (transition ? `${type} ${transition}` : type));
    },

    /** Gives back whatever this pod has, as a leader does that has seen it silent. */
    async recoverFrom(podId: string): Promise<number> {
      const pod = (await database.read(readPods())).map(toPodSeen).find(isOf(podId))!;
      const held = await database.read(
        sql`select task_id, claim_token from ${rowsOf} where claimed_by = ${podId} and status = 'claimed'`,
      );
      const orphans = held.map((row) => ({
        taskId: row["task_id"] as string,
        token: Number(row["claim_token"]),
        pod,
      }));
      if (orphans.length === 0) return 0;
      const [, recovered] = await database.write([noteRecovery(orphans), recoverTasks(orphans)]);
      wake();
      return recovered!.length;
    },

    /** Changes a row by hand, so that its history says nothing of it. */
    async tamper(run: StartedRun | string, changes: Statement): Promise<void> {
      tampered.add(idOf(run));
      await database.write([sql`update ${rowsOf} set ${changes} where task_id = ${idOf(run)}`]);
    },

    /** The same database, but answers to writes of runs are lost, as often as is said of each. */
    forgetful(loses: () => boolean): Database {
      return {
        ...database,
        async write(statements, options) {
          const tables = await database.write(statements, options);
          if (!harness.writesRuns(statements) || !loses()) return tables;
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
    },

    /** Whether these store what became of runs. */
    writesRuns: (statements: readonly Statement[]): boolean =>
      JSON.stringify(statements).includes("next.cursor"),

    /** Every run that is stored is what its history tells. */
    async folded(): Promise<void> {
      const rows = await database.read(sql`select * from ${rowsOf} where flow_version is not null`);
      for (const row of rows) {
        const runId = row["task_id"] as string;
        if (tampered.has(runId)) continue;
        const history = await historyOf(runId);
        expect(columnsOf(row)).toEqual(foldedColumns(history));
        expect(terminal.includes(row["status"]) ? row["status"] : null).toBe(endOf(history));
      }
    },

    async close(): Promise<void> {
      const stopping = workers.map((worker) => worker.stop({ waitMs: 0 }));
      await queue.outcome(Promise.all(stopping), { stepMs: 1_000 });
      try {
        await harness.folded();
      } finally {
        await queue.close();
      }
    },
  };

  const historyOf = async (runId: string) => {
    const events = await database.read(
      sql`select type, attempt, detail from ${table("task_event")} where task_id = ${runId} order by seq`,
    );
    return toHistory(events as unknown as EventRow[]);
  };
  return harness;
}

function foldedColumns(history: readonly HistoryEvent[]) {
  const columns = toColumns(fold(history));
  return {
    ...columns,
    state: readJson(columns.state) ?? {},
    intent: readJson(columns.intent),
    waiting: readJson(columns.waiting),
  };
}

function idOf(run: StartedRun | string): string {
  return typeof run === "string" ? run : run.runId;
}

function isOf(podId: string) {
  return (each: { readonly podId: string }) => each.podId === podId;
}

function columnsOf(row: Row) {
  return {
    version: Number(row["flow_version"]),
    cursor: row["cursor"] as string | null,
    stoppedAt: row["stopped_at"] as string | null,
    failures: Number(row["retry_count"]),
    deaths: Number(row["deaths"]),
    state: readJson(row["state"]) ?? {},
    intent: readJson(row["intent"]),
    waiting: readJson(row["waiting"]),
  };
}

function readJson(text: unknown): unknown {
  return typeof text === "string" ? JSON.parse(text) : null;
}

/** The code of what something rejects with. */
export async function codeOf(promise: Promise<unknown>): Promise<string | undefined> {
  return promise.then(
    () => undefined,
    (error: unknown) => (error instanceof FlotillaError ? error.code : String(error)),
  );
}
