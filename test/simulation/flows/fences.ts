/** Which writes of runs a fence refused. */
import type { Row } from "../../../src/store/database.ts";
import type { Change } from "../audit.ts";
import type { Intent } from "../kinds.ts";
import type { World } from "../world.ts";
import { waitsForChildren } from "./families.ts";

export function countRunFences(
  world: World,
  intent: Intent,
  rows: ReadonlyMap<string, Row>,
  changes: readonly Change[],
): void {
  const changed = new Set(changes.map(({ taskId }) => taskId));
  for (const sent of intent.rows) {
    const met = rows.get(sent["task_id"] as string);
    if (!met || changed.has(sent["task_id"] as string)) continue;
    if (met["claim_token"] !== sent["token"]) world.count("fence: run, token");
    else if (met["run_seq"] !== sent["run_seq"]) world.count("fence: run, seq");
    else if (met["status"] !== "claimed" && met["status"] !== "pending") {
      world.count("fence: run, status");
    } else if (sent["wake"] != null && met["wake"] !== sent["wake"]) {
      world.count("fence: run, wake");
      if (waitsForChildren(met)) world.count("fence: run, wake at children");
    } else if (Number(met["dependents"]) > 0) world.count("fence: run, awaited");
  }
}
