import { expect, inject, onTestFinished, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { startPgBouncer } from "../postgres/pgbouncer.ts";
import { said } from "../sessions/fleet.ts";
import { startNats } from "./server.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

test("S10: behind a pooler the archive follows; while that is gone no message fails, and then all of it is stored once", async () => {
  const server = inject("postgresUrl");
  const { url: direct, drop } = await temporaryDatabase();
  onTestFinished(drop);
  let pooler = await startPgBouncer({ server });
  onTestFinished(() => pooler.stop());
  const store = pooler.through(direct);
  const nats = await startNats({ jetStream: true });
  onTestFinished(() => nats.stop());
  const pod = await startPod({
    store,
    use: [echo],
    sessions: { logs: 2 },
    log: silentLogger,
    dataDir: false,
    shutdownMs: 2_000,
    nats: { servers: nats.url, use: "all", durability: "single" },
  });
  onTestFinished(() => pod.stop());
  const unarchived = () => pod.archiveState()!.unarchivedEntries;

  const chat = await pod.sessions.create("echo", { user: "ann" });
  await chat.ask("one");
  await expect.poll(unarchived).toBe(0);
  const { port } = new URL(store);
  await pooler.stop();
  for (const text of ["two", "three"]) {
    expect(said([await chat.ask(text)])).toEqual([`echo: you said ${text}`]);
  }
  await expect.poll(() => pod.archiveState()!.isAway).toBe(true);
  expect(unarchived()).toBe(4);
  pooler = await startPgBouncer({ server, settings: { listen_port: Number(port) } });
  await expect.poll(unarchived).toBe(0);
  expect(pod.archiveState()).toMatchObject({ isAway: false, aside: 0 });
  const { entries } = await chat.entries();
  expect(said(entries)).toEqual(
    ["one", "two", "three"].flatMap((text) => [`ann: ${text}`, `echo: you said ${text}`]),
  );
});
