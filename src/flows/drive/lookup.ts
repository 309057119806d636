import type { Json } from "../../base/json.ts";
import { lenientJson } from "../../tasks/rows.ts";
import type { Database, Row } from "../../store/database.ts";
import type { ChildState, RunEvent } from "../decide/event.ts";
import type { SignalPart } from "../machine.ts";
import { readSignal } from "../decide/returned.ts";
import type { RunError } from "../decide/run.ts";
import { firstSignal } from "../../tasks/sql/signals.ts";
import { childrenOf } from "../sql.ts";

const unknown: RunError = { code: "internal", message: "no error was stored" };

/** Finds the first unused signal of a part, under any name that the part has had. */
export async function findSignal(
  database: Database,
  runId: string,
  part: SignalPart,
  names: readonly string[],
): Promise<RunEvent> {
  const [row] = await database.read(firstSignal(runId, names));
  if (!row) return { type: "signal_seen", signal: null };
  const signalId = row["signal_id"] as string;
  try {
    return await readSignal(part, { signalId, payload: JSON.parse(row["payload"]) as Json });
  } catch {
    return { type: "signal_refused", signalId, message: "its stored payload isn't JSON" };
  }
}

/** The states of a transition's children, in their order. */
export async function readChildren(
  database: Database,
  runId: string,
  names: readonly string[],
): Promise<RunEvent> {
  const { found, startedBy } = await findChildRows(database, runId, names);
  return { type: "children_seen", children: found.map(toChildState), startedBy };
}

/**
 * The children of a transition, and the name that it had when it started them: the newest name that has
 * any, or the oldest one where there are none.
 */
export async function findChildRows(
  database: Database,
  runId: string,
  names: readonly string[],
): Promise<{ found: Row[]; startedBy: string }> {
  let found: Row[] = [];
  let startedBy = names[0]!;
  for (const name of names) {
    found = await database.read(childrenOf(runId, name));
    startedBy = name;
    if (found.some((row) => row["status"] !== null)) break;
  }
  return { found, startedBy };
}

function toChildState(row: Row): ChildState {
  const child = { taskId: row["dependency_id"] as string, name: (row["name"] ?? "") as string };
  switch (row["status"]) {
    case "pending":
    case "claimed":
      return { ...child, status: "open" };
    case "completed":
      return { ...child, status: "completed", result: lenientJson(row["result"]) };
    case "failed":
      return {
        ...child,
        status: "failed",
        error: (lenientJson(row["error"]) ?? unknown) as RunError,
      };
    case "cancelled":
      return { ...child, status: "cancelled" };
    default:
      return { ...child, status: "gone" };
  }
}
