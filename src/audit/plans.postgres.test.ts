import { describe, expect, test } from "vitest";
import { planning, planningOnSqlite } from "../store/contract/planning.ts";
import { deleteOldEntries, deleteOldestOf, hasOldEntries, listEntries, readEntry } from "./sql.ts";

const before = { atMs: 1, id: "e" };
const entry = {
  id: "e",
  actor: "key/web",
  tenant: "default",
  userId: "",
  keyName: "web",
  role: null,
  address: null,
  action: "tasks.cancel",
  subject: "t",
  filter: null,
  reason: null,
  actId: null,
};
/** What operators look at, what an act is known again by, and what the leader deletes. */
const indexed = {
  aPage: listEntries({ limit: 51 }),
  theNextPage: listEntries({ before, limit: 51 }),
  ofAnActor: listEntries({ actor: "key/web", before, limit: 51 }),
  ofAnAction: listEntries({ action: "tasks.cancel", before, limit: 51 }),
  ofASubject: listEntries({ subject: "t", before, limit: 51 }),
  ofAnActorAndAction: listEntries({ actor: "key/web", action: "tasks.cancel", limit: 51 }),
  ofATime: listEntries({ sinceMs: 1, untilMs: 2, limit: 51 }),
  readEntry: readEntry(entry),
  readEntryOfCaller: readEntry({ ...entry, actId: "a" }),
  deleteOldEntries: deleteOldEntries(1_000, 100),
  deleteOldestOf: deleteOldestOf("program", 100),
  hasOldEntries: hasOldEntries(1_000),
};

describe("however many entries there are, they are found by an index", () => {
  const sqliteStepsOf = planningOnSqlite();
  const planOf = planning([
    `insert into flotilla.audit (id, at, actor, action, subject, outcome)
      select n::text, n, 'key/' || n % 5, case n % 5 when 0 then 'tasks.cancel' else 'tasks.retry' end,
        n::text, 'done'
      from generate_series(1, 50000) n`,
    "analyze flotilla.audit",
  ]);

  test.each(Object.entries(indexed))("on SQLite for %s, without sorting", (_, statement) => {
    const steps = sqliteStepsOf(statement);
    const scans = steps.filter((step) => /^SCAN flotilla_audit\b/.test(step));
    expect(scans.filter((step) => !step.includes("USING"))).toEqual([]);
    expect(steps.filter((step) => step.includes("TEMP B-TREE FOR ORDER BY"))).toEqual([]);
  });

  test("of an actor and an action by one for both, since either may have many others", async () => {
    // Each has thousands of entries, and there is none of both.
    const none = listEntries({ actor: "key/1", action: "tasks.cancel", limit: 51 });
    expect(sqliteStepsOf(none).join()).toContain("flotilla_audit_actor_action");
    expect(await planOf(none)).toContain("audit_actor_action");
  });

  test("of several names on SQLite by that of the rarest", () => {
    const all = listEntries({ actor: "key/web", action: "tasks.cancel", subject: "t", limit: 51 });
    expect(sqliteStepsOf(all).join()).toContain("flotilla_audit_subject");
  });

  test.each(Object.entries(indexed))(
    "on Postgres for %s, without sorting",
    async (_, statement) => {
      const plan = await planOf(statement);
      expect(plan).not.toMatch(/Seq Scan on audit/);
      expect(plan).not.toMatch(/\bSort\b/);
    },
  );
});
