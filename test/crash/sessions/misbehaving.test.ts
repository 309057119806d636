import { describe, expect, test } from "vitest";
import { keepAlive } from "../keep-alive.ts";
import { createSessionFleet } from "./harness.ts";
import { until } from "../until.ts";

// A process whose event loop is blocked is ended after so many of its own beats.
const config = { stallBeats: 15 };
const neighbours = ["near-1", "near-2", "near-3"];

describe.each([
  ["sqlite", 1, "ends", "die"],
  ["postgres", 2, "blocks", "block"],
] as const)(
  "on %s, with %s servers at a time, an agent that %s each pod",
  (on, servers, _, word) => {
    test("is stored as failed after three of them, and the answers beside it are made", async () => {
      const fleet = await createSessionFleet({ on });
      const respawned = keepAlive(servers, () => fleet.startServer({ config }));
      await until("a server is up", () => fleet.servers.length > 0);
      const ada = fleet.client("ada");
      const sessions = ["poison", ...neighbours];
      for (const session of sessions) {
        await fleet.open(session, "local");
        ada.follow(session);
      }
      await Promise.all(neighbours.map((session) => ada.say(session, `linger-${session}`)));
      expect(await ada.say("poison", word)).toMatchObject({ type: "ok", seq: 1 });
      const answers = async (session: string) =>
        (await fleet.stored()).find((each) => each.session === session)!.entries.slice(1);

      const ended = await until(
        "the poison is given up",
        async () => (await answers("poison"))[0],
        120_000,
      );
      expect(ended).toMatchObject({ outcome: "failed" });
      const called = fleet.calls("poison").filter(({ event }) => event === "called");
      expect(called).toHaveLength(3);
      expect(new Set(called.map(({ where }) => where)).size).toBe(3);
      // The last time nothing else was made there.
      const last = called.at(-1)!;
      const here = fleet
        .calls()
        .filter(({ where, atMs }) => where === last.where && atMs < last.atMs);
      const open = new Map(here.map(({ session, event }) => [session, event]));
      expect([...open].filter(([, event]) => event === "called")).toEqual([]);

      for (const session of neighbours) {
        const [answer] = await until("its neighbour ends", async () => {
          const stored = await answers(session);
          return stored.length > 0 ? stored : undefined;
        });
        expect(answer).toMatchObject({
          outcome: "completed",
          text: expect.stringMatching(new RegExp(`re linger-${session}$`)),
        });
      }
      // And it goes on, also in the session itself.
      expect(await ada.say("poison", "sound")).toMatchObject({ type: "ok" });
      await until("it is answered", async () =>
        (await answers("poison")).at(-1)?.text.endsWith("re sound"),
      );
      await respawned.stop();
    }, 240_000);
  },
);

test("a promise that an agent leaves behind and that rejects is logged with its turn, and the pod goes on", async () => {
  const fleet = await createSessionFleet();
  const server = await fleet.startServer();
  const ada = fleet.client("ada");
  await fleet.open("careless", "local");
  ada.follow("careless");
  for (const text of ["careless", "sound"]) await ada.say("careless", text);
  await until("both are answered", () => ada.entries("careless").length === 4);
  expect(fleet.logged("unhandled rejection in a handler or agent")).toMatchObject([
    {
      level: "error",
      session: "careless",
      agent: "local",
      epoch: 1,
      attempt: 1,
      error: "left behind in careless",
    },
  ]);
  expect(server.alive).toBe(true);
});
