import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { Bus } from "../../bus/bus.ts";
import { createStoreBus } from "../../bus/store-bus.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import { storeKinds } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import type { Command } from "../conversation/command.ts";
import type { Journal } from "./journal.ts";
import { createSqlJournal } from "./sql-journal.ts";
import { createCommandRouter } from "./command-router.ts";
import { createHeads } from "./heads.ts";
import { createOwner, type Owner } from "./owner.ts";

const tenant = "default";
const waitLimitMs = 90_000;

describe.each(storeKinds)("envelopes to owners on $name", (kind) => {
  let store: OpenStore;
  let journal: Journal;
  let clock: MovableClock;
  let buses: Bus[];
  const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(7));

  beforeEach(async () => {
    store = await kind.open();
    await migrate(store.database);
    journal = createSqlJournal({ database: store.database, ids });
    await journal.create(1);
    clock = movableClock();
    buses = [];
  });
  afterEach(async () => {
    for (const bus of buses) await bus.close();
    await store.database.close();
    await store.remove();
  });

  /** Moves the clock while the store works, and no faster than it answers. */
  const until = async (what: string, condition: () => unknown): Promise<void> => {
    const deadlineMs = performance.now() + waitLimitMs;
    while (!(await condition())) {
      if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen`);
      await journal.heads();
      await clock.advance(10);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const envelopesTo = async (address: string): Promise<number> => {
    const [row] = await store.database.read(
      sql`select count(*) as count from ${table("bus_message")} where address = ${address}`,
    );
    return Number(row!["count"]);
  };

  const routerAt = (address: string, owner?: Owner) => {
    const random = seededRandom(buses.length);
    const bus = createStoreBus({ address, database: store.database, clock, random });
    buses.push(bus);
    const heads = createHeads({ journal, clock });
    const owners = owner && { of: () => owner, awaken: async () => {} };
    return createCommandRouter({ bus, heads, owners, create: async () => {}, clock, random });
  };
  const take = async (podId: string): Promise<Owner> => {
    const [seen] = await journal.heads();
    const head = await journal.take(seen!, { podId, host: null, recordId: ids.next() });
    return createOwner(
      head!,
      { busy: [] },
      {
        journal,
        clock,
        random: seededRandom(1),
        ids,
        log: silentLogger,
        facts: () => ({
          nowMs: clock.now(),
          newId: () => ids.next(),
          agent: () => undefined,
          runnerFor: () => null,
        }),
        prime: () => undefined,
        onCommitted: () => {},
        onFenced: () => {},
        isFresh: () => true,
      },
    );
  };

  test("O2: a message that was refused for certain isn't stored by a pod that slept and has the log again", async () => {
    // The pod is paused: its envelopes stay where they are.
    await take("slept");
    let told: string | undefined;
    routerAt("web")
      .submit(tenant, "s", message)
      .catch((error: FlotillaError) => (told = error.code));
    await until("an envelope to the pod that sleeps", () => envelopesTo("slept"));
    routerAt("next", await take("next"));
    await until("a refusal", () => told);
    expect(told).toBe("not_found");

    const again = await take("slept");
    const made = { sessionId: "s", tenant, agents: [], users: [], metadata: null };
    await again.submit(tenant, "s", { type: "create", ...made });
    expect(await envelopesTo("slept")).toBeGreaterThan(0);
    routerAt("slept", again);
    await until("its envelopes to be read", async () => (await envelopesTo("slept")) === 0);
    expect(await journal.entries("s", { after: 0, limit: 10 })).toEqual([]);
    // What is meant for it is stored.
    const stored = routerAt("later").submit(tenant, "s", { ...message, clientId: "b" });
    let seq: number | undefined;
    void stored.then((answer) => (seq = answer.seq));
    await until("an answer", () => seq);
    expect(seq).toBe(1);
  });
});

const message: Extract<Command, { type: "append" }> = {
  type: "append",
  clientId: "a",
  messageId: "a",
  role: "user",
  author: "ada",
  parts: [{ type: "text", text: "hello" }],
  tokens: 1,
};
