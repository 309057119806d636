import { beforeAll, expect, test } from "vitest";
import { seededRandom } from "../../../src/base/random.ts";
import { type PostgresServer, startPostgres } from "../../postgres/server.ts";
import { sessionViolations } from "../sessions/checkers.ts";
import { createSessionFleet } from "../sessions/harness.ts";
import { keepTalking } from "../sessions/load.ts";
import { until } from "../until.ts";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
  return () => server.stop();
});

test("a Postgres server that is killed while clients talk loses nothing that was acked, doubles nothing and leaves no gap", async () => {
  const fleet = await createSessionFleet({ on: "postgres", server: server.url });
  await Promise.all([fleet.startServer(), fleet.startServer()]);
  const sessions = ["plain", "one", "two"];
  await Promise.all(sessions.map((name) => fleet.open(name, name === "plain" ? null : "local")));
  const clients = ["ada", "bob", "cid"].map((name) => fleet.client(name, { giveUpMs: 90_000 }));
  const counted = (type: string) =>
    fleet.history.events.filter((each) => each.type === type).length;
  const talking = keepTalking(clients, sessions, seededRandom(1));
  await until("much was said", () => counted("ok") >= 40);

  await server.kill("SIGKILL");
  const before = counted("ok");
  // Clients go on while it is away, and answers are under way that can't be stored.
  await until("more is said meanwhile", () => counted("invoke") > before + clients.length);
  await server.start();
  await until("much is said again", () => counted("ok") >= before + 40);
  await talking.stop();

  expect(sessionViolations(await fleet.gather())).toEqual([]);
  expect(fleet.faults).toEqual([]);
}, 240_000);
