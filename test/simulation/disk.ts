/**
 * The disk of one place of the fleet: it outlives the pods that run there, one after the other, and is
 * lost now and then. A write takes a moment; a pod that dies meanwhile doesn't know what became of it.
 */
import { FlotillaError } from "../../src/base/errors.ts";
import { type OutboxEntry, outboxKeyOf, type OutboxDisk } from "../../src/tasks/finish/outbox.ts";
import { readTaskStates } from "../../src/tasks/sql/finish.ts";
import type { Lane } from "./lane.ts";
import type { World } from "./world.ts";

export type SimDisk = {
  /** How many outcomes are kept there. */
  readonly kept: number;
  /** The disk as a pod on this thread has it. */
  attach(lane: Lane): OutboxDisk;
  lose(): void;
};

export function createSimDisk(world: World): SimDisk {
  const { scheduler } = world;
  const entries = new Map<string, OutboxEntry>();

  /** A step's row, or that of a later round or of the step around it, which has a higher number. */
  const isStored = (taskId: string, token: number, number: number): boolean => {
    for (const { owner_id, token: under, seq } of world.store.rows("step_journal")) {
      if (owner_id === taskId && under === token && seq >= number) return true;
    }
    return false;
  };

  /** What is dropped must have been stored, or lost to another claim: no other pod will ever send it. */
  const judgeDropped = async (dropped: Parameters<OutboxDisk["write"]>[1]): Promise<void> => {
    if (dropped.length === 0) return;
    const rows = await world.store.database.read(
      readTaskStates(dropped.map(({ taskId }) => taskId)),
    );
    for (const { taskId, token, step } of dropped) {
      if (step && isStored(taskId, token, step.seq)) continue;
      const row = rows.find((each) => each["task_id"] === taskId);
      // A run has stored more since, and has forgotten the step with its transition.
      if (step && Number(row?.["run_seq"]) > 0) continue;
      const open = row?.["status"] === "claimed" || row?.["status"] === "pending";
      if (open && Number(row["claim_token"]) === token) {
        world.violate("outbox", `${taskId.slice(-6)}@${token} was dropped and isn't stored`);
      }
    }
  };

  return {
    get kept() {
      return entries.size;
    },
    attach: (lane) => ({
      async takeOver() {
        if (entries.size > 0) world.count("outbox: taken over");
        return [...entries.values()];
      },
      write: (kept, dropped) =>
        new Promise((resolve, reject) => {
          const failing = world.chance(world.troubles.refused);
          scheduler.after(world.between(1, 10), () => {
            if (failing) {
              return lane.enter(() => reject(new FlotillaError("store_full", "simulated")));
            }
            for (const key of dropped) entries.delete(outboxKeyOf(key));
            for (const entry of kept) entries.set(outboxKeyOf(entry.finish), entry);
            if (kept.length > 0) world.count("outbox: kept");
            void judgeDropped(dropped);
            lane.enter(resolve);
          });
        }),
      close: async () => {},
    }),
    lose() {
      if (entries.size > 0) world.count("outbox: lost");
      entries.clear();
    },
  };
}
