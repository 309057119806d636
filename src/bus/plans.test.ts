import { expect, test } from "vitest";
import { planning } from "../store/planning.contract.ts";
import { pruneMail, putMail, readMail, takeMail } from "./statements.ts";

// The planner believes that the table is as empty as it mostly is, when a pod is back from a long pause.
const planOf = planning([
  "alter table flotilla.mailbox set (autovacuum_enabled = off)",
  "analyze flotilla.mailbox",
  `insert into flotilla.mailbox (address, sender, seq, body)
    select 'pod ' || nth % 100, 'sender ' || nth % 7, nth, '[]' from generate_series(1, 20000) nth`,
]);
const read = Array.from({ length: 100 }, (_, at) => ({ sender: `sender ${at % 7}`, seq: at }));

test.each([
  ["to the letters at an address", readMail("pod 9", 100)],
  ["to the letters that it takes", takeMail("pod 9", read)],
])("Postgres goes %s by the primary key", async (_, statement) => {
  const plan = await planOf(statement);
  expect(plan).toMatch(/mailbox_pkey/);
  expect(plan).toMatch(/Index Cond: \(.*address = /);
  expect(plan).not.toMatch(/Seq Scan/);
});

test("Postgres sorts no letters to read them in order", async () => {
  expect(await planOf(readMail("pod 9", 100))).not.toMatch(/Sort/);
});

test("Postgres looks at no letter that it leaves or prunes more than once", async () => {
  expect(await planOf(putMail([{ address: "a", sender: "b", seq: 1, body: "[]" }]))).not.toMatch(
    /Scan on mailbox/,
  );
  const plan = await planOf(pruneMail());
  expect(plan).toMatch(/Tid Scan on mailbox/);
  expect(plan).toMatch(/Limit/);
});
