/**
 * Parents and children: a parent goes on with what all children of the step gave, and takes them with it if
 * it is cancelled. Whose children they are is read from their keys alone, and not from the notes of who waits
 * for whom, which the product goes by.
 */
import type { HistoryEvent } from "../../../src/flows/decide/run.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Intent } from "../kinds.ts";
import type { World } from "../world.ts";
import { childrenSteps, firstName, type Input, keptFailures } from "./machines.ts";

const open = ["pending", "claimed"];
const isOpen = (row: Row) => open.includes(row["status"]);
export const waitsForChildren = (row: Row | undefined) =>
  String(row?.["waiting"]).includes("children");
const short = (row: Row) => (row["task_id"] as string).slice(-6);
const stepAt = (parent: Row) => firstName(parent["cursor"] ?? "");

/** The step that has started a child: a key is made of the run, the step and the child's place. */
const stepOf = (child: Row) => firstName((child["unique_key"] as string).split("/").at(-2)!);
const placeOf = (child: Row) => Number((child["unique_key"] as string).split("/").at(-1));

export type Families = ReturnType<typeof createFamilies>;

export function createFamilies(world: World, rows: ReadonlyMap<string, Row>) {
  const { violate } = world;
  const idsOf = new Map<string, Set<string>>();

  const childrenOf = (runId: string): Row[] =>
    [...(idsOf.get(runId) ?? [])].map((childId) => rows.get(childId)!);
  const childrenAt = (runId: string, step: string): Row[] =>
    childrenOf(runId)
      .filter((child) => stepOf(child) === step)
      .toSorted((one, other) => placeOf(one) - placeOf(other));

  const judgeCompleted = (row: Row, step: string, value: unknown, what: string): void => {
    const children = childrenAt(row["task_id"], step);
    const wantedKids = childrenSteps[step]!(JSON.parse(row["payload"]) as Input);
    if (children.length !== wantedKids.length) {
      violate("children", `${what}: ${children.length} were started of ${wantedKids.length}`);
    }
    const late = children.find(isOpen);
    if (late) violate("F6", `${what}: went on while ${short(late)} was open`);
    const given = (value as unknown[]).map((each) => JSON.stringify(each));
    const wanted = children.map((child) => {
      if (!keptFailures.includes(step)) return child["result"] as string;
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

  /** A parent that fails for its children does so when all have ended, and for one that has failed. */
  const judgeFailed = (row: Row, step: string, culpritId: string, what: string): void => {
    const late = childrenAt(row["task_id"], step).find(isOpen);
    if (late) violate("F6", `${what}: failed while ${short(late)} was open`);
    const culprit = rows.get(culpritId);
    if (!culprit || culprit["parent_id"] !== row["task_id"] || stepOf(culprit) !== step) {
      violate("children", `${what}: failed for ${culpritId.slice(-6)}, which isn't of its step`);
    }
  };

  /** A child that has ended and is open again: where its parent stands decides what may go wrong. */
  const noteStartedOver = (intent: Intent, child: Row, parent: Row): void => {
    if (intent.kind !== "retry" && intent.kind !== "redrive_step") return;
    world.count(`children: started over by ${intent.kind}`);
    if (!isOpen(parent)) return;
    const isOwn = waitsForChildren(parent) && stepAt(parent) === stepOf(child);
    if (!isOwn && waitsForChildren(parent)) {
      world.count("children: of an earlier step, started over");
    }
  };

  const judgeEvent = (row: Row, before: Row | undefined, event: HistoryEvent): void => {
    const what = `${row["name"]} ${short(row)}`;
    const runId = row["task_id"] as string;
    const step = "transition" in event ? firstName(event.transition) : "";
    if (event.type === "complete" && step in childrenSteps) {
      world.count("children: all ended");
      judgeCompleted(row, step, event.set![event.transition], what);
    }
    if (event.type === "error" && step in childrenSteps && waitsForChildren(before)) {
      const { code, taskId } = event.error as { code: string; taskId?: string };
      if (code === "dependency_failed" && taskId !== undefined) {
        world.count("children: failed their parent");
        judgeFailed(row, step, taskId, what);
      }
    }
    if (event.type === "park" && event.waiting?.for === "children") {
      const isFailed = (child: Row) => !isOpen(child) && child["status"] !== "completed";
      const left = childrenAt(runId, step).find(isFailed);
      if (left) violate("children", `${what}: waits for ${left["status"]} ${short(left)}`);
    }
    if (event.type === "cancel" && waitsForChildren(before)) {
      world.count("children: cancelled with their parent");
      const left = childrenAt(runId, step).find(
        (child) => isOpen(child) && Number(child["cancel_requested"]) === 0,
      );
      if (left) violate("cancel", `${what}: its child ${short(left)} goes on`);
    }
  };

  return {
    /** The children of a run that have failed or were cancelled, of whatever step. */
    failedOf: (runId: string): Row[] =>
      childrenOf(runId).filter((child) => !isOpen(child) && child["status"] !== "completed"),
    /**
     * Whether a run that waits for others may go on waiting: for the children of its step, and before that
     * for what it was to run after. One that was started over waits anew, for whatever of these is open.
     */
    mayWait(row: Row): boolean {
      if (childrenAt(row["task_id"], stepAt(row)).some(isOpen)) return true;
      if (waitsForChildren(row)) return false;
      const { after = [] } = JSON.parse(row["payload"]) as Input;
      return after.some((runId) => isOpen(rows.get(runId)!));
    },
    judge(
      intent: Intent,
      row: Row,
      before: Row | undefined,
      events: readonly HistoryEvent[],
    ): void {
      const parentId = row["parent_id"] as string | null;
      const parent = parentId === null ? undefined : rows.get(parentId);
      if (parentId !== null && !before) {
        idsOf.set(parentId, (idsOf.get(parentId) ?? new Set()).add(row["task_id"]));
        if (!waitsForChildren(parent) || stepAt(parent!) !== stepOf(row)) {
          violate("children", `${short(row)} was started, and nobody waits for it`);
        }
      }
      if (parent && before && !isOpen(before) && isOpen(row)) noteStartedOver(intent, row, parent);
      for (const event of events) judgeEvent(row, before, event);
    },
  };
}
