import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { actAs } from "../../audit/actor.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { readPauses } from "../claim/pauses.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { claimTasks } from "../sql/claim.ts";
import { dropPause, putPause } from "../sql/limits.ts";
import { task } from "../task.ts";

/** What pausing promises on every store. */
export function pauseContract(kind: StoreKind): void {
  describe(`pausing on ${kind.name}`, () => {
    let queue: TasksHarness;
    const ran: string[] = [];
    const handlers = ["a", "b"].map((name) => task(name, {}, () => void ran.push(name)));
    beforeEach(async () => {
      queue = await openTasks(kind);
      ran.length = 0;
    });
    afterEach(() => queue.close());

    const settle = async () => {
      for (let times = 0; times < 3; times++) await queue.pass(1_500);
    };

    test("a name isn't claimed while it is paused, the others are, and it goes on at once when resumed", async () => {
      const worker = await queue.work("pod-1", handlers, { pollMs: 3_600_000 });
      await queue.pause("a", { reason: "its API is down" });
      expect(await queue.paused()).toMatchObject([{ name: "a", reason: "its API is down" }]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.ended((await queue.enqueue("b", 1)).taskId);
      await settle();
      expect(ran).toEqual(["b"]);
      expect(worker.state).not.toBe("paused");
      await queue.resume("a");
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(await queue.paused()).toEqual([]);
    });

    test("a pause says by which actor it was made, and not by that of an earlier one", async () => {
      const by = async () => (await queue.paused()).map(({ by: actor }) => actor);
      await actAs({ kind: "key", keyName: "ops" }, () => queue.pause("a"));
      expect(await by()).toEqual(["key/ops"]);
      await actAs({ kind: "user", user: "zoe" }, () => queue.pause("a", { reason: "again" }));
      // It was paused already, and stays the pause that it was.
      expect(await by()).toEqual(["key/ops"]);
      await queue.resume("a");
      await queue.database.write([
        sql`update ${table("audit")} set at = at - 60000 where subject = 'a'`,
      ]);
      // As one of a handler, which leaves no entry.
      await queue.database.write([putPause("a", null, 1_000)]);
      expect(await by()).toEqual([null]);
    });

    test("everything waits while everything is paused, whatever its limits or its deaths, and what runs goes on", async () => {
      const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
      const long = task("long", {}, () => finished);
      const worker = await queue.work("pod-1", [...handlers, long]);
      const { taskId: runs } = await queue.enqueue("long", 1);
      await queue.inStatus(runs, "claimed");
      await queue.pause();
      await queue.enqueue("a", 1);
      await queue.enqueue("a", 1, { tenant: "acme" });
      const { taskId: alone } = await queue.enqueue("b", 1);
      await queue.database.write([sql`update ${rowsOf} set deaths = 2 where task_id = ${alone}`]);
      await queue.until("the worker to know", () => worker.state === "paused");
      finish();
      await queue.ended(runs);
      await settle();
      expect(ran).toEqual([]);
      await queue.resume();
      await queue.until("all", async () => (await queue.stats()).byStatus.completed === 4);
    });

    test("ending the pause of everything leaves names paused", async () => {
      await queue.pause("a");
      await queue.pause();
      await queue.resume();
      expect((await queue.paused()).map(({ name }) => name)).toEqual(["a"]);
      await queue.work("pod-1", handlers);
      await queue.enqueue("a", 1);
      await queue.ended((await queue.enqueue("b", 1)).taskId);
      await settle();
      expect(ran).toEqual(["b"]);
    });

    test("a claim that was decided before a pause takes nothing after it", async () => {
      await queue.beat("pod-1");
      const { number } = await readPauses(queue.database, "pod-1");
      await queue.enqueue("a", 1);
      const claim = (pauses: number, call: number) =>
        claimTasks({ podId: "pod-1", call, names: ["a"], limit: 1, pauses });
      await queue.pause("a");
      expect(await queue.database.write([claim(number, 1)])).toEqual([[]]);
      await queue.resume("a");
      expect(await queue.database.write([claim(number, 2)])).toEqual([[]]);
      const known = await readPauses(queue.database, "pod-1");
      expect((await queue.database.write([claim(known.number, 3)]))[0]).toHaveLength(1);
    });

    test("a pod that was forgotten and comes back doesn't know of pauses it had known", async () => {
      await queue.beat("pod-1");
      const { number } = await readPauses(queue.database, "pod-1");
      await queue.pause("a");
      await queue.database.write([sql`delete from ${table("pod")}`]);
      await queue.pass(5);
      await new Promise((resolve) => setTimeout(resolve, 5));
      await queue.beat("pod-1");
      expect((await readPauses(queue.database, "pod-1")).number).not.toBe(number);
    });

    test("claims under way at the same moment as a pause are over when it has resolved", async () => {
      await queue.beat("pod-1", "pod-2");
      await queue.enqueueMany(
        "a",
        Array.from({ length: 200 }, (_, at) => at),
      );
      let call = 0;
      const claiming = async (podId: string): Promise<void> => {
        for (;;) {
          const { number, names } = await readPauses(queue.database, podId);
          if (names.has("a")) return;
          const claim = { podId, call: ++call, names: ["a"], limit: 1, pauses: number };
          await queue.database.write([claimTasks(claim)]);
          await new Promise((resolve) => setImmediate(resolve));
        }
      };
      const pods = ["pod-1", "pod-2"].map(claiming);
      await queue.until(
        "some claims",
        async () => (await queue.count(sql`status = 'claimed'`)) > 5,
      );
      await queue.pause("a");
      const before = await queue.count(sql`status = 'claimed'`);
      await Promise.all(pods);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(before);
    });

    /** The first send of a statement isn't answered, and is on its way until it is let go. */
    const heldUp = (held: Statement, answers = true) => {
      let late: readonly Statement[] | undefined;
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const isIt = statements.some(({ strings }) => strings === held.strings);
          if (!isIt || (late && answers)) return queue.database.write(statements, options);
          late ??= statements;
          throw new FlotillaError("unknown_outcome", "no answer came");
        },
      };
      // One that has landed before is refused, because its entry is in the audit.
      const land = () =>
        queue.database.write(late!).catch((error: unknown) => {
          if (!hasCode(error, "duplicate_key")) throw error;
        });
      return { client: queue.client({ database }), land };
    };
    const pausedNames = async () => (await queue.paused()).map(({ name }) => name);

    test("a pause that was sent again and lands once more after a resume doesn't undo it", async () => {
      const { client, land } = heldUp(putPause("", null, 0));
      await queue.outcome(client.pause("a"));
      expect(await pausedNames()).toEqual(["a"]);
      await queue.resume("a");
      await land();
      expect(await pausedNames()).toEqual([]);
      await queue.work("pod-1", handlers);
      await queue.ended((await queue.enqueue("a", 1)).taskId);
    });

    test("a pause that was given up and lands after a resume doesn't undo it", async () => {
      const { client, land } = heldUp(putPause("", null, 0), false);
      const outcome = queue.outcome(client.pause("a"), { stepMs: 1_000 });
      await expect(outcome).rejects.toMatchObject({ code: "unknown_outcome" });
      await queue.resume("a");
      await land();
      expect(await pausedNames()).toEqual([]);
    });

    test("a resume that was sent again and lands once more after another pause doesn't undo that", async () => {
      const { client, land } = heldUp(dropPause("", 0));
      await queue.pause("a", { reason: "first" });
      await queue.outcome(client.resume("a"));
      await queue.pause("a", { reason: "second" });
      await land();
      expect(await queue.paused()).toMatchObject([{ name: "a", reason: "second" }]);
    });

    test("of a pause and a resume at once one comes last, and both are answered", async () => {
      for (let round = 0; round < 5; round++) {
        await Promise.all([queue.pause("a"), queue.resume("a"), queue.pause(), queue.resume()]);
        for (const name of await pausedNames()) await queue.resume(name === "*" ? undefined : name);
        expect(await pausedNames()).toEqual([]);
      }
    });

    test("ending a pause of a name that was never paused leaves nothing behind", async () => {
      await queue.resume("nobody");
      expect(await queue.database.read(sql`select * from ${table("task_pause")}`)).toEqual([]);
    });

    test.each(["", "no spaces", "*/*"])("refuses the name %j", async (name) => {
      await expect(queue.pause(name)).rejects.toMatchObject({ code: "invalid_option" });
      await expect(queue.resume(name)).rejects.toMatchObject({ code: "invalid_option" });
    });

    test("a name without a handler may be paused", async () => {
      await queue.pause("nobody");
      await queue.pause("nobody");
      expect((await queue.paused()).map(({ name }) => name)).toEqual(["nobody"]);
    });
  });
}
