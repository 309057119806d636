import pg from "pg";
import { expect, test } from "vitest";
import { agent } from "../../src/sessions/agents/agent.ts";
import { entriesOnce, postgresWithNats, said, startFleet } from "../sessions/fleet.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});
const sessions = 12;

test("sessions on many logs are talked to through every process, and no envelope is a row", async () => {
  await using fleet = await startFleet(postgresWithNats, [echo]);
  const client = new pg.Client(fleet.url);
  await client.connect();
  // It would see a row that is gone again.
  await client.query(`create function refuse() returns trigger language plpgsql as
    $$ begin raise exception 'an envelope in a row'; end $$`);
  await client.query(`create trigger refuse before insert on flotilla.bus_message
    for each row execute function refuse()`);
  try {
    const talks = Array.from({ length: sessions }, async (_, nth) => {
      const way = fleet.ways[nth % fleet.ways.length]!;
      const { sessionId } = await way.create("echo", { user: "ann" });
      for (const [turn, each] of fleet.ways.entries()) {
        await each.open(sessionId).send(`${turn}`);
        const count = 2 * (turn + 1);
        const entries = await entriesOnce(each.open(sessionId), (all) => all.length >= count);
        expect(said(entries).slice(-2)).toEqual([`user: ${turn}`, `echo: you said ${turn}`]);
      }
    });
    await Promise.all(talks);
  } finally {
    await client.end();
  }
});

test("messages to a session of another pod wait while NATS is away, and each is stored once", async () => {
  await using fleet = await startFleet(postgresWithNats, [echo]);
  const ids: string[] = [];
  for (let nth = 0; nth < sessions; nth++)
    ids.push((await fleet.web.sessions.create("echo", { user: "ann" })).sessionId);
  await fleet.server!.kill();
  await expect.poll(() => fleet.web.natsState).toBe("away");
  // The program owns no log, so that each of them needs a pod.
  const sent = ids.map((id) => fleet.web.sessions.open(id).send("still there?"));
  let settled = 0;
  for (const each of sent) void each.finally(() => settled++).catch(() => {});
  await fleet.web.tasks.stats();
  expect(settled).toBe(0);
  await fleet.server!.start();
  await Promise.all(sent);
  for (const id of ids) {
    const entries = await entriesOnce(fleet.web.sessions.open(id), (all) => all.length >= 2);
    expect(said(entries)).toEqual(["user: still there?", "echo: you said still there?"]);
  }
});
