import { describe, expect, test } from "vitest";
import {
  countEndedRuns,
  countOpenRuns,
  countStuck,
  dependenciesOfRun,
  flowNames,
  runConditions,
  walkRuns,
} from "../../flows/sql.ts";
import { linkedTasks, linkedTasksAfter } from "../../links/sql.ts";
import { planning, planningOnSqlite } from "../../store/contract/planning.ts";
import { pagePlans } from "../../store/postgres/driver.ts";
import type { Statement } from "../../store/sql.ts";
import { countClaimed } from "./inspect.ts";
import {
  checkTasks,
  countHeld,
  countNewest,
  isFailed,
  isRunNamed,
  openTasks,
  pendingTasks,
  readListed,
  runningTasks,
  taskConditions,
  tasksOfKey,
  tasksSetAside,
  walkTasks,
} from "./list.ts";
import { waitsForTasks } from "./task-state.ts";

const span = { before: "x", from: "", count: 2_000 };
const filter = taskConditions({ name: "a", status: "failed", tenant: "t", key: "k", scope: "s" });
const ofStatus = taskConditions({ name: "a", status: "failed" });
const ofPayload = taskConditions({ name: "a", payload: [{ path: ["id"], value: 7 }] });
const walk = (fits: readonly Statement[], among?: Statement) =>
  walkTasks({ ...span, fits, among, wanted: 51 });

/** The statements of lists and counts, each with the index of tasks that it must go along. */
const statements: Record<string, [statement: Statement, index: string]> = {
  "all tasks": [walk([]), "task_pkey"],
  "all tasks by any filter": [walk(filter), "task_pkey"],
  "all tasks by a value of the payload": [walk(ofPayload), "task_pkey"],
  "failed tasks": [walk(filter, isFailed), "task_failed"],
  "runs of a flow": [walk(runConditions({ status: "open", at: "b" }), isRunNamed("a")), "task_run"],
  "runs of all flows": [
    walkRuns(["a", "b"], { ...span, fits: runConditions({}), wanted: 51 }),
    "task_run",
  ],
  "runs of a tenant": [
    walkRuns(["a", "b"], { ...span, fits: taskConditions({ tenant: "t" }), wanted: 51 }),
    "task_run",
  ],
  "names of flows": [flowNames(100), "task_run"],
  "tasks by their ids": [checkTasks(["x", "y"], { fits: ofStatus, wanted: 51 }), "task_pkey"],
  "a page": [readListed(["x", "y"], ofStatus), "task_pkey"],
  "tasks of a pod": [runningTasks({ pod: "pod" }, 10_001), "task_claimed"],
  "running tasks": [runningTasks({}, 10_001), "task_claimed"],
  "running tasks of a key": [runningTasks({ scope: "key/a/k" }, 10_001), "task_running_key"],
  "pending tasks": [pendingTasks({}, 10_001), "task_ready"],
  "pending tasks of a name": [pendingTasks({ name: "a" }, 10_001), "task_ready"],
  "delayed tasks": [pendingTasks({ state: "delayed" }, 10_001), "task_parked"],
  "tasks at a limit": [pendingTasks({ name: "a", state: "blocked" }, 10_001), "task_blocked"],
  "tasks that wait for others": [
    walk(taskConditions({ state: "waiting" }), waitsForTasks),
    "task_for_dependencies",
  ],
  "open tasks": [openTasks({ name: "a" }, 10_001), "task_claimed"],
  "a unique key": [tasksOfKey({ name: "a", key: "k" }), "task_unique"],
  "a unique key of a tenant": [tasksOfKey({ name: "a", key: "k", tenant: "t" }), "task_unique"],
  "runs that were set aside": [tasksSetAside({ name: "a" }, 10_001), "task_set_aside"],
  "counts of the newest": [countNewest(10_000), "task_pkey"],
  "counts of what is held": [countHeld(10_000), "task_for_signal"],
  "counts of claims": [countClaimed(10_000), "task_claimed"],
  "counts of open runs": [countOpenRuns(["a", "b"]), "task_ready"],
  "counts of ended runs": [countEndedRuns(["a", "b"], 5_000), "task_run"],
  "stuck runs": [countStuck(["a", "b"], { failures: 5, waitingMs: 1 }), "task_for_dependencies"],
};
const others: Record<string, Statement> = {
  "what something has started": linkedTasks("x", span),
  "what something has started, oldest first": linkedTasksAfter("x", { after: "", count: 2_000 }),
  "children of a run": dependenciesOfRun("x", 10_001),
};

