import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import type { TaskFilter } from "../../tasks/inspect/filter.ts";
import { parked } from "../../tasks/sql/task-state.ts";
import type { BulkAction, BulkRequest } from "../bulk.ts";
import { type BulkHarness, openBulks } from "./harness.ts";

/** What a bulk promises of its filter on every store: it is the filter of a list. */
export function bulkFilterContract(kind: StoreKind): void {
  describe(`the filter of a bulk on ${kind.name}`, () => {
    let scene: BulkHarness;
    beforeEach(async () => {
      scene = await openBulks(kind);
      await scene.queue.beat("pod-1");
    });
    afterEach(() => scene.close());

    const write = (statement: ReturnType<typeof sql>) => scene.queue.database.write([statement]);
    const link = (from: string, what: string, taskIds: readonly string[]) =>
      write(
        sql`insert into ${table("link")} (from_id, to_id, what)
          select from_id, to_id, what from ${rows(
            { from_id: "text", to_id: "text", what: "text" },
            taskIds.map((taskId) => [from, taskId, what]),
          )} fresh where true`,
      );
    /** Lets leaders pass until the bulk has ended. */
    const endedOf = async (bulkId: string, lead = scene.lead()) => {
      for (let pass = 0; pass < 20; pass++) {
        await lead.pass();
        const bulk = (await scene.bulk.get(bulkId))!;
        if (bulk.state !== "running") return bulk;
      }
      throw new Error(`bulk ${bulkId} hasn't ended`);
    };
    const perform = async (filter: TaskFilter, action: BulkAction = "cancel") =>
      endedOf((await scene.bulk.start({ action, filter })).bulkId);

    /** Tasks of which each differs from the others in one thing. */
    const fill = async () => {
      const { queue, stored } = scene;
      const early = await stored("mail", 4, "pending", "acme");
      queue.clock.jump(60_000);
      const middleMs = queue.clock.now();
      queue.clock.jump(60_000);
      const late = await stored("mail", 6);
      const post = await stored("post", 2);
      await write(sql`update ${rowsOf} set unique_key = 'k1' where task_id = ${late[0]!}`);
      await write(sql`update ${rowsOf} set unique_key = 'k1' where task_id = ${post[0]!}`);
      await write(
        sql`update ${rowsOf} set concurrency_key = 'key/mail/acme' where task_id = ${late[1]!}`,
      );
      await write(
        sql`update ${rowsOf} set status = 'claimed', claimed_by = 'pod-1' where task_id in (${late[2]!}, ${post[1]!})`,
      );
      await write(
        sql`update ${rowsOf} set flow_version = 1, cursor = 'charge', parked = ${parked.setAside},
          set_aside = '{"reason":"code"}' where task_id = ${late[3]!}`,
      );
      await write(
        sql`update ${rowsOf} set parked = ${parked.untilDue}, run_at = run_at + 86400000
          where task_id = ${early[3]!}`,
      );
      await link("one", "session", [early[1]!, late[4]!]);
      // Ids of sessions and of schedules are their users' own.
      await link("one", "schedule", [early[2]!]);
      await link("one", "task", [early[3]!, post[0]!]);
      return { early, late, post, middleMs };
    };

    test("is that of a list: both are of the same tasks, whichever index serves them", async () => {
      const { early, late, middleMs } = await fill();
      const filters: TaskFilter[] = [
        { name: "mail" },
        { name: "mail", tenant: "acme" },
        { name: "mail", key: "k1" },
        { key: "k1" },
        { scope: "key/mail/acme" },
        { pod: "pod-1" },
        { pod: "pod-1", name: "post" },
        { status: "claimed" },
        { status: "pending" },
        { status: "pending", name: "post" },
        { session: "one" },
        { session: "one", name: "mail", sinceMs: middleMs },
        { run: "one" },
        { run: "absent" },
        { at: "charge" },
        { at: "charge", name: "mail" },
        { state: "ready" },
        { state: "ready", name: "post" },
        { state: "delayed", status: "pending" },
        { state: "waiting" },
        { setAside: true },
        { setAside: true, name: "post" },
        { version: 1 },
        { version: 1, name: "mail" },
        { version: 2, name: "mail" },
        { ids: [late[0]!, early[0]!, late[0]!, "absent"] },
        { ids: [late[0]!, early[0]!], tenant: "acme" },
        { ids: [late[0]!, early[0]!], sinceMs: middleMs },
        { ids: ["absent"] },
        { untilMs: middleMs },
        { sinceMs: middleMs, name: "mail" },
        { sinceMs: middleMs, untilMs: middleMs },
        { from: early[1]!, to: late[1]! },
        { to: early[0]! },
      ];
      for (const filter of filters) {
        const { tasks } = await scene.queue.list({ ...filter, limit: 1_000 });
        const listed = tasks.map(({ taskId }) => taskId).toReversed();
        const preview = await scene.bulk.preview({ action: "cancel", filter });
        expect([filter, preview]).toEqual([
          filter,
          { matched: listed.length, isExact: true, sample: listed },
        ]);
      }
    });

    test("is kept to by each act", async () => {
      const { early, late, post } = await fill();
      expect(await perform({ session: "one" })).toMatchObject({ done: 2, matched: 2 });
      expect(await perform({ pod: "pod-1", name: "post" })).toMatchObject({ done: 1 });
      expect(await perform({ name: "mail", key: "k1" })).toMatchObject({ done: 1 });
      expect(await perform({ setAside: true }, "resume")).toMatchObject({ done: 1 });
      const { queue } = scene;
      const isAsked = async (taskId: string) =>
        Number((await queue.row(taskId))["cancel_requested"]) === 1;
      const asked: string[] = [];
      for (const taskId of [...early, ...late, ...post])
        if (await isAsked(taskId)) asked.push(taskId);
      expect(asked).toEqual([early[1], late[0], late[4], post[1]]);
      expect(Number((await queue.row(late[3]!))["parked"])).toBe(0);
    });

    test.skipIf(kind.encrypts)(
      "takes values of payloads, and looks again before it acts",
      async () => {
        const { bulk, stored, statuses, queue } = scene;
        const taskIds = await stored("mail", 5);
        for (const [at, taskId] of taskIds.entries()) {
          const payload = JSON.stringify({ order: { id: at < 3 ? 7 : 8 }, note: "it's 100%" });
          await write(sql`update ${rowsOf} set payload = ${payload} where task_id = ${taskId}`);
        }
        const filter = { name: "mail", sinceMs: 0, payload: { "order.id": 7, note: "it's 100%" } };
        expect(await bulk.preview({ action: "cancel", filter })).toMatchObject({
          matched: 3,
          sample: taskIds.slice(0, 3),
        });
        const begun = await bulk.start({ action: "cancel", filter });
        expect(begun.filter).toEqual(filter);
        let looks = 0;
        const slow: Database = {
          ...queue.database,
          async read(...given) {
            const found = await queue.database.read(...given);
            // Replaced between the look of the leader and its write.
            if (found.some((row) => "walked" in row) && looks++ === 0)
              await write(sql`update ${rowsOf} set payload = '{}' where task_id = ${taskIds[1]!}`);
            return found;
          },
        };
        expect(await endedOf(begun.bulkId, scene.lead(slow))).toMatchObject({
          done: 2,
          skipped: 1,
        });
        expect(await statuses(taskIds)).toEqual({ cancelled: 2, pending: 3 });
      },
    );

    test.runIf(kind.encrypts)("takes no values of payloads where a codec hides them", async () => {
      const filter = { name: "mail", sinceMs: 0, payload: { id: 7 } };
      await expect(scene.bulk.preview({ action: "cancel", filter })).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("a store with a codec"),
      });
    });

    test("finds all that a session has started, in the order of their ids, by several batches", async () => {
      const { stored, statuses, bulk } = scene;
      const taskIds = await stored("mail", 2_400);
      const others = taskIds.filter((_, at) => at % 2 === 1);
      const own = taskIds.filter((_, at) => at % 2 === 0);
      await link("one", "session", own);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { session: "one" } });
      let leading = 1;
      await scene.lead(undefined, () => leading-- > 0).pass();
      expect(await bulk.get(bulkId)).toMatchObject({ done: 500, lastTaskId: own[499] });
      expect(await endedOf(bulkId)).toMatchObject({ state: "done", done: 1_200, skipped: 0 });
      expect(await statuses(own)).toEqual({ cancelled: 1_200 });
      expect(await statuses(others)).toEqual({ pending: 1_200 });
    });

    test("names tasks by their ids, and tells what became of each", async () => {
      const { bulk, stored, statuses } = scene;
      const taskIds = await stored("mail", 3);
      const [ended] = await stored("mail", 1, "completed");
      const [others] = await stored("mail", 1, "pending", "acme");
      const ids = [taskIds[2]!, taskIds[0]!, ended!, others!, "absent", taskIds[0]!];
      const filter = { ids, tenant: "default" };
      expect(await bulk.preview({ action: "cancel", filter })).toMatchObject({
        matched: 2,
        isExact: true,
      });
      const { bulkId } = await bulk.start({ action: "cancel", filter });
      expect(await bulk.outcomes(bulkId)).toEqual([
        { taskId: taskIds[0], outcome: "waiting", status: "pending" },
        { taskId: taskIds[2], outcome: "waiting", status: "pending" },
        { taskId: ended, outcome: "waiting", status: "completed" },
        { taskId: others, outcome: "gone", status: null },
        { taskId: "absent", outcome: "gone", status: null },
      ]);
      expect(await endedOf(bulkId)).toMatchObject({ done: 2, skipped: 0, refused: 0 });
      expect(await bulk.outcomes(bulkId)).toEqual([
        { taskId: taskIds[0], outcome: "done", status: "cancelled" },
        { taskId: taskIds[2], outcome: "done", status: "cancelled" },
        { taskId: ended, outcome: "left", status: "completed" },
        { taskId: others, outcome: "gone", status: null },
        { taskId: "absent", outcome: "gone", status: null },
      ]);
      expect(await statuses([taskIds[1]!, others!])).toEqual({ pending: 2 });
      // The next one does nothing to what the last one has done.
      const again = await perform({ ids: [taskIds[0]!] });
      expect(again).toMatchObject({ matched: 0, done: 0 });
      expect(await bulk.outcomes(again.bulkId)).toEqual([
        { taskId: taskIds[0], outcome: "left", status: "cancelled" },
      ]);
    });

    test("tells by ids what each act has done", async () => {
      const { bulk, stored, setAside } = scene;
      const outcomesOf = async (request: Omit<BulkRequest, "filter">, ids: readonly string[]) => {
        const { bulkId } = await bulk.start({ ...request, filter: { ids } });
        await endedOf(bulkId);
        return (await bulk.outcomes(bulkId)).map(({ outcome }) => outcome);
      };
      const open = await stored("mail", 2);
      const failed = await stored("mail", 2, "failed");
      const aside = await setAside("order", 2);
      const signal = { action: "signal", signal: "go" } as const;
      expect(await outcomesOf(signal, [open[0]!, failed[0]!])).toEqual(["done", "left"]);
      expect(await outcomesOf({ action: "retry" }, [open[0]!, failed[0]!])).toEqual([
        "left",
        "done",
      ]);
      expect(await outcomesOf({ action: "delete" }, [open[1]!, failed[1]!])).toEqual([
        "left",
        "gone",
      ]);
      expect(await outcomesOf({ action: "resume" }, [open[1]!, aside[0]!])).toEqual([
        "left",
        "done",
      ]);
      const other = await perform({ name: "mail" });
      expect(await bulk.outcomes(other.bulkId)).toEqual([]);
      await expect(bulk.outcomes("absent")).rejects.toMatchObject({ code: "not_found" });
    });

    test("holds a thousand ids, of which lists show the first", async () => {
      const { bulk, stored, statuses } = scene;
      const taskIds = await stored("mail", 1_100);
      const ids = taskIds.slice(100);
      expect(await perform({ ids })).toMatchObject({
        matched: 1_000,
        done: 1_000,
        filter: { ids },
      });
      expect(await statuses(taskIds)).toEqual({ pending: 100, cancelled: 1_000 });
      const { bulks } = await bulk.list();
      expect(bulks[0]!.filter.ids).toEqual(ids.slice(0, 20));
    });

    const insertBulk = (filter: object) => {
      const bulkId = scene.queue.ids.next();
      return write(
        sql`insert into ${table("bulk")} (bulk_id, action, filter, options, until_id, matched, is_exact, created_at)
          values (${bulkId}, 'cancel', ${JSON.stringify(filter)}, '{}', '~', 1, 1, ${now})`,
      ).then(() => bulkId);
    };

    test("of a bulk that the release before has stored is read as it was meant", async () => {
      const { stored, statuses } = scene;
      const mail = await stored("mail", 4, "pending", "acme");
      const post = await stored("post", 2, "pending", "acme");
      const before = {
        name: "mail",
        status: "pending",
        tenant: "acme",
        from: mail[1],
        to: mail[2],
      };
      expect(await endedOf(await insertBulk(before))).toMatchObject({ done: 2, filter: before });
      expect(await statuses(mail)).toEqual({ cancelled: 2, pending: 2 });
      expect(await statuses(post)).toEqual({ pending: 2 });
    });

    test("that the release before doesn't know is stored so that its leader leaves the bulk alone", async () => {
      const { bulk, queue, stored } = scene;
      await stored("mail", 1, "pending", "acme");
      const rowOf = async (filter: TaskFilter) => {
        const { bulkId } = await bulk.start({ action: "cancel", filter });
        const [row] = await queue.database.read(
          sql`select filter from ${table("bulk")} where bulk_id = ${bulkId}`,
        );
        return JSON.parse(row!["filter"]) as object;
      };
      const known = { name: "mail", status: "pending", tenant: "acme", to: "~" } as const;
      expect(await rowOf(known)).toEqual(known);
      // Its leader would act on all tasks of the tenant, and takes this for the group of a later release.
      const session = { tenant: "acme", session: "one" };
      expect(await rowOf(session)).toEqual({
        tenant: "acme",
        group: expect.stringMatching(/^g999999-[0-9a-f]{16}$/),
        whole: session,
      });
    });

    test("of a later release is left to its leaders", async () => {
      const { stored, statuses, bulk } = scene;
      const taskIds = await stored("mail", 2);
      const bulkId = await insertBulk({ name: "mail", colour: "red" });
      await scene.lead().pass();
      expect(await bulk.get(bulkId)).toMatchObject({ state: "running", done: 0 });
      expect(await statuses(taskIds)).toEqual({ pending: 2 });
    });
  });
}
