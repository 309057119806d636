/**
 * Bulks: each task that matched and stayed as it was is acted on once, by one batch, and none twice or after
 * the end; counts agree with what was done, whichever pods lead and whatever is lost or lands late.
 */
import type { Row } from "../../src/store/database.ts";
import { sql, table } from "../../src/store/sql.ts";
import type { TaskFilter } from "../../src/tasks/inspect/filter.ts";
import type { Change } from "./audit.ts";
import type { Intent } from "./kinds.ts";
import type { World } from "./world.ts";

type Known = {
  readonly action: string;
  readonly filter: TaskFilter;
  /** What matched when it began, with its status and token. */
  readonly there: ReadonlyMap<string, string>;
  readonly acted: Set<string>;
  /** How many tasks its committed batches were about. */
  seen: number;
  state: string;
};

export type BulksSeen = { readonly bulks: readonly Row[] };

export type Bulks = {
  readonly open: number;
  before(intent: Intent): Promise<BulksSeen | undefined>;
  after(intent: Intent, seen: BulksSeen | undefined, changes: readonly Change[]): Promise<void>;
  judgeEnd(): Promise<void>;
};

const isOfBulk = (intent: Intent) => intent.kind.startsWith("bulk");
const statuses: Readonly<Record<string, readonly string[]>> = {
  cancel: ["pending", "claimed"],
  retry: ["failed", "cancelled"],
};
const markOf = ({ status, claim_token: token }: Row) => `${status}@${token}`;

export function createBulks(world: World): Bulks {
  const { violate } = world;
  const { database } = world.store;
  const known = new Map<string, Known>();

  const look = async (): Promise<BulksSeen> => ({
    bulks: await database.read(sql`select * from ${table("bulk")}`),
  });

  const begin = async (row: Row): Promise<void> => {
    const filter = JSON.parse(row["filter"]) as TaskFilter;
    const tasks = await database.read(
      sql`select task_id, name, status, claim_token, cancel_requested, created_at from ${table("task")}`,
    );
    const there = tasks.filter(
      (task) =>
        task["name"] === filter.name &&
        // By a clock that was set back, what is there was stored later.
        Number(task["created_at"]) <= Number(row["created_at"]) &&
        statuses[row["action"]]!.includes(task["status"]) &&
        Number(task["cancel_requested"]) === 0,
    );
    known.set(row["bulk_id"], {
      action: row["action"],
      filter,
      there: new Map(there.map((task) => [task["task_id"], markOf(task)])),
      acted: new Set(),
      seen: 0,
      state: "running",
    });
  };

  const judgeBatch = (intent: Intent, before: Row, changes: readonly Change[]): void => {
    const bulk = known.get(intent.subject!)!;
    const isMoved = Number(before["revision"]) === intent.number && before["state"] === "running";
    if (!isMoved) world.count("fence: bulk_batch, revision");
    else bulk.seen += intent.rows.length;
    const acted = changes.filter(({ before: was, after }) =>
      bulk.action === "retry"
        ? ["failed", "cancelled"].includes(was?.status ?? "") && after?.status === "pending"
        : was?.cancelRequested === 0 && after?.cancelRequested === 1,
    );
    for (const { taskId, name, before: was } of acted) {
      const what = `${name} ${taskId.slice(-6)} by bulk ${intent.subject!.slice(-6)}`;
      const sent = intent.rows.find((row) => row["task_id"] === taskId);
      if (!isMoved) violate("bulk", `${what}: acted on by a batch that another was faster than`);
      if (bulk.acted.has(taskId)) violate("bulk", `${what}: acted on twice`);
      if (name !== bulk.filter.name) violate("bulk", `${what}: doesn't match`);
      if (sent?.["token"] !== was!.token || sent["seen_status"] !== was!.status) {
        violate("bulk", `${what}: acted on though it isn't as it was seen`);
      }
      bulk.acted.add(taskId);
    }
  };

  /** What has matched all the time is acted on by the time that the bulk is done. */
  const judgeDone = async (bulkId: string, bulk: Known): Promise<void> => {
    const tasks = await database.read(
      sql`select task_id, status, claim_token, cancel_requested from ${table("task")}`,
    );
    for (const task of tasks) {
      const isLeft = bulk.there.get(task["task_id"]) === markOf(task);
      if (!isLeft || bulk.acted.has(task["task_id"])) continue;
      if (bulk.action === "cancel" && Number(task["cancel_requested"]) === 1) continue;
      violate("bulk", `${task["task_id"].slice(-6)} by ${bulkId.slice(-6)}: passed over`);
    }
  };

  return {
    get open() {
      return [...known.values()].filter(({ state }) => state === "running").length;
    },
    before: async (intent) => (isOfBulk(intent) ? look() : undefined),
    async after(intent, seen, changes) {
      if (!isOfBulk(intent)) return;
      if (intent.kind === "bulk_batch") {
        const before = seen!.bulks.find((row) => row["bulk_id"] === intent.subject);
        if (before) judgeBatch(intent, before, changes);
      }
      for (const row of (await look()).bulks) {
        const bulk = known.get(row["bulk_id"]);
        if (!bulk) await begin(row);
        else if (bulk.state !== row["state"]) {
          bulk.state = row["state"];
          world.count(`bulk: ${bulk.action} ${bulk.state}`);
          if (bulk.state === "done") await judgeDone(row["bulk_id"], bulk);
        }
      }
    },
    async judgeEnd() {
      const events = await database.read(
        sql`select detail from ${table("task_event")} where type in ('retried', 'cancel_requested')`,
      );
      for (const row of (await look()).bulks) {
        const bulk = known.get(row["bulk_id"])!;
        const what = `bulk ${row["bulk_id"].slice(-6)}`;
        const count = (column: string) => Number(row[column]);
        if (row["state"] === "running") violate("bulk", `${what} runs for ever`);
        if (count("done") !== bulk.acted.size) {
          violate("bulk", `${what} counts ${row["done"]}, and has acted on ${bulk.acted.size}`);
        }
        const all = count("done") + count("skipped") + count("refused");
        if (all !== bulk.seen) violate("bulk", `${what} counts ${all} of ${bulk.seen}`);
        const noted = events.filter((each) => each["detail"]?.includes(row["bulk_id"]));
        if (noted.length !== bulk.acted.size) {
          violate("bulk", `${what} noted ${noted.length} of ${bulk.acted.size}`);
        }
        if (bulk.acted.size > 2) world.count("bulk: several batches");
      }
    },
  };
}
