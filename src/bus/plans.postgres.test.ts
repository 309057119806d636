import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { temporaryFile } from "../store/contract/kinds.ts";
import { openStore } from "../store/open.ts";
import { planning } from "../store/contract/planning.ts";
import { render, type Value } from "../store/sql.ts";
import { sqliteDialect } from "../store/sqlite/dialect.ts";
import { pruneEnvelopes, insertEnvelopes, readEnvelopes, deleteEnvelopes } from "./sql.ts";

// The planner believes that the table is as empty as it mostly is, when a pod is back from a long pause.
const planOf = planning([
  "alter table flotilla.bus_message set (autovacuum_enabled = off)",
  "analyze flotilla.bus_message",
  `insert into flotilla.bus_message (address, sender, seq, body)
    select 'pod ' || nth % 100, 'sender ' || nth % 7, nth, '[]' from generate_series(1, 20000) nth`,
]);
const read = Array.from({ length: 100 }, (_, at) => ({ sender: `sender ${at % 7}`, seq: at }));

test.each([
  ["to the envelopes at an address", readEnvelopes("pod 9", 100)],
  ["to the envelopes that it deletes", deleteEnvelopes("pod 9", read)],
])("Postgres goes %s by the primary key", async (_, statement) => {
  const plan = await planOf(statement);
  expect(plan).toMatch(/bus_message_pkey/);
  expect(plan).toMatch(/Index Cond: \(.*address = /);
  expect(plan).not.toMatch(/Seq Scan/);
});

test("Postgres sorts no envelopes to read them in order", async () => {
  expect(await planOf(readEnvelopes("pod 9", 100))).not.toMatch(/Sort/);
});

test("Postgres reads no envelope that it leaves or prunes more than once", async () => {
  expect(
    await planOf(insertEnvelopes([{ address: "a", sender: "b", seq: 1, body: "[]" }])),
  ).not.toMatch(/Scan on bus_message/);
  const plan = await planOf(pruneEnvelopes());
  expect(plan).toMatch(/Tid Scan on bus_message/);
  expect(plan).toMatch(/Limit/);
});

test.each([
  ["read", readEnvelopes("pod 9", 100)],
  ["deleted", deleteEnvelopes("pod 9", read)],
])("SQLite finds envelopes by the primary key when they are %s", async (_, statement) => {
  const place = temporaryFile();
  await (await openStore(place.path)).close();
  const db = new DatabaseSync(place.path);
  const { text, values } = render(statement, sqliteDialect({ jsonbEach: false }));
  const plan = db.prepare(`explain query plan ${text}`).all(...(values as Value[]));
  db.close();
  await place.remove();
  const steps = plan.map((step) => String(step["detail"]));
  const ours = steps.filter((step) => step.includes("bus_message"));
  expect(ours).toHaveLength(1);
  expect(ours[0]).toMatch(/^SEARCH flotilla_bus_message USING .*INDEX .*address=\?/);
  expect(steps.join()).not.toContain("ORDER BY");
});
