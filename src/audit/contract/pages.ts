import { type LogRecord, logs } from "@opentelemetry/api";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { actAs } from "../actor.ts";
import type { AuditListOptions } from "../audit.ts";
import { auditOf, createAuditLeader } from "../leader.ts";
import { type ActsHarness, openActs } from "./harness.ts";

type Given = { id: number; atMs: number; actor: string; action: string; subject: string };

const audit = table("audit");
const idOf = ({ id }: Given) => `e${String(id).padStart(4, "0")}`;

/** What pages of the audit and its pruning promise on every store. */
export function auditPagesContract(kind: StoreKind): void {
  describe(`the audit on ${kind.name}`, () => {
    let scene: ActsHarness;
    beforeEach(async () => {
      scene = await openActs(kind);
    });
    afterEach(() => scene.close());

    const insert = (given: readonly Given[]) =>
      scene.queue.database.write([
        sql`delete from ${audit}`,
        sql`insert into ${audit} (id, at, actor, action, subject, outcome)
          select id, at, actor, action, subject, 'done' from ${rows(
            { id: "text", at: "integer", actor: "text", action: "text", subject: "text" },
            given.map((each) => [idOf(each), each.atMs, each.actor, each.action, each.subject]),
          )} fresh where true`,
      ]);
    /** Entries of an actor that are this old. */
    const insertOld = (actor: string, count: number, ageMs: number) =>
      scene.queue.database.write([
        sql`insert into ${audit} (id, at, actor, action, outcome)
          select id, ${now} - ${ageMs}, ${actor}, 'tasks.cancel', 'done' from ${rows(
            { id: "text" },
            Array.from({ length: count }, (_, at) => [`${actor}-${ageMs}-${at}`]),
          )} fresh where true`,
      ]);
    const counted = async () => {
      const found = await scene.queue.database.read(
        sql`select actor, count(*) as entries from ${audit} group by actor order by actor`,
      );
      return Object.fromEntries(found.map((row) => [row["actor"], Number(row["entries"])]));
    };
    const lead = (more: Partial<Parameters<typeof createAuditLeader>[0]> = {}) =>
      createAuditLeader({ ...scene.queue, ...auditOf(), ...more });

    test("is listed by any filter, page by page, newest first, without overlap or gap", async () => {
      const given = fc.uniqueArray(
        fc.record<Given>({
          id: fc.nat(9_999),
          atMs: fc.integer({ min: 1, max: 5 }),
          actor: fc.constantFrom("key/web", "cli/root"),
          action: fc.constantFrom("tasks.cancel", "names.pause"),
          subject: fc.constantFrom("a", "b"),
        }),
        { selector: ({ id }) => id, maxLength: 30 },
      );
      const filters = fc.record(
        {
          actor: fc.constantFrom("key/web", "cli/root", "program"),
          action: fc.constantFrom("tasks.cancel", "names.pause"),
          subject: fc.constantFrom("a", "b"),
          sinceMs: fc.integer({ min: 0, max: 6 }),
          untilMs: fc.integer({ min: 0, max: 6 }),
        },
        { requiredKeys: [] },
      );
      const limits = fc.integer({ min: 1, max: 12 });
      await fc.assert(
        fc.asyncProperty(given, filters, limits, async (entries, filter, limit) => {
          await insert(entries);
          const found: string[] = [];
          let cursor: string | null = null;
          do {
            const options: AuditListOptions = {
              ...filter,
              limit,
              ...(cursor !== null && { cursor }),
            };
            const page = await scene.clients().audit.list(options);
            expect(page.entries.length).toBeLessThanOrEqual(limit);
            found.push(...page.entries.map(({ id }) => id));
            expect(found.length).toBeLessThanOrEqual(entries.length);
            cursor = page.next;
          } while (cursor !== null);
          const { actor, action, subject, sinceMs = 0, untilMs = 9 } = filter;
          const expected = entries
            .filter((each) => actor === undefined || each.actor === actor)
            .filter((each) => action === undefined || each.action === action)
            .filter((each) => subject === undefined || each.subject === subject)
            .filter(({ atMs }) => atMs >= sinceMs && atMs <= untilMs)
            .toSorted((one, other) => other.atMs - one.atMs || other.id - one.id)
            .map(idOf);
          expect(found).toEqual(expected);
        }),
        { numRuns: 30 },
      );
    });

    test.each([
      { limit: 0 },
      { limit: 1_001 },
      { cursor: "x" },
      { actor: "" },
      { sinceMs: -1 },
      { who: "zoe" },
    ])("refuses %j", async (options) => {
      const refused = scene.clients().audit.list(options as AuditListOptions);
      await expect(refused).rejects.toMatchObject({ code: "invalid_option" });
    });

    test("is kept for as long as the config says, and no longer, page by page", async () => {
      await insertOld("key/web", 1_200, 401 * dayMs);
      await insertOld("key/web", 3, 399 * dayMs);
      await lead().pass();
      expect(await counted()).toEqual({ "key/web": 3 });
      const shorter = lead({ keptMs: 2 * dayMs });
      await insertOld("key/web", 2, dayMs);
      await shorter.pass();
      expect(await counted()).toEqual({ "key/web": 2 });
    });

    test("has its bound kept by deleting what programs did, the oldest first", async () => {
      await insertOld("program", 5, 2 * dayMs);
      await insertOld("program", 5, dayMs);
      await insertOld("key/web", 5, 3 * dayMs);
      await lead({ maxEntries: 8 }).pass();
      expect(await counted()).toEqual({ "key/web": 5, program: 3 });
      const { entries } = await scene.clients().audit.list({ actor: "program" });
      expect(new Set(entries.map(({ id }) => id.split("-")[1]))).toEqual(new Set([`${dayMs}`]));
    });

    test("is full where the bound is passed by others, says so, and has room again later", async () => {
      await insertOld("key/web", 12, dayMs);
      const logged: string[] = [];
      const note = (_: object, message: string) => void logged.push(message);
      const log = { debug: note, info: note, warn: note, error: note };
      const exported: unknown[] = [];
      const emit = ({ attributes }: LogRecord) => void exported.push(attributes);
      logs.setGlobalLoggerProvider({ getLogger: () => ({ emit, enabled: () => true }) });
      onTestFinished(() => logs.disable());
      await lead({ maxEntries: 10, log }).pass();
      await lead({ maxEntries: 10 }).pass();
      expect(exported).toMatchObject([
        { "flotilla.audit.action": "audit.full", "flotilla.audit.outcome": "full" },
      ]);
      const { tasks, audit: read } = scene.clients();
      const full = await read.list({ action: "audit.full" });
      expect(full.entries).toMatchObject([{ actor: "leader", outcome: "full", count: 10 }]);
      await expect(tasks.cancel("pending")).rejects.toMatchObject({ code: "overloaded" });
      await lead({ maxEntries: 1_000, log }).pass();
      expect((await read.list({ action: "audit.full" })).entries).toMatchObject([
        { outcome: "over" },
      ]);
      expect(await tasks.cancel("pending")).toBe("cancelled");
      expect(logged).toEqual(["the audit is full: acts are refused", "the audit has room again"]);
    });

    test("is said to be nearly full before it is", async () => {
      await insertOld("key/web", 95, dayMs);
      const logged: string[] = [];
      const note = (_: object, message: string) => void logged.push(message);
      const log = { debug: note, info: note, warn: note, error: note };
      await lead({ maxEntries: 100, log }).pass();
      expect(logged).toEqual(["the audit is nearly full"]);
    });

    test("is pruned by the leader about once a minute, and a store that is away is no harm", async () => {
      let reads = 0;
      const { database, clock } = scene.queue;
      const leader = lead({
        database: {
          ...database,
          async read() {
            reads++;
            throw new FlotillaError("store_unavailable", "away");
          },
        },
      });
      for (let beat = 0; beat < 120; beat++) {
        await leader.pass();
        await clock.advance(1_000);
      }
      expect(reads).toBeGreaterThanOrEqual(2);
      expect(reads).toBeLessThanOrEqual(4);
    });

    test("is logged line by line, once for each act", async () => {
      const lines: { fields: object; message: string }[] = [];
      const note = (fields: object, message: string) => void lines.push({ fields, message });
      const log = { debug: note, info: note, warn: note, error: note };
      const tasks = scene.queue.client({ log });
      await actAs({ kind: "cli", user: "root" }, () => tasks.cancel("pending"));
      await tasks.cancel("pending");
      await tasks.cancel("run");
      const line = (fields: object) => ({
        fields: expect.objectContaining({ outcome: "done", ...fields }) as object,
        message: "audited act",
      });
      expect(lines).toEqual([
        line({ actor: "cli/root", action: "tasks.cancel", subject: "pending" }),
        // What it was done to is a run.
        line({ actor: "program", action: "runs.cancel", subject: "run" }),
      ]);
    });
  });
}
