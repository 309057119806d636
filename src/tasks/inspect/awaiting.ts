import type { Database } from "../../store/database.ts";
import { type AwaitingCursor, hasMoreAwaiting, listAwaiting } from "../sql/signals.ts";

/** A task or run that waits for a signal. */
export type AwaitingTask = {
  readonly taskId: string;
  readonly isRun: boolean;
  readonly tenant: string;
  readonly name: string;
  readonly signal: string;
  readonly sinceMs: number;
  /** Null if it waits without a limit. */
  readonly untilMs: number | null;
};

export type AwaitingTasks = {
  readonly tasks: AwaitingTask[];
  /** False if so many wait that not all of them were looked at. */
  readonly isWhole: boolean;
};

/** The next tasks and runs that wait for a signal, in the order of their positions. */
export async function readAwaiting(
  database: Pick<Database, "read">,
  after: AwaitingCursor,
  page: { tenant: string | undefined; count: number },
): Promise<AwaitingTasks> {
  const [rows, [bound]] = await Promise.all([
    database.read(listAwaiting(after, page), { cold: true }),
    database.read(hasMoreAwaiting(after), { cold: true }),
  ]);
  return {
    isWhole: Number(bound!["more"]) === 0,
    tasks: rows.map((row) => ({
      taskId: row["task_id"],
      isRun: row["flow_version"] !== null,
      tenant: row["tenant"],
      name: row["name"],
      signal: row["awaits"],
      sinceMs: Number(row["since_at"]),
      untilMs: row["until_at"] === null ? null : Number(row["until_at"]),
    })),
  };
}
