import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database, Row } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { heldOpen } from "./worker.ts";

type Held = {
  readonly landed: Promise<Row[][]>;
  /** Lets the worker have the answer. */
  answer(): void;
  /** The answer is lost on its way. */
  lose(): void;
};

/** A store whose answers to claims come when the test says so. The claims themselves land at once. */
function holdingClaims(database: Database) {
  const calls: Held[] = [];
  let holding = true;
  const held: Database = {
    ...database,
    write(statements, options) {
      const answer = database.write(statements, options);
      // Only a claim reads ahead, too, and is sent without a notification.
      if (!holding || statements.length < 2 || options?.notify !== undefined) return answer;
      return new Promise((resolve, reject) => {
        calls.push({
          landed: answer,
          answer: () => void answer.then(resolve, reject),
          lose: () => reject(new FlotillaError("unknown_outcome", "the answer was lost")),
        });
      });
    },
  };
  const letGo = () => {
    holding = false;
    for (const call of calls) call.answer();
  };
  return { database: held, calls, letGo };
}

/** What a worker promises while two of its claim calls are under way. */
export function twoClaimsContract(kind: StoreKind): void {
  describe(`two claims under way on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    /** No time passes however slow the store is, since a worker gives up a claim that is held for long. */
    const until = <Found>(what: string, condition: () => Found | Promise<Found>) =>
      queue.until(what, condition, { stepMs: 0 });

    /** A pod with eight places. Its first claim has brought four tasks, which have ended since. */
    const withTwoUnderWay = async ({ tasks = 40, poison = false } = {}) => {
      const { handler, attempts } = heldOpen("a");
      await queue.enqueueMany(
        "a",
        Array.from({ length: tasks }, (_, at) => at),
      );
      const store = holdingClaims(queue.database);
      const floors: number[] = [];
      const worker = await queue.work("pod-1", [handler], {
        database: store.database,
        capacity: { slots: 8, target: 1 },
        onAbandoned: (call: number) => floors.push(call),
      });
      const { calls } = store;
      const first = await until("the first claim", () => calls[0]);
      await first.landed;
      if (poison) {
        await queue.database.write([
          sql`insert into ${rowsOf} (task_id, name, payload, deaths) values ('poison', 'a', '1', 2)`,
        ]);
      }
      first.answer();
      await until("its tasks", () => attempts.length === 4);
      // Half of the places are taken, and what the claim under way may bring takes the rest.
      expect(calls).toHaveLength(2);
      await calls[1]!.landed;
      for (const attempt of attempts) attempt.finish(1);
      await until("two claims", () => calls.length === 3);
      await Promise.all(calls.map((call) => call.landed));
      const finishAll = () => {
        for (const attempt of attempts) attempt.finish(1);
      };
      /** Lets everything run that is left, and sees that it has run once. */
      const runOut = async () => {
        store.letGo();
        await queue.until("the end of all", async () => {
          finishAll();
          return (await queue.stats()).byStatus.completed === tasks + (poison ? 1 : 0);
        });
      };
      return { ...store, worker, attempts, floors, finishAll, runOut };
    };

    test("never bring more than there are free slots for, and no third is made", async () => {
      const { calls, worker, attempts, runOut } = await withTwoUnderWay();
      await queue.pass(2_000);
      worker.wake();
      expect(calls).toHaveLength(3);
      calls[1]!.answer();
      calls[2]!.answer();
      await until("their tasks", () => attempts.length === 12);
      expect(worker.running).toBe(8);
      await queue.pass(2_000);
      expect(calls).toHaveLength(3);
      await runOut();
      expect(await queue.count(sql`claim_token = 1`)).toBe(40);
    });

    test("are no longer made once one has come short", async () => {
      const { calls, worker, finishAll, attempts, runOut } = await withTwoUnderWay({ tasks: 10 });
      calls[1]!.answer();
      await until("its tasks", () => attempts.length === 8);
      calls[2]!.answer();
      await until("all tasks", () => attempts.length === 10);
      await until("another claim", () => calls.length === 4);
      finishAll();
      await queue.pass(2_000);
      worker.wake();
      expect(calls).toHaveLength(4);
      await runOut();
    });

    test.each([
      ["older", [1, 2]],
      ["newer", [2, 1]],
    ] as const)("leave each other alone when the %s is given up", async (_, [lost, kept]) => {
      const { calls, attempts, floors, runOut } = await withTwoUnderWay();
      const rowsOfCall = async (at: number) =>
        (await calls[at]!.landed).find((rows) => rows.length === 4)!.map((row) => row["task_id"]);
      const [given, held] = [await rowsOfCall(lost), await rowsOfCall(kept)];
      calls[lost]!.lose();
      await until("the release", async () => {
        const rows = await Promise.all(given.map((taskId) => queue.row(taskId)));
        return rows.every((row) => row["claim_call"] !== lost + 1);
      });
      calls[kept]!.answer();
      await until("what was kept", () => attempts.length >= 8);
      const ran = attempts.slice(4, 8).map(({ context }) => [context.taskId, context.token]);
      expect(new Map(ran as [string, number][])).toEqual(
        new Map(held.map((taskId) => [taskId, 1])),
      );
      expect(floors).toEqual([lost + 1]);
      await runOut();
      expect(await queue.count(sql`claim_token = 3`)).toBe(4);
    });

    test("are both given up, the newer first, and the floor never sinks", async () => {
      const { calls, floors, runOut } = await withTwoUnderWay();
      calls[2]!.lose();
      await until("the first release", () => floors.length === 1);
      calls[1]!.lose();
      await until("the second release", () => floors.length === 2);
      expect(floors).toEqual([3, 3]);
      await runOut();
      expect(await queue.count(sql`claim_token = 3`)).toBe(8);
    });

    test("are both over, and what they brought, before a task runs that must run alone", async () => {
      const { calls, worker, attempts, finishAll, runOut } = await withTwoUnderWay({
        poison: true,
      });
      calls[1]!.answer();
      await until("its tasks", () => attempts.length === 8);
      finishAll();
      // This one is made because the last has seen the poison, and marks it.
      await until("a claim beside the other", () => calls.length === 4);
      calls[3]!.answer();
      await until("its tasks", () => attempts.length === 12);
      expect(worker.state).toBe("draining for one");
      finishAll();
      await until("their end", async () => (await queue.stats()).byStatus.completed === 12);
      worker.wake();
      await queue.pass(2_000);
      expect(calls).toHaveLength(4);
      calls[2]!.answer();
      await until("the tasks of the last", () => attempts.length === 16);
      expect(worker.state).toBe("draining for one");
      await queue.pass(2_000);
      expect(calls).toHaveLength(4);
      finishAll();
      await until("the claim of the poison", () => calls.length === 5);
      worker.wake();
      await queue.pass(2_000);
      expect(calls).toHaveLength(5);
      calls[4]!.answer();
      await until("the poison", () => attempts.length === 17);
      expect(attempts[16]!.context.taskId).toBe("poison");
      expect(worker.running).toBe(1);
      await runOut();
    });
  });
}
