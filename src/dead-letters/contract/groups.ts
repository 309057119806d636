import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { maxGroups } from "../sql.ts";
import { type DeadLettersHarness, forgetful, openDeadLetters } from "./harness.ts";

const groups = table("failure_group");
const dayMs = 24 * 60 * 60_000;

/** What the states of groups of failed tasks promise on every store. */
export function groupsContract(kind: StoreKind): void {
  describe(`a group of failed tasks on ${kind.name}`, () => {
    let scene: DeadLettersHarness;
    beforeEach(async () => {
      scene = await openDeadLetters(kind);
    });
    afterEach(() => scene.close());

    const listed = async (name = "a", options = {}) =>
      (await scene.letters.groups({ name, ...options })).groups[0];
    const groupOf = async (name = "a") => (await listed(name))!.group;
    const stored = (group: string) =>
      scene.queue.database
        .read(sql`select * from ${groups} where group_id = ${group}`)
        .then(([row]) => row);
    /** A pass of a pod that has just begun to lead. */
    const leads = async (database?: Database) => {
      const lead = scene.lead(database);
      await lead.pass();
      lead.rest();
    };

    test("is open at first, and is known since its first failure, also when that is gone", async () => {
      const { failed, complete, pass } = scene;
      const first = await failed("a", 1, "boom");
      const before = await listed();
      expect(before).toMatchObject({ state: "open", stateAtMs: null, cameBackAtMs: null });
      expect(before!.firstSeenMs).toBe(before!.firstAtMs);
      expect(before!.trend).toHaveLength(24);
      await leads();
      await pass(5_000);
      await failed("a", 1, "boom");
      await complete(first);
      await leads();
      const after = await listed();
      expect(after).toMatchObject({ group: before!.group, state: "open", tasks: 1 });
      expect(after!.firstAtMs - after!.firstSeenMs).toBeGreaterThanOrEqual(5_000);
      expect(after).toMatchObject({ stateAtMs: null, untilMs: null, cameBackAtMs: null });
    });

    test("that is resolved stays in the list, and its old failures don't open it", async () => {
      const { failed, letters, pass } = scene;
      await failed("a", 3, "boom");
      await pass(1_000);
      const group = await groupOf();
      expect(await letters.resolve(group)).toMatchObject({ group, state: "resolved" });
      await leads();
      await leads();
      expect(await listed()).toMatchObject({ group, state: "resolved", tasks: 3 });
      expect(await listed("a", { state: "resolved" })).toMatchObject({ group });
      expect(await listed("a", { state: "open" })).toBeUndefined();
    });

    test("that fails after it was resolved is open again and came back, before the leader and after", async () => {
      const { failed, complete, letters, pass } = scene;
      await failed("a", 2, "boom");
      await pass(1_000);
      const group = await groupOf();
      await letters.resolve(group);
      await pass(1_000);
      const again = await failed("a", 1, "boom");
      const seen = await listed();
      expect(seen).toMatchObject({ state: "open", cameBackAtMs: seen!.lastAtMs, tasks: 3 });
      await leads();
      expect(await stored(group)).toMatchObject({ state: "open" });
      // It stays so when the task that brought it back has succeeded.
      await complete(again);
      const later = await listed();
      expect(later).toMatchObject({ state: "open", tasks: 2 });
      expect(later!.cameBackAtMs).toBe(seen!.cameBackAtMs);
      await pass(1_000);
      expect(await letters.resolve(group)).toMatchObject({ state: "resolved", cameBackAtMs: null });
    });

    test("that has been resolved and lost all its tasks comes back as the same one", async () => {
      const { failed, complete, letters, pass } = scene;
      const first = await failed("a", 2, "boom");
      await leads();
      await pass(1_000);
      const group = await groupOf();
      await letters.resolve(group);
      await complete(first);
      expect((await letters.groups()).count).toBe(0);
      await pass(dayMs);
      await failed("a", 1, "boom");
      await leads();
      const found = await listed();
      expect(found).toMatchObject({ group, state: "open", cameBackAtMs: found!.firstAtMs });
      expect(found!.firstAtMs - found!.firstSeenMs).toBeGreaterThanOrEqual(dayMs);
    });

    test("that is ignored is left out of lists and counted, until a task of it fails", async () => {
      const { failed, letters, pass } = scene;
      await failed("a", 3, "boom");
      await failed("b", 1, "other");
      await pass(1_000);
      const group = await groupOf();
      expect(await letters.ignore(group)).toMatchObject({ state: "ignored", untilMs: null });
      const left = await letters.groups();
      expect(left).toMatchObject({
        groups: [{ name: "b" }],
        count: 1,
        tasks: 1,
        ignored: { groups: 1, tasks: 3 },
      });
      expect(await letters.groups({ state: "ignored" })).toMatchObject({
        groups: [{ group, state: "ignored" }],
        count: 1,
        tasks: 3,
      });
      // What it holds can be listed, counted and started over all the same.
      expect((await letters.list({ group })).tasks).toHaveLength(3);
      expect(await letters.count({ all: true })).toBe(4);
      await pass(1_000);
      await failed("a", 1, "boom");
      await leads();
      expect(await letters.groups()).toMatchObject({ count: 2, ignored: { groups: 0, tasks: 0 } });
      expect(await listed()).toMatchObject({ state: "open", tasks: 4 });
    });

    test("that is ignored until a time is so whatever fails, and then is open", async () => {
      const { failed, letters, pass, queue } = scene;
      await failed("a", 1, "boom");
      const group = await groupOf();
      const untilMs = queue.clock.now() + dayMs;
      expect(await letters.ignore(group, { untilMs })).toMatchObject({ untilMs });
      await pass(1_000);
      await failed("a", 1, "boom");
      await leads();
      expect(await letters.groups()).toMatchObject({
        groups: [],
        ignored: { groups: 1, tasks: 2 },
      });
      await queue.database.write([
        sql`update ${groups} set until_at = ${now} where group_id = ${group}`,
      ]);
      expect(await listed()).toMatchObject({ state: "open", untilMs: null, tasks: 2 });
      await expect(letters.ignore(group, { untilMs: queue.clock.now() })).rejects.toMatchObject({
        code: "invalid_option",
      });
    });

    test("is opened by hand, whether it was resolved or ignored", async () => {
      const { failed, letters, pass } = scene;
      await failed("a", 1, "boom");
      await pass(1_000);
      const group = await groupOf();
      for (const close of [() => letters.resolve(group), () => letters.ignore(group)]) {
        await close();
        expect(await letters.reopen(group)).toMatchObject({ state: "open", cameBackAtMs: null });
        expect(await listed()).toMatchObject({ state: "open", cameBackAtMs: null });
      }
    });

    test("isn't opened by a leader that saw it before an operator resolved it again", async () => {
      const { failed, letters, pass, queue } = scene;
      await failed("a", 1, "boom");
      await pass(1_000);
      const group = await groupOf();
      await letters.resolve(group);
      await pass(1_000);
      await failed("a", 1, "boom");
      await pass(1_000);
      let times = 0;
      await leads({
        ...queue.database,
        async read(statement, options) {
          const found = await queue.database.read(statement, options);
          if (JSON.stringify(statement).includes('"failure_group"') && times++ === 0)
            await letters.resolve(group);
          return found;
        },
      });
      expect(times).toBeGreaterThan(0);
      expect(await listed()).toMatchObject({ state: "resolved", cameBackAtMs: null });
    });

    test("is stored once by leaders whose answers are lost, and by two at once", async () => {
      const { failed, letters, pass, queue } = scene;
      await failed("a", 2, "boom");
      await failed("b", 1, "other");
      let lost = 0;
      const losing = () => leads(forgetful(queue.database, () => lost++ === 0));
      await queue.outcome(Promise.all([losing(), leads()]), { stepMs: 50 });
      expect(await queue.database.read(sql`select * from ${groups}`)).toHaveLength(2);
      await pass(1_000);
      const group = await groupOf();
      await letters.resolve(group);
      await pass(1_000);
      await failed("a", 1, "boom");
      lost = 0;
      await queue.outcome(Promise.all([losing(), leads()]), { stepMs: 50 });
      expect(await stored(group)).toMatchObject({ state: "open" });
      expect(await listed()).toMatchObject({ state: "open", tasks: 3 });
    });

    test("is stored by a later pass if the store was away during the first", async () => {
      const { failed, queue } = scene;
      await failed("a", 1, "boom");
      let isAway = true;
      const lead = scene.lead({
        ...queue.database,
        async read(statement, options) {
          if (isAway && JSON.stringify(statement).includes('"failure_group"'))
            throw new FlotillaError("store_unavailable", "the store is away, as ordered");
          return queue.database.read(statement, options);
        },
      });
      await lead.pass();
      expect(await queue.database.read(sql`select * from ${groups}`)).toEqual([]);
      isAway = false;
      await queue.clock.advance(5_000);
      await lead.pass();
      lead.rest();
      expect(await stored(await groupOf())).toMatchObject({ state: "open" });
    });

    test("stands for a tenant as its own failures say, and shows none of the others'", async () => {
      const { fail, letters, pass, queue } = scene;
      const made = async (tenant: string) => {
        const { taskId } = await queue.enqueue("a", 1, { tenant });
        await fail([taskId], "boom");
      };
      await made("other");
      await leads();
      await pass(5_000);
      await made("acme");
      await pass(1_000);
      await letters.resolve(await groupOf());
      await pass(1_000);
      await made("other");
      const ofAcme = async () => (await listed("a", { tenant: "acme" }))!;
      const own = await ofAcme();
      expect(own).toMatchObject({ state: "resolved", tasks: 1, cameBackAtMs: null });
      expect(own.firstSeenMs).toBe(own.firstAtMs);
      expect(await listed()).toMatchObject({ state: "open", tasks: 3 });
      await leads();
      // The store says that it is open; when another tenant's task failed is none of theirs.
      const later = await ofAcme();
      expect(later).toMatchObject({ state: "open", stateAtMs: null, cameBackAtMs: null });
      expect(later.firstSeenMs).toBe(later.firstAtMs);
    });

    test("is forgotten a month after its last failure and act, and not while it has tasks", async () => {
      const { failed, complete, queue } = scene;
      const gone = await failed("a", 1, "boom");
      await failed("b", 1, "other");
      const lead = scene.lead();
      await lead.pass();
      await complete(gone);
      await queue.database.write([sql`update ${groups} set last_update = ${now} - ${31 * dayMs}`]);
      // For the leader alone, to which the rows are as they were.
      await queue.clock.advance(10 * 60_000);
      await lead.pass();
      lead.rest();
      const left = await queue.database.read(sql`select group_id from ${groups}`);
      expect(left.map((row) => row["group_id"])).toEqual([await groupOf("b")]);
    });

    test("beyond the bound is listed, and can't be resolved", async () => {
      const { failed, letters, queue } = scene;
      const perWrite = 1_000;
      for (let at = 0; at < maxGroups; at += perWrite) {
        const many = rows(
          { group_id: "text" },
          Array.from({ length: perWrite }, (_, n) => [`g2-${at + n}`]),
        );
        await queue.database.write([
          sql`insert into ${groups} (group_id, first_at) select group_id, 1 from ${many} many`,
        ]);
      }
      await failed("a", 1, "boom");
      await leads();
      const found = await listed();
      expect(found).toMatchObject({ state: "open", tasks: 1 });
      expect(await stored(found!.group)).toBeUndefined();
      await expect(letters.resolve(found!.group)).rejects.toMatchObject({ code: "overloaded" });
    });

    test("that isn't one is refused", async () => {
      const { letters } = scene;
      const none = "g2-79ef601d010c6cb2";
      for (const act of ["resolve", "ignore", "reopen"] as const) {
        await expect(letters[act](none)).rejects.toMatchObject({ code: "not_found" });
        await expect(letters[act]("g1-79ef601d010c6cb2")).rejects.toMatchObject({
          code: "invalid_option",
        });
        await expect(letters[act]("mail")).rejects.toMatchObject({ code: "invalid_option" });
      }
      await expect(letters.groups({ state: "closed" as "open" })).rejects.toMatchObject({
        code: "invalid_option",
      });
    });
  });
}
