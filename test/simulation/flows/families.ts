/** Parents and children: a parent goes on with what all of them gave, and takes them with it if it is cancelled. */
import type { HistoryEvent } from "../../../src/flow/history.ts";
import type { Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import type { Input } from "./machines.ts";

const childrenParts = ["kids", "parcels"];
const waitsForChildren = (row: Row | undefined) => String(row?.["waiting"]).includes("children");
const short = (row: Row) => (row["task_id"] as string).slice(-6);
const isOpen = (row: Row) => row["status"] === "pending" || row["status"] === "claimed";

export function createFamilies(world: World) {
  const { violate } = world;
  const childrenOf = (runId: string) =>
    world.store.database.read(
      sql`select * from ${table("step_tracker")} where parent_id = ${runId} order by unique_key`,
    );

  const judgeCompleted = (row: Row, value: unknown, children: readonly Row[], what: string) => {
    const { kids } = JSON.parse(row["payload"]) as Input;
    if (children.length !== kids.length) {
      violate("children", `${what}: ${children.length} were started of ${kids.length}`);
    }
    const late = children.find(isOpen);
    if (late) violate("F6", `${what}: went on while ${late["task_id"].slice(-6)} was open`);
    const given = (value as unknown[]).map((each) => JSON.stringify(each));
    const isKept = row["name"] === "order";
    const wanted = children.map((child) => {
      if (!isKept) return child["result"] as string;
      const status = child["status"] as string;
      if (status === "completed") return `{"status":"completed","output":${child["result"]}}`;
      return status === "cancelled"
        ? `{"status":"cancelled"}`
        : `{"status":"failed","error":${child["error"]}}`;
    });
    if (given.join() !== wanted.join()) {
      violate("children", `${what}: they gave ${wanted.join()}, it has ${given.join()}`);
    }
  };

  return {
    async judge(
      row: Row,
      before: Row | undefined,
      events: readonly HistoryEvent[],
      rows: ReadonlyMap<string, Row>,
    ): Promise<void> {
      const parent = row["parent_id"] === null ? undefined : rows.get(row["parent_id"]);
      if (row["parent_id"] !== null && !before && !waitsForChildren(parent)) {
        violate("children", `${row["task_id"].slice(-6)} was started, and nobody waits for it`);
      }
      if (row["name"] !== "order" && row["name"] !== "parent") return;
      const what = `${row["name"]} ${row["task_id"].slice(-6)}`;
      for (const event of events) {
        if (event.type === "complete" && childrenParts.includes(event.transition)) {
          world.count("children: all ended");
          const children = await childrenOf(row["task_id"]);
          judgeCompleted(row, event.set![event.transition], children, what);
        }
        if (event.type === "park" && event.waiting?.for === "children") {
          const isFailed = (child: Row) => !isOpen(child) && child["status"] !== "completed";
          const left = (await childrenOf(row["task_id"])).find(isFailed);
          if (left) violate("children", `${what}: waits for ${left["status"]} ${short(left)}`);
        }
        if (event.type !== "cancel" || !waitsForChildren(before)) continue;
        world.count("children: cancelled with their parent");
        const left = (await childrenOf(row["task_id"])).find(
          (child) => isOpen(child) && Number(child["cancel_requested"]) === 0,
        );
        if (left) violate("cancel", `${what}: its child ${left["task_id"].slice(-6)} goes on`);
      }
    },
  };
}
