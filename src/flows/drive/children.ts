import type { Ids } from "../../base/ids.ts";
import { prepareTask } from "../../tasks/enqueue/options.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { TaskContract } from "../../tasks/task.ts";
import { childKey, type Effect } from "../decide/decision.ts";

export type ChildrenParts = {
  ids: Ids;
  maxPayloadBytes: number;
  runId: string;
  tenant: string;
  trace: string | null;
  /** The name by which the transition has started them before, where that was another. */
  startedBy?: string | undefined;
};

/** The rows of the runs that a decision starts. Rejects where one of them can't be stored. */
export async function rowsOfChildren(
  effects: readonly Effect[],
  { runId, tenant, trace, startedBy, ...parts }: ChildrenParts,
): Promise<NewTask[]> {
  const rows: NewTask[] = [];
  for (const effect of effects) {
    if (effect.type !== "start_children") continue;
    for (const [place, { flow, input, options }] of effect.children.entries()) {
      const key = childKey(runId, startedBy ?? effect.transition, place);
      const given = { tenant, ...options, key };
      const row = await prepareTask(flow as TaskContract, input, given, parts, trace);
      rows.push({ ...row, parentId: runId });
    }
  }
  return rows;
}
