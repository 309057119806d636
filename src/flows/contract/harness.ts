import { expect } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { readPods, toPodSeen } from "../../pods/sql.ts";
import type { CallerConnection, StoreKind } from "../../store/contract/database.ts";
import { waitsBehind } from "../../store/contract/kinds.ts";
import type { Database, Row } from "../../store/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { openTasks, rowsOf } from "../../tasks/contract/harness.ts";
import type { Worker, WorkerOptions } from "../../tasks/run/worker.ts";
import { wakeDependents } from "../../tasks/sql/dependencies.ts";
import { noteRecovery, type Orphan, recoverTasks } from "../../tasks/sql/recover.ts";
import { leaveRuns } from "../../tasks/sql/runs.ts";
import type { TaskHandler } from "../../tasks/model.ts";
import { type EventRow, fold, type HistoryEvent, toHistory } from "../decide/run.ts";
import { flowHandler, isFlow } from "../drive/drive.ts";
import { retrySetAsideRuns, toColumns } from "../drive/load.ts";
import type { Flow } from "../flow.ts";
import type { RunView } from "../rows.ts";
import { createRuns, type StartedRun } from "../runs.ts";
import { firstSignal } from "../../tasks/sql/signals.ts";

export type RunsHarness = Awaited<ReturnType<typeof openRuns>>;

/** Retries come at once, so that only what a test is about takes time. */
export const soon = { baseMs: 1, factor: 1, jitter: 0 } as const;

const allRuns = sql`select * from ${rowsOf} where flow_version is not null order by task_id`;

/** Runs on an empty store, on a clock that the test moves. At the close, each run must fold from its history. */
export async function openRuns(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { database, clock } = queue;
  const workers: Worker[] = [];
  const tampered = new Set<string>();
  const wake = () => workers.forEach((worker) => worker.wake());
  const runs = createRuns(queue, { ...queue, onEnqueued: wake });

  const startWorker = async (
    podId: string,
    handlers: readonly TaskHandler[],
    more: Partial<WorkerOptions>,
  ): Promise<Worker> => {
    const worker = await queue.work(podId, handlers, more);
    workers.push(worker);
    return worker;
  };
  const recoverOrphans = async (orphans: readonly Orphan[]): Promise<number> => {
    if (orphans.length === 0) return 0;
    const [, recovered] = await database.write([
      noteRecovery(orphans),
      recoverTasks(orphans),
      ...wakeDependents(orphans.map(({ taskId }) => taskId)),
    ]);
    wake();
    return recovered!.length;
  };
  const podSeen = async (podId: string) =>
    (await database.read(readPods())).map(toPodSeen).find((each) => each.podId === podId)!;

  const harness = {
    ...runs,
    wake,
    queue,
    database,
    clock,
    until: queue.until,
    outcome: queue.outcome,
    pass: queue.pass,

    /** Starts a pod that has these flows, as a pod starts: runs that were set aside are tried again. */
    async pod(podId: string, flows: readonly Flow[], more: Partial<WorkerOptions> = {}) {
      const handlers = flows.map(flowHandler);
      await retrySetAsideRuns(database, handlers);
      return startWorker(podId, handlers, more);
    },

    /** Starts a pod's worker alone, which polls every few moments. */
    async work(
      podId: string,
      use: readonly (Flow | TaskHandler)[],
      more: Partial<WorkerOptions> = {},
    ) {
      const handlers = use.map((each) =>
        isFlow(each) ? flowHandler(each) : (each as TaskHandler),
      );
      return startWorker(podId, handlers, { pollMs: 20, graceMs: 20, ...more });
    },

    /** Stops a pod whose transitions end when their signal aborts. */
    async stop(worker: Worker, waitMs = 0): Promise<void> {
      await queue.outcome(worker.stop({ waitMs }));
    },

    async view(run: StartedRun | string): Promise<RunView> {
      return (await runs.get(idOf(run)))!;
    },

    async seen(run: StartedRun | string, what: string, is: (run: RunView) => boolean) {
      return queue.until(what, async () => {
        const view = await runs.get(idOf(run));
        return view && is(view) ? view : undefined;
      });
    },

    ended: (run: StartedRun | string): Promise<RunView> =>
      harness.seen(run, `the end of ${idOf(run)}`, ({ status }) => status !== "open"),

    /** The run once it does this. */
    doing: (run: StartedRun | string, type: NonNullable<RunView["doing"]>["type"]) =>
      harness.seen(run, `${idOf(run)} ${type}`, ({ doing }) => doing?.type === type),

    async childrenOf(runId: string): Promise<RunView[]> {
      return (await runs.list({ parent: runId, limit: 1_000 })).runs.toReversed();
    },

    /** The children that a run waits for, once it does. */
    async childrenAwaited(runId: string): Promise<RunView[]> {
      await harness.doing(runId, "waiting_for_children");
      return harness.childrenOf(runId);
    },

    /** The events of a run, each as its type and its transition. */
    async noted(run: StartedRun | string): Promise<string[]> {
      const history = await runs.history(idOf(run));
      return history.map(({ type, transition }) => (transition ? `${type} ${transition}` : type));
    },

    /** The times of the first wait of a run, which may be over by now. */
    async parkedFor(runId: string): Promise<{ sinceMs: number; untilMs: number }> {
      const park = (await runs.history(runId)).find(({ type }) => type === "park")!;
      return (park.detail as { waiting: { sinceMs: number; untilMs: number } }).waiting;
    },

    /** A pod claims the run, whatever that waits for, and dies; then a leader recovers it. */
    async die(runId: string): Promise<void> {
      await queue.beat("mortal");
      await queue.until(`a claim of ${runId}`, async () => {
        await database.write([
          sql`update ${rowsOf} set status = 'claimed', claimed_by = 'mortal', parked = 0, run_at = 0,
            claim_token = claim_token + 1 where task_id = ${runId} and status = 'pending'`,
        ]);
        return (await queue.row(runId))["claimed_by"] === "mortal";
      });
      await harness.recover("mortal", runId);
    },

    /** Recovers a task, as a leader does that has seen the pod silent. */
    async recover(podId: string, taskId: string): Promise<void> {
      const pod = await podSeen(podId);
      const token = Number((await queue.row(taskId))["claim_token"]);
      expect(await recoverOrphans([{ taskId, token, pod }])).toBe(1);
    },

    /** Recovers all that this pod has claimed, and returns how many. */
    async recoverFrom(podId: string): Promise<number> {
      const pod = await podSeen(podId);
      const held = await database.read(
        sql`select task_id, claim_token from ${rowsOf} where claimed_by = ${podId} and status = 'claimed'`,
      );
      return recoverOrphans(
        held.map((row) => ({
          taskId: row["task_id"] as string,
          token: Number(row["claim_token"]),
          pod,
        })),
      );
    },

    /** Waits until a transaction waits for a lock that this caller holds, on Postgres. */
    async untilBlocked(caller: CallerConnection): Promise<void> {
      const blocked = async () => (await waitsBehind(caller)).length > 0;
      await queue.until("a wait for a row", blocked);
    },

    /** Changes a row by hand, so that its history doesn't show the change. */
    async tamper(run: StartedRun | string, changes: Statement): Promise<void> {
      tampered.add(idOf(run));
      await database.write([sql`update ${rowsOf} set ${changes} where task_id = ${idOf(run)}`]);
    },

    /** The same database, but the answer to a write of runs is lost whenever `loses` says so. */
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

    /** Whether these statements store runs. */
    writesRuns: (statements: readonly Statement[]): boolean =>
      JSON.stringify(statements).includes("next.cursor"),

    /** F2: every run in the store is what its events make of it, also how it ended. */
    async folds(): Promise<void> {
      await queue.until("a moment without writes", async () => {
        const before = await database.read(allRuns);
        const events = await database.read(
          sql`select * from ${table("task_event")} order by task_id, seq`,
        );
        const after = await database.read(allRuns);
        if (JSON.stringify(before) !== JSON.stringify(after)) return false;
        for (const row of after) {
          const runId = row["task_id"] as string;
          const own = events.filter((event) => event["task_id"] === runId);
          if (!tampered.has(runId)) expectFolded(row, toHistory(own as unknown as EventRow[]));
        }
        return true;
      });
    },

    async close(): Promise<void> {
      const stopping = workers.map((worker) => worker.stop({ waitMs: 0 }));
      await queue.outcome(Promise.all(stopping), { stepMs: 1_000 });
      try {
        await harness.folds();
      } finally {
        await queue.close();
      }
    },
  };
  return harness;
}