const fill = (status: string, count: number) => `
  insert into flotilla.task (name, status, claimed_by, payload, flow_version)
  select case when n % 3 = 0 then 'b' else 'a' end, '${status}', 'pod', '{}',
    case when n % 2 = 0 then 1 end from generate_series(1, ${count}) n`;
const analyze = "analyze flotilla.task";
const all = (status: string) => `update flotilla.task set status = '${status}'`;

/** What the planner believes is what it saw last. */
const histories: Record<string, readonly string[]> = {
  "that were never looked at": [fill("completed", 20_000), fill("failed", 5_000)],
  "that were all there when they were analyzed": [
    fill("completed", 20_000),
    fill("failed", 20_000),
    analyze,
  ],
  "that were few when they were analyzed": [
    fill("completed", 3),
    analyze,
    fill("completed", 20_000),
  ],
  "that all had failed when they were analyzed": [
    fill("failed", 20_000),
    analyze,
    all("completed"),
  ],
  "that were all claimed when they were analyzed": [
    fill("claimed", 20_000),
    analyze,
    all("completed"),
  ],
  "that were all pending when they were analyzed": [
    fill("pending", 20_000),
    analyze,
    all("completed"),
  ],
};

describe.each(Object.entries(histories))("for pages of tasks %s, Postgres", (_, history) => {
  const planOf = planning(history, { settings: pagePlans });

  test.each(Object.entries(statements))(
    "goes along an index for %s",
    async (_, [statement, index]) => {
      const plan = await planOf(statement);
      expect(plan).toMatch(new RegExp(` (using|on) ${index}\\b`));
      expect(plan).not.toMatch(/Seq Scan on (task|task_dependency|link)\b/);
      expect(plan).not.toMatch(/Bitmap/);
      // Only a part of the index of all tasks is read, from an id on.
      expect(plan).not.toMatch(/ task_pkey on task.*\n(?! *Index Cond)/);
    },
  );

  test.each(Object.entries(others))("goes along an index for %s", async (_, statement) => {
    expect(await planOf(statement)).not.toMatch(/Seq Scan on/);
  });
});

describe("for pages of tasks, SQLite", () => {
  const stepsOf = planningOnSqlite();
  // The index of failed tasks begins with their ids too, and is as good for rows that must have failed.
  const indexOnSqlite = (index: string) =>
    index === "task_pkey"
      ? /sqlite_autoindex_flotilla_task_1|flotilla_task_failed \(task_id=\?/
      : new RegExp(`flotilla_${index}\\b`);

  test.each(Object.entries(statements))("goes along an index for %s", (_, [statement, index]) => {
    const steps = stepsOf(statement);
    expect(steps.join("\n")).toMatch(indexOnSqlite(index));
    const scans = steps.filter((step) =>
      /^SCAN (flotilla_task|task|flotilla_link|link)\b/.test(step),
    );
    // A scan of a partial index reads only what is in it.
    expect(scans.filter((step) => !step.includes("USING"))).toEqual([]);
    expect(scans.filter((step) => step.includes("autoindex"))).toEqual([]);
  });

  test.each(Object.entries(others))("goes along an index for %s", (_, statement) => {
    expect(stepsOf(statement).filter((step) => step.startsWith("SCAN"))).toEqual([]);
  });
});
