/**
 * Redrives: one task first, then steps that at most double, each only when the one before has ended well;
 * no task is taken twice or by two, and none that was there is passed over. Counts agree with what became
 * of the tasks.
 */
import { errorGroupOf } from "../../src/dead-letters/fingerprint.ts";
import { storedErrorOf } from "../../src/dead-letters/dead-letter.ts";
import type { Selection } from "../../src/dead-letters/redrive.ts";
import type { Database, Row } from "../../src/store/database.ts";
import { sql, table } from "../../src/store/sql.ts";
import { type Change, simulatedSecret } from "./audit.ts";
import type { Intent } from "./kinds.ts";
import type { World } from "./world.ts";

/** A task that was taken, and what became of it first. */
type Taken = {
  readonly step: number;
  readonly group: string;
  outcome?: "again" | "cancelled" | "completed" | "failed";
  /** Another operator has started it over since. */
  touched: boolean;
};

type Known = {
  readonly selection: Selection;
  readonly stepMost: number;
  readonly createdMs: number;
  /** What had failed by then and belonged to no other redrive, with its token. */
  readonly there: ReadonlyMap<string, number>;
  readonly taken: Map<string, Taken>;
  state: string;
};

/** What a write of a redrive was about to meet. */
export type RedrivesSeen = { readonly failed: readonly Row[]; readonly redrives: readonly Row[] };

export type Redrives = {
  readonly open: number;
  before(intent: Intent): Promise<RedrivesSeen | undefined>;
  after(intent: Intent, seen: RedrivesSeen | undefined, changes: readonly Change[]): void;
  /** Checks how a write has left things. */
  afterwards(intent: Intent): Promise<void>;
  judgeEnd(): Promise<void>;
};

const writes = ["redrive", "redrive_cancel", "redrive_end", "redrive_step", "redrive_stop"];
const isOpen = (state: unknown) => state === "running" || state === "stopping";
const groupIn = (name: string, error: unknown) =>
  errorGroupOf({ name, ...storedErrorOf(error) }, simulatedSecret);

