import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import type { Database, Listener } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import type { Bus } from "../bus.ts";
import { createStoreBus, type StoreBusOptions } from "../store-bus.ts";
import { envelopesKeptMs, pruneEnvelopes, insertEnvelopes } from "../sql.ts";

/** What is left by one test is none of the next one's. */
export const emptyBus = sql`delete from ${table("bus_message")}`;

const waitLimitMs = 90_000;
// On a slow machine much of this time passes between one answer of a store and the next.
const timeoutMs = 3_600_000;

/** What envelopes in the store promise, and what they may cost. */
export function storeBusContract(kind: StoreKind): void {
  describe(`mailboxes on ${kind.name}`, () => {
    let store: OpenStore;
    let clock: MovableClock;
    let buses: Bus[];
    let lost: [number, string][];
    // To open one takes far longer than what these do with it, so that they share it.
    beforeAll(async () => {
      store = await kind.open();
      await migrate(store.database);
    });
    afterAll(async () => {
      await store.database.close();
      await store.remove();
    });
    beforeEach(() => {
      clock = movableClock();
      buses = [];
      lost = [];
    });
    afterEach(async () => {
      for (const bus of buses) await bus.close();
      await store.database.write([emptyBus]);
    });

    const connect = (address: string, more: Partial<StoreBusOptions> = {}): Bus => {
      const bus = createStoreBus({
        address,
        database: store.database,
        clock,
        random: seededRandom(1),
        onLost: (count, why) => lost.push([count, why]),
        ...more,
      });
      buses.push(bus);
      return bus;
    };
    const reading = (address: string, more: Partial<StoreBusOptions> = {}) => {
      const got: unknown[] = [];
      const bus = connect(address, more);
      bus.serve("note", (body) => {
        got.push(body);
        return "read";
      });
      return { bus, got };
    };
    const until = async (
      what: string,
      condition: () => unknown,
      { stepMs = 20 } = {},
    ): Promise<void> => {
      const deadlineMs = performance.now() + waitLimitMs;
      while (!(await condition())) {
        if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen`);
        await clock.advance(stepMs);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    };
    const lying = async () => {
      const [row] = await store.database.read(
        sql`select count(*) as count from ${table("bus_message")}`,
      );
      return Number(row!["count"]);
    };
    const isEmpty = async () => (await lying()) === 0;

    test("bring envelopes at a notification, without waiting for the next poll", async () => {
      if (store.hints === false) return;
      const { got } = reading("bob");
      const alice = connect("alice");
      // A listener that has just subscribed is told to read once; that doesn't count.
      for (let nth = 1; nth <= 3; nth++) {
        alice.send("bob", "note", nth);
        await until("the envelope", () => got.length === nth, { stepMs: 0 });
      }
      expect(clock.monotonic()).toBe(0);
    });

    test("are polled where no notification comes", async () => {
      const counted = counting({ ...store.database, subscribe: () => () => {} });
      const { got } = reading("bob", { database: counted.database });
      const alice = connect("alice");
      await until("the first look", () => counted.reads > 0 && clock.timers > 0, { stepMs: 0 });
      await settled(counted);
      alice.send("bob", "note", 1);
      await until("the envelope to lie there", lying, { stepMs: 0 });
      expect(got).toEqual([]);
      await until("the envelope", () => got.length === 1);
      await until("the envelope to be taken", isEmpty);
    });

    test("cost the store no more than one poll a second, while nothing is sent", async () => {
      const counted = counting(store.database);
      const { bus } = reading("bob", { database: counted.database });
      await until("the first look", () => counted.reads > 0 && clock.timers > 0, { stepMs: 0 });
      await settled(counted);
      const before = { ...counted };
      for (let second = 0; second < 30; second++) {
        await clock.advance(1_000);
        await until("the look", () => clock.timers > 0, { stepMs: 0 });
      }
      expect(counted.reads - before.reads).toBeLessThanOrEqual(31);
      expect(counted.reads - before.reads).toBeGreaterThan(20);
      // Nor for envelopes to itself.
      bus.send("bob", "note", 1);
      await bus.request("bob", "note", 2, { timeoutMs });
      expect(counted.writes).toBe(0);
    });

    test("aren't polled while notifications come and there is surely nothing to read", async () => {
      let mayHaveEnvelopes = true;
      const notify: (() => void)[] = [];
      const counted = counting({
        ...store.database,
        subscribe(listener) {
          notify.push(() => listener());
          return () => {};
        },
      });
      const known = { mayHaveEnvelopes: () => mayHaveEnvelopes };
      const { got } = reading("bob", { database: counted.database, ...known });
      await until("the first look", () => counted.reads > 0 && clock.timers > 0, { stepMs: 0 });
      await settled(counted);
      const looksIn = async (seconds: number) => {
        const before = counted.reads;
        for (let second = 0; second < seconds; second++) {
          await clock.advance(1_000);
          await until("the look", () => clock.timers > 0, { stepMs: 0 });
        }
        return counted.reads - before;
      };
      mayHaveEnvelopes = false;
      // Without notifications it could be mistaken for long.
      expect(await looksIn(10)).toBeGreaterThan(5);
      for (const each of notify) each();
      await until("the notified look", () => clock.timers > 0, { stepMs: 0 });
      await settled(counted);
      expect(await looksIn(10)).toBe(0);
      connect("alice").send("bob", "note", 1);
      await until("the envelope to lie there", lying, { stepMs: 0 });
      mayHaveEnvelopes = true;
      await until("the envelope", () => got.length === 1);
    });

    test("take what is sent in one turn with one write, and one row for each address", async () => {
      const counted = counting(store.database);
      const alice = connect("alice", { database: counted.database });
      for (let nth = 0; nth < 500; nth++) alice.send(`nobody ${nth % 3}`, "note", { nth });
      await until("all to be stored", async () => (await lying()) >= 3);
      expect(await lying()).toBe(3);
      expect(counted.writes).toBe(1);
    });

    test("take along what follows from what is sent, some promises later", async () => {
      const counted = counting(store.database);
      const alice = connect("alice", { database: counted.database });
      const later = async () => {
        for (let hop = 0; hop < 20; hop++) await Promise.resolve();
        alice.send("nobody", "note", 2);
      };
      alice.send("nobody", "note", 1);
      void later();
      await until("it to be stored", async () => (await lying()) > 0);
      expect(await lying()).toBe(1);
      expect(counted.writes).toBe(1);
    });

    describe("whose envelopes come along with notifications", () => {
      test("hand them over without a read, each once, and delete them together", async () => {
        const carried = carrying(store.database);
        const counted = counting(carried.database);
        const { got } = reading("bob", { database: counted.database });
        await until("the first look", () => counted.reads > 0 && clock.timers > 0, { stepMs: 0 });
        await settled(counted);
        const before = { ...counted };
        const alice = connect("alice", { database: carried.database });
        for (let nth = 1; nth <= 20; nth++) {
          alice.send("bob", "note", nth);
          await until("the envelope", () => got.length === nth, { stepMs: 0 });
        }
        carried.again();
        expect(counted).toMatchObject({ reads: before.reads, writes: 0 });
        expect(await lying()).toBe(20);
        await until("all to be taken", isEmpty);
        expect(counted.writes).toBe(1);
        expect(got).toEqual(Array.from({ length: 20 }, (_, nth) => nth + 1));
      });

      test("read what no notification has named, and keep the order", async () => {
        const carried = carrying(store.database);
        const { got } = reading("bob", { database: carried.database });
        await until("the first look", () => clock.timers > 0, { stepMs: 0 });
        const alice = connect("alice", { database: carried.database });
        const say = async (nth: number) => {
          alice.send("bob", "note", nth);
          await until("it to be stored", () => carried.writes === nth, { stepMs: 0 });
        };
        await say(1);
        carried.deaf = true;
        await say(2);
        await say(3);
        carried.deaf = false;
        await say(4);
        await until("all", () => got.length === 4, { stepMs: 0 });
        expect(got).toEqual([1, 2, 3, 4]);
      });

      test("go on where a read that should have deleted them has failed, or its answer was lost", async () => {
        const carried = carrying(store.database);
        let looks = 0;
        const breaking: Database = {
          ...carried.database,
          async write(statements, options) {
            if (++looks === 1) throw new FlotillaError("store_unavailable", "down");
            const tables = await store.database.write(statements, options);
            if (looks === 2) throw new FlotillaError("unknown_outcome", "lost");
            return tables;
          },
        };
        const { got } = reading("bob", { database: breaking });
        await until("the first look", () => clock.timers > 0, { stepMs: 0 });
        const alice = connect("alice", { database: carried.database });
        for (let nth = 1; nth <= 3; nth++) {
          alice.send("bob", "note", nth);
          await until("the envelope", () => got.length === nth, { stepMs: 0 });
        }
        await until("three looks", () => looks >= 3);
        await until("all to be taken", isEmpty);
        expect(got).toEqual([1, 2, 3]);
      });

      test("are taken out by a bus that closes", async () => {
        const carried = carrying(store.database);
        const { bus, got } = reading("bob", { database: carried.database });
        await until("the first look", () => clock.timers > 0, { stepMs: 0 });
        connect("alice", { database: carried.database }).send("bob", "note", 1);
        await until("the envelope", () => got.length === 1, { stepMs: 0 });
        await bus.close();
        expect(await lying()).toBe(0);
      });

      test("are found where notifications can't be parsed", async () => {
        const carried = carrying(store.database, () => "nonsense");
        const { got } = reading("bob", { database: carried.database });
        await until("the first look", () => clock.timers > 0, { stepMs: 0 });
        connect("alice", { database: carried.database }).send("bob", "note", 1);
        await until("the envelope", () => got.length === 1, { stepMs: 0 });
        expect(got).toEqual([1]);
      });

      test("take out in time what keeps coming", async () => {
        const carried = carrying(store.database);
        const { got } = reading("bob", { database: carried.database });
        await until("the first look", () => clock.timers > 0, { stepMs: 0 });
        const alice = connect("alice", { database: carried.database });
        for (let nth = 1; nth <= 250; nth++) {
          alice.send("bob", "note", nth);
          await until("the envelope", () => got.length === nth, { stepMs: 0 });
          if (nth % 100 === 0) await until("a hundred to be taken", isEmpty, { stepMs: 0 });
        }
        expect(await lying()).toBeLessThanOrEqual(50);
        expect(clock.monotonic()).toBe(0);
      });
    });

    test("collect what is sent while a write is under way, and keep its order", async () => {
      const { got } = reading("bob");
      let release = () => {};
      let writes = 0;
      const alice = connect("alice", {
        database: {
          ...store.database,
          async write(statements, options) {
            if (++writes === 1) await new Promise<void>((resolve) => (release = resolve));
            return store.database.write(statements, options);
          },
        },
      });
      for (let nth = 0; nth < 50; nth++) {
        alice.send("bob", "note", nth);
        await eventLoopTurns(1);
      }
      expect(writes).toBe(1);
      release();
      await until("all envelopes", () => got.length === 50);
      expect(got).toEqual(Array.from({ length: 50 }, (_, nth) => nth));
      expect(writes).toBe(2);
    });

    test.each(["before", "after"] as const)(
      "deliver an envelope once where the answer to its write was lost %s it was stored",
      async (loss) => {
        // His time passes while hers stands still.
        const his = movableClock();
        const { got } = reading("bob", { clock: his });
        const forBob = async (condition: () => unknown) => (await his.advance(20), condition());
        const alice = connect("alice", { database: losing(store.database, [loss, loss]) });
        alice.send("bob", "note", 1);
        if (loss === "after") {
          // It is read and taken before it is sent again.
          await until("the envelope", () => forBob(() => got.length === 1), { stepMs: 0 });
          await until("the envelope to be taken", () => forBob(isEmpty), { stepMs: 0 });
        }
        await clock.advance(500);
        alice.send("bob", "note", 2);
        await until("both envelopes", () => forBob(() => got.includes(2)));
        expect(got).toEqual([1, 2]);
        await until("what came twice to be taken", () => forBob(isEmpty));
        expect(got).toEqual([1, 2]);
        expect(lost).toEqual([]);
      },
    );

    test("outlast a store that is busy for a while", async () => {
      const { got } = reading("bob");
      let busy = true;
      const alice = connect("alice", {
        database: refusing(store.database, "store_busy", () => busy),
      });
      for (let nth = 0; nth < 3; nth++) alice.send("bob", "note", nth);
      await clock.advance(1_500);
      expect(got).toEqual([]);
      busy = false;
      await until("the envelopes", () => got.length === 3);
      expect(lost).toEqual([]);
    });

    test("drop what the store refuses for long, report it, and deliver what comes later", async () => {
      const { got } = reading("bob");
      let away = true;
      const alice = connect("alice", {
        database: refusing(store.database, "store_unavailable", () => away),
      });
      alice.send("bob", "note", "lost");
      await until("the loss", () => lost.length > 0, { stepMs: 500 });
      expect(lost).toEqual([[1, "unsent"]]);
      away = false;
      alice.send("bob", "note", "later");
      await until("the later one", () => got.length > 0);
      expect(got).toEqual(["later"]);
    });

    test("drop what would be too much to keep, and report it", async () => {
      const { got } = reading("bob");
      let busy = true;
      const alice = connect("alice", {
        database: refusing(store.database, "store_busy", () => busy),
        maxWaiting: 3_000,
      });
      const long = "x".repeat(900);
      alice.send("bob", "note", `first ${long}`);
      await eventLoopTurns();
      for (let nth = 0; nth < 5; nth++) alice.send("bob", "note", `${nth} ${long}`);
      expect(lost).toEqual([
        [1, "full"],
        [1, "full"],
      ]);
      busy = false;
      await until("the rest", () => got.length === 4);
      alice.send("bob", "note", "again");
      await until("there to be room again", () => got.includes("again"));
    });

    test("let a request be repeated whose answer was lost", async () => {
      let asked = 0;
      let refused = true;
      const bob = connect("bob", {
        database: refusing(store.database, "store_corrupt", () => refused),
      });
      bob.serve("double", (body) => {
        asked++;
        return Number(body) * 2;
      });
      const alice = connect("alice");
      const first = alice
        .request("bob", "double", 1, { timeoutMs })
        .catch((error: unknown) => error);
      await until("the question", () => asked === 1);
      await until("the loss", () => lost.length === 1);
      await clock.advance(timeoutMs);
      expect(await first).toMatchObject({ code: "timeout" });
      refused = false;
      let answer: unknown;
      void alice.request("bob", "double", 1, { timeoutMs }).then((found) => (answer = found));
      await until("the answer", () => answer !== undefined);
      expect({ answer, asked }).toEqual({ answer: 2, asked: 2 });
    });

    test.each(["before", "after", "refused"] as const)(
      "hand an envelope over once where deleting it was lost or refused: %s",
      async (loss) => {
        const database =
          loss === "refused"
            ? refusing(store.database, "store_busy", twice())
            : losing(store.database, [loss, loss]);
        const { got } = reading("bob", { database });
        const alice = connect("alice");
        for (const nth of [1, 2, 3]) {
          alice.send("bob", "note", nth);
          await until("the envelope", () => got.includes(nth));
        }
        await until("all to be taken", isEmpty);
        expect(got).toEqual([1, 2, 3]);
      },
    );

    test("bring an envelope at a notification that comes while anything else is done", async () => {
      if (store.hints === false) return;
      let release = () => {};
      let held = false;
      let holding: "read" | "write" | undefined;
      const hold = async (which: "read" | "write") => {
        if (holding !== which) return;
        holding = undefined;
        held = true;
        await new Promise<void>((resolve) => (release = resolve));
        held = false;
      };
      const { bus, got } = reading("bob", {
        database: {
          ...store.database,
          async read(statement) {
            const found = await store.database.read(statement);
            await hold("read");
            return found;
          },
          async write(statements, options) {
            await hold("write");
            return store.database.write(statements, options);
          },
        },
      });
      let stored = 0;
      const alice = connect("alice", {
        database: {
          ...store.database,
          async write(statements, options) {
            const tables = await store.database.write(statements, options);
            if (options?.channels?.length) stored++;
            return tables;
          },
        },
      });
      // To read, to delete, and to prune, which is due by now for a process that has sent an envelope.
      for (const [at, which] of (["read", "write", "write"] as const).entries()) {
        if (at === 2) {
          bus.send("nobody", "note", null);
          await until("the envelope to lie there", async () => (await lying()) === 1);
          await clock.advance(8_000);
        }
        holding = which;
        if (at < 2) alice.send("bob", "note", `first ${at}`);
        // An envelope that comes along with its notification needs no read; the next poll is due before long.
        await until("the hold", () => held, { stepMs: at < 2 ? 20 : 500 });
        const heldMs = clock.monotonic();
        const before = stored;
        alice.send("bob", "note", `second ${at}`);
        await until("it to be stored", () => stored > before, { stepMs: 0 });
        await hinted();
        release();
        await until("the envelope", () => got.includes(`second ${at}`), { stepMs: 0 });
        expect(clock.monotonic()).toBe(heldMs);
        await until("the end of the look", () => clock.timers > 0, { stepMs: 0 });
      }
    });

    test("go on after a read that failed", async () => {
      let failing = 2;
      const { got } = reading("bob", {
        database: {
          ...store.database,
          async read(statement) {
            if (failing-- > 0) throw new FlotillaError("store_unavailable", "away");
            return store.database.read(statement);
          },
        },
      });
      connect("alice").send("bob", "note", 1);
      await until("the envelope", () => got.length > 0);
      expect(got).toEqual([1]);
    });

    test("drop what is no envelope, and read on", async () => {
      const { got } = reading("bob");
      const junk = ["nonsense", "3", "[null,[],{}]", `[{"topic":"note"},{"answers":1}]`];
      const envelopes = junk.map((body, at) => ({
        address: "bob",
        sender: "junk",
        seq: at + 1,
        body,
      }));
      await store.database.write([insertEnvelopes(envelopes)], { channels: ["bob"] });
      connect("alice").send("bob", "note", 1);
      await until("the envelope", () => got.length > 0);
      await until("all to be taken", isEmpty);
      expect(got).toEqual([1]);
    });

    test("empty more than one read can hold", async () => {
      const envelopes = Array.from({ length: 350 }, (_, at) => ({
        address: "bob",
        sender: "alice",
        seq: at + 1,
        body: `[{"topic":"note","body":${at}}]`,
      }));
      await store.database.write([insertEnvelopes(envelopes)]);
      const { got } = reading("bob");
      await until("all envelopes", () => got.length === 350, { stepMs: 0 });
      expect(got).toEqual(envelopes.map((_, at) => at));
      await until("all to be taken", isEmpty);
    });

    /** Envelopes stay there for a while. */
    const age = async (byMs: number) => {
      if (store.clock) return store.clock.advance(byMs);
      await store.database.write([sql`update ${table("bus_message")} set at = at - ${byMs}`]);
    };

    test("lose envelopes that no endpoint receives to the sender's clean-up, and not before their time", async () => {
      const alice = connect("alice");
      for (const address of ["nobody", "somebody dead"]) alice.send(address, "note", 1);
      await until("the envelopes to lie there", async () => (await lying()) === 2);
      await age(envelopesKeptMs - 5_000);
      await clock.advance(15_000);
      expect(await lying()).toBe(2);
      await age(5_001);
      await until("them to be gone", isEmpty, { stepMs: 1_000 });
    });

    test("are kept clean by the process that prunes, so many envelopes at a time", async () => {
      const envelopes = Array.from({ length: 30 }, (_, at) => ({
        address: `gone ${at}`,
        sender: "alice",
        seq: at + 1,
        body: "[]",
      }));
      await store.database.write([insertEnvelopes(envelopes)]);
      await age(envelopesKeptMs + 1);
      await store.database.write([pruneEnvelopes(20)]);
      expect(await lying()).toBe(10);
      await store.database.write([
        insertEnvelopes([{ address: "new", sender: "alice", seq: 1, body: "[]" }]),
        pruneEnvelopes(20),
      ]);
      expect(await lying()).toBe(1);
    });

    test("send what waits before they close, and read nothing after", async () => {
      const { bus, got } = reading("bob");
      const alice = connect("alice");
      await bus.close();
      for (let nth = 0; nth < 10; nth++) alice.send("bob", "note", nth);
      await alice.close();
      expect(clock.timers).toBe(0);
      expect(await lying()).toBe(1);
      await clock.advance(5_000);
      expect(got).toEqual([]);
      expect(await lying()).toBe(1);
    });
  });
}

function counting(database: Database) {
  const counted = {
    reads: 0,
    writes: 0,
    database: {
      ...database,
      read(statement) {
        counted.reads++;
        return database.read(statement);
      },
      write(statements, options) {
        counted.writes++;
        return database.write(statements, options);
      },
    } as Database,
  };
  return counted;
}

/** Notifications have come by then. */
const hinted = () => new Promise((resolve) => setTimeout(resolve, 300));

/** Waits until a store has told new listeners to read once more. */
async function settled(counted: { readonly reads: number }): Promise<void> {
  for (let before = -1; before !== counted.reads;) {
    before = counted.reads;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** The same database, whose notifications the test sends, with envelopes as payloads. */
function carrying(database: Database, told = (text: string | undefined) => text) {
  const listeners: { readonly address: string | undefined; readonly listener: Listener }[] = [];
  let last = () => {};
  const carried = {
    /** Notifies no listener. */
    deaf: false,
    /** Writes that inserted envelopes. */
    writes: 0,
    /** Sends the last envelope's notification once more. */
    again: () => last(),
    database: {
      ...database,
      async write(statements, options) {
        const tables = await database.write(statements, options);
        const { channels = [], payloads } = options ?? {};
        if (channels.length > 0) carried.writes++;
        last = () => {
          for (const { address, listener } of listeners) {
            if (channels.includes(address!)) listener(undefined, told(payloads?.get(address!)));
          }
        };
        if (channels.length > 0 && !carried.deaf) last();
        return tables;
      },
      subscribe(listener, address) {
        listeners.push({ address, listener });
        return () => {};
      },
    } as Database,
  };
  return carried;
}

/** The same database, whose first writes are lost on the way there or on the way back. */
function losing(database: Database, losses: readonly ("before" | "after")[]): Database {
  const left = [...losses];
  const unknown = new FlotillaError("unknown_outcome", "lost");
  return {
    ...database,
    async write(statements, options) {
      const loss = left.shift();
      if (loss === "before") throw unknown;
      const answer = await database.write(statements, options);
      if (loss === "after") throw unknown;
      return answer;
    },
  };
}

function refusing(
  database: Database,
  code: FlotillaError["code"],
  refuses: () => boolean,
): Database {
  return {
    ...database,
    async write(statements, options) {
      if (refuses()) throw new FlotillaError(code, "refused");
      return database.write(statements, options);
    },
  };
}

function twice(): () => boolean {
  let left = 2;
  return () => left-- > 0;
}
