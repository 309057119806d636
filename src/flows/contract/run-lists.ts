import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import { walkBounds } from "../../store/walk.ts";
import { openTasks, type TasksHarness } from "../../tasks/contract/harness.ts";
import { parked } from "../../tasks/sql/task-state.ts";
import type { RunListOptions } from "../list.ts";
import { createRuns, type Runs, type StartOptions } from "../runs.ts";

const tasks = table("task");

type Given = {
  id: number;
  flow: string;
  status: string;
  tenant: string;
  at: string | null;
  isRun: boolean;
  parked: number;
};

/** What lists and counts of runs promise on every store. */
export function runListsContract(kind: StoreKind): void {
  describe(`lists of runs on ${kind.name}`, () => {
    let queue: TasksHarness;
    let runs: Runs;
    beforeEach(async () => {
      queue = await openTasks(kind);
      runs = createRuns(queue, queue);
    });
    afterEach(() => queue.close());

    const idOf = (at: number) => `r${String(at).padStart(7, "0")}`;
    const insert = async (given: readonly Given[]) => {
      for (let at = 0; at < given.length; at += 5_000) {
        await queue.database.write([
          sql`insert into ${tasks} (task_id, name, status, tenant, cursor, flow_version, parked, created_at,
              claimed_by)
            select task_id, name, status, tenant, cursor, flow_version, parked, created_at, 'pod-1'
            from ${rows(
              {
                task_id: "text",
                name: "text",
                status: "text",
                tenant: "text",
                cursor: "text",
                flow_version: "integer",
                parked: "integer",
                created_at: "integer",
              },
              given
                .slice(at, at + 5_000)
                .map((each) => [
                  idOf(each.id),
                  each.flow,
                  each.status,
                  each.tenant,
                  each.at,
                  each.isRun ? 1 : null,
                  each.status === "pending" ? each.parked : 0,
                  each.id,
                ]),
            )} fresh where true`,
        ]);
      }
    };
    const all = async (filter: RunListOptions): Promise<string[]> => {
      const found: string[] = [];
      for (let cursor: string | null | undefined; cursor !== null;) {
        const page = await runs.list({ ...filter, ...(cursor !== undefined && { cursor }) });
        found.push(...page.runs.map(({ runId }) => runId));
        expect(page.lookedBackTo === null).toBe(page.next === null);
        cursor = page.next;
      }
      return found;
    };

    const statuses = ["pending", "claimed", "completed", "failed", "cancelled"] as const;
    const given = fc.uniqueArray(
      fc.record<Given>({
        id: fc.nat(9_999),
        flow: fc.constantFrom("order", "report", "zip"),
        status: fc.constantFrom(...statuses),
        tenant: fc.constantFrom("default", "acme"),
        at: fc.constantFrom(null, "charge"),
        isRun: fc.boolean(),
        parked: fc.constantFrom(...Object.values(parked)),
      }),
      { selector: (each) => each.id, maxLength: 40 },
    );

    test("hold what each filter names, in order, whichever index serves it", async () => {
      const filters = fc.record(
        {
          flow: fc.constantFrom("order", "absent"),
          status: fc.constantFrom("open", ...statuses),
          tenant: fc.constantFrom("default", "acme"),
          at: fc.constant("charge"),
          setAside: fc.constant(true),
        },
        { requiredKeys: [] },
      );
      const isOpen = ({ status }: Given) => status === "pending" || status === "claimed";
      await fc.assert(
        fc.asyncProperty(
          given,
          filters,
          fc.integer({ min: 1, max: 12 }),
          async (stored, filter, limit) => {
            await queue.database.write([sql`delete from ${tasks}`]);
            await insert(stored);
            const { status } = filter;
            const expected = stored
              .filter(({ isRun }) => isRun)
              .filter((each) => filter.flow === undefined || each.flow === filter.flow)
              .filter((each) => filter.tenant === undefined || each.tenant === filter.tenant)
              .filter((each) => filter.at === undefined || each.at === filter.at)
              .filter(
                (each) =>
                  !filter.setAside ||
                  (each.status === "pending" && each.parked === parked.setAside),
              )
              .filter((each) =>
                status === "open" ? isOpen(each) : status === undefined || each.status === status,
              )
              .map(({ id }) => idOf(id));
            const options = { ...filter, limit } as RunListOptions;
            expect(await all(options)).toEqual(expected.toSorted().toReversed());
          },
        ),
        { numRuns: 60 },
      );
    });

    test("find few runs among many tasks at once, and walk no further than a page may", async () => {
      const filler = Array.from({ length: 25_000 }, (_, id): Given => ({
        id,
        flow: id === 7 || id === 24_999 ? "order" : "task",
        status: "completed",
        tenant: "default",
        at: null,
        isRun: id === 7 || id === 24_999,
        parked: 0,
      }));
      await insert(filler);
      let walked = 0;
      const read: Database["read"] = async (statement, options) => {
        const found = await queue.database.read(statement, options);
        for (const row of found) walked += Number(row["walked"] ?? 0);
        return found;
      };
      const client = createRuns(queue, { ...queue, database: { ...queue.database, read } });
      expect((await client.list()).runs.map(({ runId }) => runId)).toEqual([24_999, 7].map(idOf));
      expect(walked).toBeLessThanOrEqual(10);
      walked = 0;
      expect(await client.list({ flow: "order", status: "failed" })).toMatchObject({
        runs: [],
        next: null,
      });
      expect(walked).toBeLessThanOrEqual(walkBounds.entries);
    });

    test("of all flows are checked where they are read, in a statement for each piece", async () => {
      const stored = Array.from({ length: 5_000 }, (_, id): Given => ({
        id,
        flow: ["order", "report", "zip"][id % 3]!,
        status: "completed",
        tenant: id === 3 ? "acme" : "default",
        at: null,
        isRun: true,
        parked: 0,
      }));
      await insert(stored);
      let statements = 0;
      const read: Database["read"] = (statement, options) => {
        statements++;
        return queue.database.read(statement, options);
      };
      const client = createRuns(queue, { ...queue, database: { ...queue.database, read } });
      expect((await client.list({ tenant: "none" })).runs).toEqual([]);
      // The names of the flows, a first piece of a page's size, and then 2,000 at a time.
      expect(statements).toBeLessThanOrEqual(5);
      expect(await all({ tenant: "acme" })).toEqual([idOf(3)]);
    });

    test("hold what a key, a pod, a session, a run or a span of time names", async () => {
      const started = async (options: StartOptions) =>
        (await runs.start("order", null, options)).runId;
      const startMs = queue.clock.now();
      const first = await started({ key: "k" });
      await queue.pass(1_000);
      const second = await started({ tenant: "acme" });
      await queue.database.write([
        sql`insert into ${table("link")} (from_id, to_id, what) values ('s', ${first}, 'session')`,
        sql`insert into ${table("link")} (from_id, to_id, what) values ('r', ${second}, 'run')`,
        sql`update ${tasks} set status = 'claimed', claimed_by = 'pod-9' where task_id = ${second}`,
      ]);
      expect(await all({ flow: "order", key: "k" })).toEqual([first]);
      expect(await all({ key: "k" })).toEqual([first]);
      expect(await all({ pod: "pod-9" })).toEqual([second]);
      expect(await all({ session: "s" })).toEqual([first]);
      expect(await all({ run: "r" })).toEqual([second]);
      expect(await all({ run: "s" })).toEqual([]);
      expect(await all({ sinceMs: startMs + 1 })).toEqual([second]);
      expect(await all({ untilMs: startMs })).toEqual([first]);
      await expect(runs.list({ session: "s", run: "r" })).rejects.toMatchObject({
        code: "invalid_option",
      });
    });

    test("go on only with a cursor of the same filter, and not with one of a list of tasks", async () => {
      await insert(
        [1, 2, 3].map((id) => ({
          id,
          flow: "order",
          status: "completed",
          tenant: "default",
          at: null,
          isRun: true,
          parked: 0,
        })),
      );
      const { next } = await runs.list({ flow: "order", limit: 1 });
      expect((await runs.list({ flow: "order", cursor: next! })).runs).toHaveLength(2);
      const other = await queue.list({ limit: 1 });
      for (const asked of [{ cursor: next! }, { cursor: other.next! }, { cursor: idOf(2) }]) {
        await expect(runs.list(asked)).rejects.toMatchObject({
          code: "invalid_option",
          message: expect.stringContaining("cursor must be"),
        });
      }
    });

    test("counts are those of all runs where there are few", async () => {
      await fc.assert(
        fc.asyncProperty(given, async (stored) => {
          await queue.database.write([sql`delete from ${tasks}`]);
          await insert(stored);
          const counted = await runs.counts();
          const ofRuns = stored.filter(({ isRun }) => isRun);
          expect(counted.map(({ flow }) => flow)).toEqual(
            [...new Set(ofRuns.map(({ flow }) => flow))].toSorted(),
          );
          for (const { flow, completed, failed, cancelled, openByVersion, atLeast } of counted) {
            const of = (...wanted: string[]) =>
              ofRuns.filter((each) => each.flow === flow && wanted.includes(each.status)).length;
            expect({ completed, failed, cancelled, open: openByVersion[1] ?? 0, atLeast }).toEqual({
              completed: of("completed"),
              failed: of("failed"),
              cancelled: of("cancelled"),
              open: of("pending", "claimed"),
              atLeast: false,
            });
          }
        }),
        { numRuns: 30 },
      );
    });

    test("one flow is counted alone, by version, and its runs are listed by version", async () => {
      const given = (id: number, flow: string, at: string, status = "pending"): Given => ({
        id,
        flow,
        status,
        tenant: "default",
        at,
        isRun: true,
        parked: parked.untilSignal,
      });
      await insert([
        given(1, "order", "charge"),
        given(2, "order", "ship"),
        given(3, "other", "charge"),
        given(4, "order", "ship", "completed"),
      ]);
      await queue.database.write([
        sql`update ${tasks} set flow_version = 2 where task_id = ${idOf(2)}`,
      ]);
      expect(await runs.counts({ flow: "order" })).toEqual([
        {
          flow: "order",
          places: { charge: { waiting: 1 }, ship: { waiting: 1 } },
          openByVersion: { 1: 1, 2: 1 },
          placesByVersion: { 1: { charge: { waiting: 1 } }, 2: { ship: { waiting: 1 } } },
          completed: 1,
          failed: 0,
          cancelled: 0,
          atLeast: false,
        },
      ]);
      expect(await runs.counts({ flow: "none" })).toMatchObject([{ flow: "none", places: {} }]);
      const stuck = await runs.stuck({ flow: "order" });
      expect(new Set(stuck.map(({ flow }) => flow))).toEqual(new Set(["order"]));
      const listed = async (filter: RunListOptions) =>
        (await runs.list(filter)).runs.map(({ runId }) => runId);
      expect(await listed({ flow: "order", version: 1 })).toEqual([idOf(4), idOf(1)]);
      expect(await listed({ flow: "order", version: 2, status: "open" })).toEqual([idOf(2)]);
      expect(await listed({ version: 2 })).toEqual([idOf(2)]);
      expect(await listed({ flow: "order", version: 3 })).toEqual([]);
    });

    test("a history is read from its end, as many events as are asked for", async () => {
      const { runId } = await runs.start("order", null);
      const events = Array.from({ length: 30 }, (_, at) => [runId, at * 100 + 1, at, "stepped"]);
      await queue.database.write([
        sql`insert into ${table("task_event")} (task_id, seq, at, type)
          select task_id, seq, at, type from ${rows(
            { task_id: "text", seq: "integer", at: "integer", type: "text" },
            events,
          )} given`,
      ]);
      const numbers = async (before: number, limit: number) =>
        (await runs.history(runId, { before, limit })).map(({ seq }) => seq);
      expect(await numbers(2 ** 31 - 1, 3)).toEqual([2_701, 2_801, 2_901]);
      expect(await numbers(2_701, 2)).toEqual([2_501, 2_601]);
      expect(await numbers(201, 1_000)).toEqual([1, 101]);
      expect(await numbers(1, 10)).toEqual([]);
      await expect(runs.history(runId, { before: 5 })).rejects.toThrow("needs a limit");
    });

    test("counts stop at 10,000 runs, and say so", async () => {
      const filler = Array.from({ length: 10_100 }, (_, id): Given => ({
        id,
        flow: "order",
        status: id < 50 ? "pending" : "completed",
        tenant: "default",
        at: "charge",
        isRun: true,
        parked: parked.untilSignal,
      }));
      await insert(filler);
      expect(await runs.counts()).toMatchObject([
        {
          flow: "order",
          completed: 10_000,
          places: { charge: { waiting: 50 } },
          openByVersion: { 1: 50 },
          atLeast: true,
        },
      ]);
    });
  });
}
