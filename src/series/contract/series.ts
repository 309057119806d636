import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { dayMs, hourMs, minuteMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { now, sql, type Statement, table } from "../../store/sql.ts";
import { countDurationOf, countOf, encodeCounts, newTally } from "../counts.ts";
import { startOf } from "../fold.ts";
import { createSeriesLeader, foldedAfterMs, hoursKeptMs, minutesKeptMs } from "../leader.ts";
import { createRecorder } from "../recorder.ts";
import { createSeriesReader } from "../series.ts";
import { type SeriesRow, storeCounts } from "../sql.ts";
import { maxSubjects } from "../../protocol/series-subject.ts";
import { createSeriesWriter, sentForMs } from "../writer.ts";

const ids = uuidv7(systemClock, systemRandom);
const rowsOf = table("series");

/** What series promise on every store. */
export function seriesContract(kind: StoreKind): void {
  describe(`series on ${kind.name}`, () => {
    let store: OpenStore;
    let database: Database;
    /** As another process has it. */
    let again: Database;
    /** The store's time. */
    let nowMs: number;
    beforeAll(async () => {
      store = await kind.open();
      ({ database } = store);
      await migrate(database);
      again = (await store.again?.()) ?? database;
    });
    afterAll(async () => {
      if (again !== database) await again.close();
      await database.close();
      await store.remove();
    });
    beforeEach(async () => {
      await emptyTables(store, ["series", "series_fold"]);
      const [row] = await database.read(sql`select ${now} as now`);
      nowMs = Number(row!["now"]);
    });

    const closeTo = (at: number) =>
      database.write([
        sql`insert into ${table("series_fold")} (id, closed_to, last_fold) values (1, ${at}, '')
          on conflict (id) do update set closed_to = excluded.closed_to, last_fold = ''`,
      ]);
    const stored = async () =>
      (
        await database.read(
          sql`select span, at, subject, pod, counts from ${rowsOf} order by span, at, subject, pod`,
        )
      ).map((row) => ({ ...row, span: Number(row["span"]), at: Number(row["at"]) }) as SeriesRow);
    const leaderOn = (on: Database) =>
      createSeriesLeader({ database: on, clock: movableClock(), ids });
    const reader = () =>
      createSeriesReader({ database, clock: { ...systemClock, now: () => nowMs } });

    /** The counts of one pod for one minute. */
    const row = (at: number, pod: string, completed = 1, subject = "task:mail"): SeriesRow => {
      const tally = newTally();
      countOf(tally, "completed", completed);
      countDurationOf(tally.run, 100);
      tally.gauges["inFlight"] = completed;
      return { span: minuteMs, at, subject, pod, counts: encodeCounts(tally) };
    };
    const put = (...rows: SeriesRow[]) => database.write(storeCounts(rows));
    /** Long enough ago to be folded, and at the beginning of a minute. */
    const foldable = () => startOf(nowMs - foldedAfterMs - 2 * minuteMs, minuteMs);

    /** All that is stored of a subject, however it is divided among rows. */
    const total = async (subject = "task:mail"): Promise<number> => {
      const fromMs = startOf(nowMs - 40 * dayMs, hourMs);
      const { points } = await reader().read({
        subject,
        fromMs,
        toMs: nowMs + hourMs,
        step: "hour",
      });
      return points.reduce((all, { counts }) => all + (counts["completed"] ?? 0), 0);
    };

    describe("the counts of a pod", () => {
      /** A pod's writer on a clock in hand, which is the store's too. */
      const startWriter = (on: Pick<Database, "write"> = database) => {
        const clock: MovableClock = movableClock(startOf(nowMs, minuteMs));
        const recorder = createRecorder();
        let setBackMs = 0;
        const warnings: string[] = [];
        const storeNowMs = () => clock.now() - setBackMs;
        const writer = createSeriesWriter({
          podId: "pod-1",
          database: on,
          clock,
          recorder,
          storeNowMs,
          log: { ...silentLogger, warn: (_, text) => void warnings.push(text) },
        });
        writer.tick();
        return {
          clock,
          recorder,
          writer,
          warnings,
          async pass(byMs: number): Promise<void> {
            await clock.advance(byMs);
            writer.tick();
            await writer.settled();
          },
          setBack: (byMs: number) => (setBackMs += byMs),
          count: (completed = 1) => countOf(recorder.tally("task", "mail"), "completed", completed),
        };
      };
      test("the oldest wait is that of the pod that has seen the longest, and of an hour that of its worst minute", async () => {
        const at = startOf(nowMs - minutesKeptMs - 2 * hourMs, hourMs);
        const waited = (minutes: number, pod: string, oldestMs: number): SeriesRow => {
          const tally = newTally();
          tally.gauges["oldestMs"] = oldestMs;
          const counts = encodeCounts(tally);
          return { span: minuteMs, at: at + minutes * minuteMs, subject: "task:mail", pod, counts };
        };
        // Two pods may take themselves for the leader, and one may write twice.
        await put(waited(0, "a", 5_000), waited(0, "b", 7_000), waited(1, "b", 6_000));
        await put(waited(0, "b", 7_000));
        const seen = async (step: "minute" | "hour") => {
          const span = { fromMs: at, toMs: at + hourMs };
          const { points } = await reader().read({ subject: "task:mail", step, ...span });
          return points.map(({ gauges }) => gauges["oldestMs"]);
        };
        expect([await seen("minute"), await seen("hour")]).toEqual([[7_000, 6_000], [7_000]]);
        await leaderOn(database).pass();
        expect(await seen("hour")).toEqual([7_000]);
        expect(await stored()).toHaveLength(1);
      });

      test("are written once a minute, as that minute's counts in all", async () => {
        const { count, pass, clock } = startWriter();
        const first = clock.now();
        count(2);
        await pass(30_000);
        expect(await stored()).toEqual([]);
        count();
        await pass(30_000);
        count(5);
        await pass(minuteMs);
        const counts = (completed: number) => JSON.stringify({ counts: { completed } });
        expect(await stored()).toEqual(
          [first, first + minuteMs].flatMap((at, index) =>
            ["task", "task:mail"].map((subject) => {
              return { span: minuteMs, at, subject, pod: "pod-1", counts: counts(index ? 5 : 3) };
            }),
          ),
        );
      });

      test("aren't written for minutes without any", async () => {
        const writes: unknown[] = [];
        const { pass } = startWriter({
          write: (statements) => (writes.push(statements), database.write(statements)),
        });
        for (let minute = 0; minute < 10; minute++) await pass(minuteMs);
        expect(writes).toEqual([]);
      });

      test("are the same when they are written twice", async () => {
        await put(row(nowMs, "pod-1", 3));
        const before = await stored();
        await put(row(nowMs, "pod-1", 3));
        expect(await stored()).toEqual(before);
      });

      test("are written again if the outcome is unknown, but not after two minutes", async () => {
        let landed = 0;
        const { count, pass } = startWriter({
          async write(statements) {
            landed++;
            await database.write(statements);
            throw new FlotillaError("unknown_outcome", "the answer was lost, as ordered");
          },
        });
        count(3);
        await pass(minuteMs);
        for (let at = 0; at < 60; at++) await pass(5_000);
        expect(landed).toBe(sentForMs / 5_000);
        expect(await total()).toBe(3);
      });

      test("of the present minute are written when the pod stops", async () => {
        const { count, writer } = startWriter();
        count(7);
        await writer.stop();
        expect(await total()).toBe(7);
      });

      test("of a minute that is closed are left out, which is logged, and those of the others written", async () => {
        const { count, pass, warnings } = startWriter();
        await closeTo(startOf(nowMs, minuteMs));
        count(5);
        await pass(minuteMs);
        count(2);
        await pass(minuteMs);
        expect([await total(), warnings]).toEqual([2, [expect.stringContaining("closed")]]);
      });

      test("stay, if the store's clock is set back and the same minutes come again", async () => {
        const { count, pass, setBack } = startWriter();
        count(1);
        await pass(minuteMs);
        count(2);
        setBack(2 * minuteMs);
        await pass(1_000);
        count(4);
        await pass(minuteMs);
        await pass(minuteMs);
        count(8);
        await pass(minuteMs);
        expect(await total()).toBe(15);
      });
    });

    describe("folding", () => {
      test("puts one row in the place of those of pods, which reads the same", async () => {
        const at = foldable();
        await put(row(at, "pod-1", 3), row(at, "pod-2", 4), row(at + minuteMs, "pod-1", 5));
        const range = { subject: "task:mail", fromMs: at, toMs: nowMs };
        const before = await reader().read(range);
        await leaderOn(database).pass();
        expect(await reader().read(range)).toEqual(before);
        expect(before.points).toMatchObject([
          { atMs: at, counts: { completed: 7 }, gauges: { inFlight: 7 }, run: { count: 2 } },
          { atMs: at + minuteMs, counts: { completed: 5 }, run: { count: 1, sumMs: 100 } },
        ]);
        expect((await stored()).map(({ at: of, pod }) => [of, pod])).toEqual([
          [at, ""],
          [at + minuteMs, ""],
        ]);
      });

      test("leaves minutes alone that pods may still write", async () => {
        const recent = startOf(nowMs - foldedAfterMs + minuteMs, minuteMs);
        await put(row(recent, "pod-1"));
        const before = await stored();
        await leaderOn(database).pass();
        expect(await stored()).toEqual(before);
      });

      test("closes the minutes, so that a write which comes late changes nothing", async () => {
        const at = foldable();
        await put(row(at, "pod-1", 3));
        await leaderOn(database).pass();
        await put(row(at, "pod-1", 3));
        await put(row(at, "pod-2", 4));
        await leaderOn(database).pass();
        expect(await total()).toBe(3);
      });

      test("puts minutes together to hours after a day, and deletes hours after 30 days", async () => {
        const old = startOf(nowMs - minutesKeptMs, hourMs) - hourMs;
        const ancient = startOf(nowMs - hoursKeptMs, hourMs) - hourMs;
        await put(
          row(old, "pod-1", 2),
          row(old + 59 * minuteMs, "pod-2", 3),
          row(old + hourMs, "pod-1", 7),
          row(ancient, "pod-1", 100),
        );
        await leaderOn(database).pass();
        // The hour is deleted by the pass after the one that made it.
        await leaderOn(database).pass();
        expect((await stored()).map(({ span, at, pod }) => [span, at, pod])).toEqual([
          [minuteMs, old + hourMs, ""],
          [hourMs, old, ""],
        ]);
        const { points } = await reader().read({
          subject: "task:mail",
          fromMs: old,
          toMs: nowMs,
          step: "hour",
        });
        expect(points).toMatchObject([
          { atMs: old, counts: { completed: 5 }, gauges: { inFlight: 3 }, run: { count: 2 } },
          { atMs: old + hourMs, counts: { completed: 7 } },
        ]);
      });

      test("keeps 200 subjects of a minute, and the rest together", async () => {
        const at = foldable();
        const many = Array.from({ length: maxSubjects + 50 }, (_, of) =>
          row(at, `pod-${of % 3}`, 1, `task:name-${String(of).padStart(3, "0")}`),
        );
        await put(...many, row(at, "pod-1", many.length, "task"));
        await leaderOn(database).pass();
        const subjects = (await stored()).map(({ subject }) => subject);
        expect(subjects).toHaveLength(maxSubjects + 2);
        expect(await total("other:task")).toBe(50);
        expect(await total("task")).toBe(many.length);
        // Those that come later find their places taken.
        await closeTo(0);
        await put(row(at, "pod-9", 5, "task:name-000"), row(at, "pod-9", 5, "task:zzz"));
        await leaderOn(database).pass();
        expect(await total("task:name-000")).toBe(6);
        expect(await total("other:task")).toBe(55);
        expect(await stored()).toHaveLength(maxSubjects + 2);
      });

      test("goes on where the store's clock was set back behind what is closed", async () => {
        await put(row(foldable(), "pod-1", 3));
        await closeTo(nowMs + hourMs);
        await leaderOn(database).pass();
        await put(row(startOf(nowMs, minuteMs), "pod-1", 4));
        expect(await total()).toBe(7);
      });

      test("reads rows that hold anything", async () => {
        const at = foldable();
        await put({ ...row(at, "pod-1"), counts: "{" }, row(at, "pod-2", 2));
        await leaderOn(database).pass();
        expect(await total()).toBe(2);
      });

      test("folds more than fits into one transaction", async () => {
        const at = foldable();
        const many = Array.from({ length: 4_500 }, (_, of) => row(at - minuteMs, `pod-${of}`));
        await put(...many);
        await leaderOn(database).pass();
        expect(await stored()).toHaveLength(1);
        expect(await total()).toBe(4_500);
      });

      describe("counts nothing twice and loses nothing", () => {
        /** Calls back before each write with a fold, or answers that its outcome is unknown. */
        const around = (
          before: () => Promise<void>,
          { answer = "known" }: { answer?: "known" | "unknown" } = {},
        ): Database => ({
          ...again,
          async write(statements: readonly Statement[], options) {
            const isFold = statements.length === 3;
            if (isFold) await before();
            const tables = await again.write(statements, options);
            if (isFold && answer === "unknown") {
              throw new FlotillaError("unknown_outcome", "the answer was lost, as ordered");
            }
            return tables;
          },
        });
        const old = () => startOf(nowMs - minutesKeptMs, hourMs) - hourMs;
        const fill = () =>
          put(
            row(foldable(), "pod-1", 1),
            row(foldable(), "pod-2", 2),
            row(old(), "pod-1", 4),
            row(old() + minuteMs, "pod-1", 8),
          );

        test("though the leader changes between its decision and its write", async () => {
          await fill();
          const second = leaderOn(database);
          let overtaken = 0;
          const first = leaderOn(
            around(async () => {
              overtaken++;
              await second.pass();
            }),
          );
          await first.pass();
          expect(overtaken).toBe(1);
          expect(await total()).toBe(15);
          await first.pass();
          await second.pass();
          expect(await total()).toBe(15);
          expect((await stored()).map(({ span }) => span)).toEqual([minuteMs, hourMs]);
        });

        test("though another leader is a whole fold ahead, from pods to hours", async () => {
          await fill();
          const second = leaderOn(database);
          const writes: (readonly Statement[])[] = [];
          const held = leaderOn({
            ...again,
            // It has decided, and sends only once the other has folded the same minutes into their hour.
            async write(statements, options) {
              if (statements.length !== 3) return again.write(statements, options);
              writes.push(statements);
              throw new FlotillaError("store_unavailable", "the way to the store is cut");
            },
          });
          await held.pass();
          await second.pass();
          await second.pass();
          expect(writes).toHaveLength(1);
          for (const late of writes) await again.write(late);
          expect(await total()).toBe(15);
          await second.pass();
          expect(await total()).toBe(15);
        });

        test("though the answer to a fold is lost, and the same fold arrives again", async () => {
          await fill();
          const sent: (readonly Statement[])[] = [];
          const losing = around(async () => {}, { answer: "unknown" });
          const first = leaderOn({
            ...losing,
            write(statements, options) {
              if (statements.length === 3) sent.push(statements);
              return losing.write(statements, options);
            },
          });
          await first.pass();
          for (const same of sent) await database.write(same);
          expect(await total()).toBe(15);
          await leaderOn(database).pass();
          for (const same of sent) await database.write(same);
          await leaderOn(database).pass();
          expect(await total()).toBe(15);
        });

        test("though many leaders fold at once", async () => {
          await fill();
          const all = Array.from({ length: 6 }, (_, at) => leaderOn(at % 2 ? again : database));
          for (let round = 0; round < 3; round++) {
            await Promise.all(all.map((leader) => leader.pass()));
          }
          expect(await total()).toBe(15);
          expect((await stored()).map(({ span }) => span)).toEqual([minuteMs, hourMs]);
        });
      });
    });

    describe("reading", () => {
      test("leaves out minutes in which nothing was counted", async () => {
        const at = startOf(nowMs, minuteMs) - 10 * minuteMs;
        await put(row(at, "pod-1"), row(at + 3 * minuteMs, "pod-1"));
        const { points } = await reader().read({ subject: "task:mail" });
        expect(points.map(({ atMs }) => atMs)).toEqual([at, at + 3 * minuteMs]);
      });

      test.each([
        [{ subject: "mail" }, "subject must be such as"],
        [{ subject: "task:mail", fromMs: 0, toMs: 10 * dayMs }, "at most 1500 points"],
        [{ subject: "task:mail", fromMs: 5, toMs: 5 }, "toMs must be later"],
        [{ subject: "task:mail", fromMs: -1 }, "fromMs must be a whole number"],
        [{ subject: "task:mail", step: "day" }, "step must be one of minute, hour"],
        [{ subject: "task:mail", until: 1 }, "until"],
      ])("refuses %o", async (options, message) => {
        const read = reader().read(options as Parameters<ReturnType<typeof reader>["read"]>[0]);
        await expect(read).rejects.toMatchObject({
          code: "invalid_option",
          message: expect.stringContaining(message),
        });
      });

      test("adds up the last hour of many subjects, and leaves out those without counts", async () => {
        const at = startOf(nowMs, minuteMs);
        await put(
          row(at, "pod-1", 1, "task:a"),
          row(at, "pod-2", 2, "task:a"),
          row(at - 30 * minuteMs, "", 4, "task:a"),
          row(at - 2 * hourMs, "", 100, "task:a"),
          row(at, "pod-1", 7, "task:b"),
        );
        const totals = await reader().totals({ subjects: ["task:a", "task:none"] });
        expect([...totals].map(([subject, { counts }]) => [subject, counts])).toEqual([
          ["task:a", { completed: 7 }],
        ]);
        expect(await reader().totals({ subjects: [] })).toEqual(new Map());
        await expect(reader().totals({ subjects: ["no subject"] })).rejects.toThrow("subject must");
      });

      test("lists subjects page by page, in their order, also of one kind", async () => {
        const at = startOf(nowMs, minuteMs);
        const subjects = ["flow", "flow:a", "other:task", "task", "task:a", "task:b", "throttle:x"];
        await put(...subjects.map((subject) => row(at, "pod-1", 1, subject)));
        await put(row(at - minuteMs, "pod-1", 1, "task:b"));
        const all = await reader().subjects();
        expect(all).toEqual({
          subjects: subjects.map((subject) => ({ subject, lastAtMs: at })),
          next: null,
        });
        const first = await reader().subjects({ limit: 3 });
        expect(first.next).toBe("other:task");
        const second = await reader().subjects({ limit: 4, cursor: first.next! });
        expect([...first.subjects, ...second.subjects]).toEqual(all.subjects);
        const tasks = await reader().subjects({ kind: "task" });
        expect(tasks.subjects.map(({ subject }) => subject)).toEqual(["task", "task:a", "task:b"]);
        const rest = await reader().subjects({ kind: "task", cursor: "task:a", limit: 1 });
        expect(rest).toMatchObject({ subjects: [{ subject: "task:b" }], next: null });
      });
    });
  });
}
