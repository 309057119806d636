/**
 * The steps of runs: one that is stored isn't called again by the claim that has the run, none is stored
 * by another claim or at another transition, and none outlives its transition.
 */
import { sleep } from "../../../src/base/clock.ts";
import type { HistoryEvent } from "../../../src/flows/decide/run.ts";
import type { Step } from "../../../src/steps/model.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Noted } from "../audit.ts";
import type { SimPod } from "../pod.ts";
import type { World } from "../world.ts";
import { childrenSteps, type Context, type Fate, firstName, flowNames } from "./machines.ts";

const open = ["pending", "claimed"];
/** Its function only says how long to sleep. */
const sleeping = "cool";

export type RunSteps = ReturnType<typeof createRunSteps>;

export function createRunSteps(world: World, rows: ReadonlyMap<string, Row>) {
  const { violate, count, store } = world;

  const isStored = (runId: string, part: string, key: string): boolean => {
    for (const row of store.rows("step_journal")) {
      const isMeant = row["owner_id"] === runId && row["part"] === part && row["key"] === key;
      if (isMeant && row["kind"] === "done") return true;
    }
    return false;
  };

  /** Calls a few steps, one after the other and at the same time. */
  const call = async (pod: SimPod, context: Context, { workMs }: Fate): Promise<void> => {
    const { runId, transition, token } = context;
    const part = firstName(transition);
    if (part in childrenSteps || part === sleeping) return;
    const { step } = context as unknown as { step: Step };
    const work = (key: string) => async (): Promise<string> => {
      const isOurs = rows.get(runId)!["claim_token"] === token;
      if (isOurs && isStored(runId, part, key)) {
        violate("F8", `${part}.${key} of ${runId.slice(-6)}@${token} is called again`);
      }
      count("step of a run: called");
      if (workMs % 3 > 0) await sleep(pod.clock, workMs % 60);
      return key;
    };
    await step("first", work("first"));
    await Promise.all(["a", "b"].map((key) => step("beside", { key }, work(`beside[${key}]`))));
    await step("outer", (outer) => outer.step("inner", work("outer/inner")));
  };

  return {
    call,
    /** Judges what a write has stored. */
    judge(noted: readonly Noted[]): void {
      for (const { table, after } of noted) {
        if (table !== "step_journal" || !after) continue;
        const run = rows.get(after["owner_id"]);
        if (!run || !flowNames.includes(run["name"])) continue;
        const { part, key, token } = after;
        const what = `${part}.${key} of ${after["owner_id"].slice(-6)}@${token}`;
        if (run["claim_token"] !== token || !open.includes(run["status"])) {
          violate("F8", `${what} is stored while it is ${run["status"]}@${run["claim_token"]}`);
        }
        if (firstName(run["cursor"]) !== part) {
          violate("F8", `${what} is stored while the run stands at ${run["cursor"]}`);
        }
        count("step of a run: stored");
      }
    },
    /** Judges what is left of transitions that have completed. */
    judgeOver(row: Row, events: readonly HistoryEvent[]): void {
      for (const event of events) {
        if (event.type !== "complete") continue;
        const part = firstName(event.transition);
        for (const stored of store.rows("step_journal")) {
          if (stored["owner_id"] !== row["task_id"] || stored["part"] !== part) continue;
          violate("F8", `${part}.${stored["key"]} outlives its transition`);
        }
      }
    },
  };
}
