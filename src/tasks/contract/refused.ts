import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { finishTasks } from "../sql/finish.ts";
import { task } from "../task.ts";

// A statement is known by its template, which is the same object every time it is made.
const finishText = finishTasks([]).strings;

/** What becomes of tasks of which the store takes no word, or not every one. */
export function refusedContract(kind: StoreKind): void {
  describe(`endings that ${kind.name} refuses for good`, () => {
    let queue: TasksHarness;
    let runs: number;
    let refuses: (words: string) => boolean;
    beforeEach(async () => {
      queue = await openTasks(kind);
      runs = 0;
      refuses = () => false;
    });
    afterEach(() => queue.close());

    const workWith = async (answer: () => unknown) => {
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const finish = statements.find((each) => each.strings === finishText);
          if (finish && refuses(JSON.stringify(finish.parts))) {
            throw new FlotillaError("internal", "a constraint of somebody's");
          }
          return queue.database.write(statements, options);
        },
      };
      const handler = task("a", { attempts: 1 }, () => {
        runs++;
        return answer();
      });
      await queue.work("pod-1", [handler], { database });
      return queue.enqueue("a", 1);
    };

    test("fail the task with the reason, where that is taken", async () => {
      refuses = (words) => words.includes("ugly");
      const { taskId } = await workWith(() => "ugly");
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: {
          code: "payload_not_storable",
          message: 'the store refused the result of "a": a constraint of somebody\'s',
        },
      });
    });

    test("fail the task without the error message that was refused", async () => {
      refuses = (words) => words.includes("ugly") || words.includes("constraint");
      const { taskId } = await workWith(() => {
        throw new Error("ugly");
      });
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { message: "the store refused the outcome; the pod's log says why" },
      });
    });

    test("give the task back for later, where nothing else is taken", async () => {
      refuses = (words) => !words.includes('"pending"');
      const { taskId } = await workWith(() => "done");
      await queue.until("it ran", () => runs === 1);
      const task = await queue.until("it is given back", async () => {
        const found = await queue.get(taskId);
        return found?.status === "pending" && found.claimToken > 1 ? found : undefined;
      });
      expect(task).toMatchObject({ failures: 0 });
      expect(task.runAtMs - task.updatedAtMs).toBe(60_000);
      refuses = () => false;
      await queue.pass(61_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(runs).toBe(2);
    });

    test("are sent again where one was refused after an answer to it was lost", async () => {
      const troubles = ["unknown_outcome", "internal"] as const;
      let sent = 0;
      refuses = () => {
        const trouble = troubles[sent++];
        if (trouble) throw new FlotillaError(trouble, "in trouble");
        return false;
      };
      const { taskId } = await workWith(() => "done");
      await queue.until("both troubles", () => sent >= troubles.length, { stepMs: 50 });
      await queue.pass(60_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(runs).toBe(1);
    });

    test("are sent again until the store takes one", async () => {
      refuses = () => true;
      const { taskId } = await workWith(() => "done");
      await queue.until("it ran", () => runs === 1);
      await queue.pass(20_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed" });
      refuses = () => false;
      await queue.pass(60_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(runs).toBe(1);
    });
  });
}
