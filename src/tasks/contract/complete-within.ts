import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { CallerConnection, StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";
import type { TaskContext } from "../model.ts";

/** What a handler is promised that completes its task in a transaction of its own. */
export function completeWithinContract(kind: StoreKind): void {
  if (!kind.callers) return;
  describe(`completing within the handler's transaction on ${kind.name}`, () => {
    let queue: TasksHarness;
    let caller: CallerConnection;

    beforeEach(async () => {
      queue = await openTasks(kind);
      caller = await queue.store.caller!();
      await caller.exec("create table if not exists effects (body text)");
      await caller.exec("delete from effects");
    });
    afterEach(async () => {
      await caller.close();
      await queue.close();
    });

    const effects = async () => (await caller.all("select body from effects")).length;
    type Handler = (context: TaskContext<string>, connection: CallerConnection) => Promise<unknown>;
    /** Runs one task by this handler, and gives how it ended. */
    const runOne = async (handler: Handler, { attempts = 1 } = {}) => {
      const run = (context: TaskContext<string>) => handler(context, caller);
      await queue.work("pod-1", [
        task("pay", { attempts, backoff: { baseMs: 1, jitter: 0 } }, run),
      ]);
      const { taskId } = await queue.enqueue("pay", "order");
      return queue.ended(taskId);
    };
    const pay = async (connection: CallerConnection, context: TaskContext<string>) => {
      await connection.begin();
      await connection.exec("insert into effects values ('paid')");
      return context.complete(connection.handle, { paid: context.input });
    };

    test("commits its writes and the completion together", async () => {
      const ended = await runOne(async (context, connection) => {
        const result = await pay(connection, context);
        expect(await queue.get(context.taskId)).toMatchObject({ status: "claimed" });
        await connection.exec("commit");
        return result;
      });
      expect(ended).toMatchObject({ status: "completed", result: { paid: "order" }, failures: 0 });
      expect(await effects()).toBe(1);
    });

    test("rolls both back, and the attempt has failed though the handler returned", async () => {
      const ended = await runOne(async (context, connection) => {
        await pay(connection, context);
        await connection.exec("rollback");
      });
      expect(ended).toMatchObject({ status: "failed", error: { code: "not_committed" } });
      expect(await effects()).toBe(0);
    });

    test("is over once committed, whatever the handler does then", async () => {
      const ended = await runOne(
        async (context, connection) => {
          await pay(connection, context);
          await connection.exec("commit");
          throw new Error("the answer to the commit was lost");
        },
        { attempts: 3 },
      );
      expect(ended).toMatchObject({ status: "completed", failures: 0 });
      expect(await effects()).toBe(1);
    });

    test("is waited for where the handler returns before it commits", async () => {
      const { database } = queue;
      let returned = false;
      // The worker has read that nothing is committed, and sends its own outcome: only now commit.
      const write: typeof database.write = async (statements, options) => {
        const written = database.write(statements, options);
        if (returned) await caller.exec("commit");
        returned = false;
        return written;
      };
      const run = async (context: TaskContext<string>) => {
        const result = await pay(caller, context);
        returned = true;
        return result;
      };
      await queue.work("pod-1", [task("pay", {}, run)], { database: { ...database, write } });
      const { taskId } = await queue.enqueue("pay", "order");
      await queue.until("the end", () => queue.told.find((event) => event.type === "ended"));
      expect(queue.told).toContainEqual(expect.objectContaining({ outcome: "completed" }));
      expect(await queue.get(taskId)).toMatchObject({ status: "completed", failures: 0 });
      expect(await effects()).toBe(1);
    });

    test("may be tried again by the handler itself", async () => {
      const ended = await runOne(async (context, connection) => {
        await pay(connection, context);
        await connection.exec("rollback");
        await pay(connection, context);
        await connection.exec("commit");
      });
      expect(ended).toMatchObject({ status: "completed", failures: 0 });
      expect(await effects()).toBe(1);
    });

    test("is refused to an attempt whose task another pod has claimed since", async () => {
      let refusal: unknown;
      await queue.beat("pod-2");
      const run = async (context: TaskContext<string>) => {
        await queue.recover("pod-1", [context]);
        expect(await queue.claim("pod-2", ["pay"])).toHaveLength(1);
        refusal = await pay(caller, context).catch((error: unknown) => error);
        await caller.exec("rollback");
      };
      await queue.work("pod-1", [task("pay", {}, run)]);
      const { taskId } = await queue.enqueue("pay", "order");
      await queue.until("a refusal", () => refusal);
      expect(refusal).toMatchObject({ code: "claim_lost" });
      await queue.until("the end of the attempt", () =>
        queue.told.some((event) => event.type === "ended"),
      );
      expect(await queue.row(taskId)).toMatchObject({ status: "claimed", claimed_by: "pod-2" });
      expect(await effects()).toBe(0);
    });
  });
}
