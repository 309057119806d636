import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import type { SessionService } from "../../src/sessions/service.ts";
import { type SessionFleet, postgresWithNats, startFleet, stores } from "./fleet.ts";

const tenant = "default";

/** A client at one pod, and whom it sees. */
function enter(service: SessionService | null, sessionId: string, user?: string) {
  let seen = "";
  const attendance = service!.presence(tenant, sessionId, user, {
    push({ people }) {
      seen = people.map((each) => (each.typing ? `${each.user}…` : each.user)).join(" ");
      return true;
    },
    fail: () => {},
  });
  return {
    ...attendance,
    sees: (expected: string) => until(`${expected} to be seen`, () => seen === expected),
  };
}

describe.each([...stores, postgresWithNats])("two pods on $name", (store) => {
  let fleet: SessionFleet;
  beforeAll(async () => {
    fleet = await startFleet(store, []);
  });
  afterAll(() => fleet[Symbol.asyncDispose]());

  test("show each other's people, and write little for a thousand keystrokes", async () => {
    const { able, other, web, url } = fleet;
    const { sessionId } = await web.sessions.create(null, { users: ["ada", "bob", "cat"] });
    const ada = enter(able.sessionService, sessionId, "ada");
    const bob = enter(other.sessionService, sessionId, "bob");
    await Promise.all([ada.sees("ada bob"), bob.sees("ada bob")]);
    bob.typing(true);
    await ada.sees("ada bob…");
    const wrote = await countEnvelopes(url);
    const startedMs = performance.now();
    for (let at = 0; at < 1_000; at++) {
      bob.typing(at % 2 === 1);
      ada.typing(at % 2 === 1);
      if (at % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await Promise.all([ada.sees("ada… bob…"), bob.sees("ada… bob…")]);
    const stored = await wrote();
    // Each pod twice a second, and what they compare every five.
    const ticks = (performance.now() - startedMs) / 500;
    expect(stored).toBeLessThan(2.5 * ticks + 6);
    expect(stored > 0).toBe(store.name === "Postgres");
    const seen: string[][] = [];
    for await (const people of web.sessions.open(sessionId).presence()) {
      seen.push(people.map(({ user }) => user));
      if (people.length === 2) break;
    }
    expect(seen.at(-1)).toEqual(["ada", "bob"]);
    await web.sessions.open(sessionId).members({ removeUsers: ["ada"] });
    await bob.sees("bob…");
    bob.leave();
    ada.leave();
  });
});

/** How many rows of envelopes about people Postgres stores from now on. Of other stores: none. */
async function countEnvelopes(url: string): Promise<() => Promise<number>> {
  if (!url.startsWith("postgres")) return async () => 0;
  const client = new pg.Client(url);
  await client.connect();
  await client.query(`
    create table counted (body text);
    create function count_envelope() returns trigger language plpgsql as $$
      begin insert into public.counted values (new.body); return new; end $$;
    create trigger counted after insert on flotilla.bus_message
      for each row execute function count_envelope();`);
  return async () => {
    const { rows } = await client.query(
      "select count(*)::integer as stored from counted where body like '%session.people%'",
    );
    await client.end();
    return (rows[0] as { stored: number }).stored;
  };
}
