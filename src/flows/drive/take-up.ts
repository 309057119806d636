import type { TaskHandler } from "../../tasks/task.ts";
import type { Database } from "../../store/database.ts";
import { takeUp } from "../sql.ts";

/** Lets the flows of a pod that starts try what earlier versions of them couldn't read. */
export async function takeUpAside(
  database: Database,
  handlers: Iterable<TaskHandler>,
): Promise<void> {
  const statements = [...handlers].flatMap(({ name, flow }) =>
    flow ? [takeUp(name, flow.version)] : [],
  );
  if (statements.length > 0) await database.write(statements, { hint: true });
}
