import { beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { type MovableClock, movableClock, turns } from "../../base/movable-clock.contract.ts";
import { seededRandom } from "../../base/random.ts";
import type { Bus } from "../../bus/bus.ts";
import { createLocalExchange } from "../../bus/local.ts";
import type { Journal } from "../journal/journal.ts";
import { createMemoryJournal } from "../journal/memory.ts";
import { type Courier, createCourier } from "./courier.ts";
import { createHeads } from "./heads.ts";

describe("a courier that asks another pod", () => {
  let clock: MovableClock;
  let journal: Journal;
  let bus: Bus;
  let courier: Courier;
  /** What the owner does when it is asked. */
  let answer: () => Promise<never> | { lastSeq: number };

  beforeEach(async () => {
    clock = movableClock();
    const ids = uuidv7(clock, seededRandom(3));
    journal = createMemoryJournal({ ids });
    await journal.create(1);
    const [seen] = await journal.heads();
    await journal.take(seen!, { podId: "owner", host: null, recordId: "r" });
    const exchange = createLocalExchange();
    exchange.connect("owner", { clock }).serve("session.ask", () => answer());
    bus = exchange.connect("asking", { clock });
    courier = createCourier({
      bus,
      heads: createHeads({ journal, clock }),
      owners: undefined,
      create: () => journal.create(1),
      clock,
      random: seededRandom(4),
    });
  });

  const ask = () =>
    courier
      .ask("default", "s", { type: "stop" })
      .catch((error: unknown) => (error as FlotillaError).code);
  const never = () => new Promise<never>(() => {});

  test("O2: doesn't know what became of what was under way when its process began to leave", async () => {
    answer = never;
    const asked = ask();
    await turns();
    courier.close();
    await bus.close();
    expect(await asked).toBe("unknown_outcome");
    expect(await ask()).toBe("closed");
  });

  test("O2: doesn't know it either where nobody answered and the store went away then", async () => {
    answer = never;
    const asked = ask();
    await turns();
    journal.heads = () => Promise.reject(new FlotillaError("store_unavailable", "away"));
    await clock.advance(20_000);
    expect(await asked).toBe("unknown_outcome");
  });

  test("says what went wrong where nothing can have been stored", async () => {
    journal.heads = () => Promise.reject(new FlotillaError("store_unavailable", "away"));
    expect(await ask()).toBe("store_unavailable");
  });

  test("passes on what the owner has decided, also where it didn't answer before", async () => {
    answer = never;
    const asked = ask();
    await turns();
    answer = () => Promise.reject(new FlotillaError("conflict", "it is archived"));
    await clock.advance(20_000);
    expect(await asked).toBe("conflict");
  });
});