export function createRedrives(world: World): Redrives {
  const { violate } = world;
  const { database } = world.store;
  const known = new Map<string, Known>();

  const begin = (intent: Intent, { failed, redrives }: RedrivesSeen): void => {
    const { redrive_id: redriveId, filter, step_max: stepMost } = intent.rows[0]!;
    if (known.has(String(redriveId))) return;
    const createdMs = world.storeClock.now();
    const others = redrives.filter((row) => isOpen(row["state"])).map((row) => row["redrive_id"]);
    const free = failed.filter(
      (row) => Number(row["last_update"]) <= createdMs && !others.includes(row["redrive_id"]),
    );
    known.set(String(redriveId), {
      selection: JSON.parse(String(filter)) as Selection,
      stepMost: Number(stepMost),
      createdMs,
      there: new Map(free.map((row) => [row["task_id"], Number(row["claim_token"])])),
      taken: new Map(),
      state: "running",
    });
  };

  const judgeTaken = (
    redriveId: string,
    change: Change,
    seen: Row,
    intent: Intent,
    what: string,
  ): void => {
    const { selection, createdMs, taken } = known.get(redriveId)!;
    if (taken.has(change.taskId)) violate("redrive", `${what}: taken twice`);
    const { redrive_id: holder, claim_token: token, last_update: failedMs } = seen;
    if (holder !== null && holder !== redriveId && isOpen(known.get(holder)?.state)) {
      violate("redrive", `${what}: another redrive has it`);
    }
    if (!intent.rows.some((row) => row["task_id"] === change.taskId && row["token"] === token)) {
      violate("redrive", `${what}: taken though it has failed anew since it was seen`);
    }
    if (!isOf(selection, seen)) violate("redrive", `${what}: taken though it isn't of its group`);
    if (Number(failedMs) > createdMs) violate("redrive", `${what}: taken though it failed later`);
  };

  const take = (intent: Intent, seen: RedrivesSeen, changes: readonly Change[]): void => {
    const redriveId = String(intent.subject);
    const mine = changes.filter(
      ({ before, after }) =>
        before?.status === "failed" && after?.status !== "failed" && after?.redriveId === redriveId,
    );
    const redrive = known.get(redriveId);
    if (mine.length === 0 || !redrive) return;
    const step = mine[0]!.after!.redriveStep!;
    const what = `step ${step} of ${redriveId.slice(-6)}`;
    world.count(`redrive: step ${Math.min(step, 4)}`);
    if (redrive.state !== "running") violate("redrive", `${what}: taken when ${redrive.state}`);
    for (const [taskId, { step: of, outcome, touched }] of redrive.taken) {
      const open = of === step - 1 && outcome === undefined && !touched;
      if (open) violate("redrive", `${what}: taken while ${taskId.slice(-6)} was open`);
      if (outcome === "again" && !touched) {
        violate("redrive", `${what}: taken though ${taskId.slice(-6)} had failed as before`);
      }
    }
    const together =
      mine.length + [...redrive.taken.values()].filter((each) => each.step === step).length;
    if (together > Math.min(redrive.stepMost, 2 ** (step - 1))) {
      violate("redrive", `${what}: ${together} tasks`);
    }
    for (const change of mine) {
      const row = seen.failed.find((each) => each["task_id"] === change.taskId);
      // What hadn't failed is found by the checker of tasks.
      if (!row) continue;
      judgeTaken(redriveId, change, row, intent, `${change.taskId.slice(-6)} in ${what}`);
      const group = groupIn(change.name, row["error"]);
      redrive.taken.set(change.taskId, { step, group, touched: false });
    }
  };

  /** Notes how a task that was taken has ended first. */
  const follow = (intent: Intent, { taskId, name, error, before, after }: Change): void => {
    if (!after || after.status === before?.status) return;
    for (const { taken } of known.values()) {
      const task = taken.get(taskId);
      if (!task) continue;
      const isRetry = intent.kind === "retry" || intent.kind === "bulk_batch";
      if (after.status === "pending" && before?.status !== "claimed" && isRetry) {
        task.touched = true;
      }
      if (task.outcome !== undefined || task.touched) continue;
      if (after.status === "failed") {
        task.outcome = groupIn(name, error) === task.group ? "again" : "failed";
      } else if (after.status === "completed" || after.status === "cancelled") {
        task.outcome = after.status;
      }
    }
  };

  return {
    get open() {
      return [...known.values()].filter(({ state }) => isOpen(state)).length;
    },
    before: async (intent) => (writes.includes(intent.kind) ? look(database) : undefined),
    after(intent, seen, changes) {
      if (intent.kind === "redrive") begin(intent, seen!);
      if (known.size === 0) return;
      if (intent.kind === "redrive_step") take(intent, seen!, changes);
      else for (const change of changes) follow(intent, change);
    },
    async afterwards(intent) {
      if (!writes.includes(intent.kind)) return;
      const { failed, redrives } = await look(database);
      for (const row of redrives) {
        const redrive = known.get(row["redrive_id"]);
        if (!redrive || redrive.state === row["state"]) continue;
        redrive.state = row["state"];
        world.count(`redrive: ${redrive.state}`);
        if (redrive.state !== "done") continue;
        for (const task of failed) {
          const isLeft = redrive.there.get(task["task_id"]) === Number(task["claim_token"]);
          if (!isLeft || !isOf(redrive.selection, task)) continue;
          const what = `${task["task_id"].slice(-6)} by ${row["redrive_id"].slice(-6)}`;
          violate("redrive", `${what}: passed over`);
        }
      }
    },
    async judgeEnd() {
      const { redrives } = await look(database);
      const events = await database.read(
        sql`select task_id, detail from ${table("task_event")} where type = 'redriven'`,
      );
      for (const row of redrives) {
        const what = `redrive ${row["redrive_id"].slice(-6)}`;
        const redrive = known.get(row["redrive_id"])!;
        const count = (column: string) => Number(row[column]);
        const tasks = [...redrive.taken.values()];
        const ended =
          count("succeeded") + count("failed") + count("failed_otherwise") + count("gone");
        if (isOpen(row["state"])) violate("redrive", `${what} is ${row["state"]} for ever`);
        if (count("taken") !== tasks.length) {
          violate("redrive", `${what} counts ${row["taken"]} tasks, and took ${tasks.length}`);
        }
        if (ended !== tasks.length) {
          violate("redrive", `${what} counts ${ended} endings of ${tasks.length}`);
        }
        const noted = events.filter((each) => each["detail"].includes(row["redrive_id"]));
        if (noted.length !== tasks.length) {
          violate("redrive", `${what} noted ${noted.length} of ${tasks.length}`);
        }
        const succeeded = tasks.filter(({ outcome }) => outcome === "completed").length;
        if (tasks.every(({ touched }) => !touched) && count("succeeded") !== succeeded) {
          violate("redrive", `${what} counts ${row["succeeded"]} of ${succeeded} that went well`);
        }
      }
    },
  };
}

async function look(database: Database): Promise<RedrivesSeen> {
  return {
    failed: await database.read(
      sql`select task_id, name, claim_token, last_update, redrive_id, error
        from ${table("task")} where status = 'failed'`,
    ),
    redrives: await database.read(sql`select * from ${table("redrive")}`),
  };
}

function isOf(selection: Selection, { task_id: taskId, name, error }: Row): boolean {
  if (selection.taskId !== undefined) return selection.taskId === taskId;
  if (selection.name !== undefined) return selection.name === name;
  if (selection.group !== undefined) return selection.group === groupIn(name, error);
  return true;
}