function expectFolded(row: Row, history: readonly HistoryEvent[]): void {
  const folded = toColumns(fold(history));
  expect(columnsOf(row), `run ${row["task_id"]}: ${JSON.stringify(history)}`).toEqual({
    ...folded,
    state: readJson(folded.state) ?? {},
    intent: readJson(folded.intent),
    waiting: readJson(folded.waiting),
  });
  const isOpen = row["status"] === "pending" || row["status"] === "claimed";
  expect(isOpen ? null : row["status"]).toBe(endOf(history));
}

/** How a run has ended, by its history; null while it is open. */
function endOf(history: readonly HistoryEvent[]): string | null {
  const last = history.findLast(({ type }) => !["pod_died", "set_aside", "resume"].includes(type));
  if (last?.type === "given_up") return "cancelled";
  return last?.type === "finish" ? last.status : null;
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

function idOf(run: StartedRun | string): string {
  return typeof run === "string" ? run : run.runId;
}

/** The code that something rejects with. */
export async function codeOf(promise: Promise<unknown>): Promise<string | undefined> {
  return promise.then(
    () => undefined,
    (error: unknown) => (error instanceof FlotillaError ? error.code : String(error)),
  );
}

/** The statements by which `holding` knows a pod's release of a run, and its search for a signal. */
export const releaseStatement: Statement["strings"] = leaveRuns([], true).strings;
export const signalReadStatement: Statement["strings"] = firstSignal("", []).strings;

/**
 * A store that delays the first call with such a statement until `letGo`: before it is made, or once it is
 * done and its answer is on the way.
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
