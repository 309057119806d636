import { beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { createMemoryBus, type MemoryBus } from "../../bus/memory-bus.ts";
import type { Person } from "../../protocol/frames.ts";
import { createPeople } from "./people.ts";

let clock: MovableClock;
let buses: MemoryBus;
/** The process that owns all logs. */
let owner: string | undefined;
let members: readonly string[] | undefined;
let isLossy: boolean;
let envelopes: string[];

beforeEach(() => {
  clock = movableClock();
  owner = "a";
  members = undefined;
  isLossy = false;
  envelopes = [];
  buses = createMemoryBus({
    carry: ({ text }, arrive) => {
      if (isLossy) return "lost";
      envelopes.push(text);
      queueMicrotask(arrive);
      return undefined;
    },
  });
});

function startProcess(address: string) {
  const bus = buses.connect(address, { clock });
  const people = createPeople({
    bus,
    clock,
    isLocal: () => owner === address,
    ownerOf: async () => owner,
    membersOf: () => (owner === address ? members : undefined),
  });
  return {
    people,
    bus,
    /** A client of this process. */
    open(user: string | undefined, sessionId = "s") {
      const shown: (readonly Person[])[] = [];
      const entered = people.enter(sessionId, user, {
        push(event) {
          shown.push(event.people);
          return true;
        },
        fail: () => {},
      });
      return {
        ...entered,
        shown,
        /** The users that it sees, with a mark if they type. */
        get sees() {
          return shown.at(-1)?.map(({ user: name, typing }) => (typing ? `${name}…` : name));
        },
      };
    },
  };
}

describe("in one process", () => {
  test("clients see who is there and who types, whole each time", async () => {
    const { open } = startProcess("a");
    const ada = open("ada");
    await clock.advance(0);
    expect(ada.shown).toEqual([[{ user: "ada", typing: false }]]);
    const [bob, again] = [open("bob"), open("ada")];
    const elsewhere = open("eve", "another");
    await clock.advance(500);
    expect(ada.sees).toEqual(["ada", "bob"]);
    expect(again.sees).toEqual(["ada", "bob"]);
    expect(elsewhere.sees).toEqual(["eve"]);
    bob.typing(true);
    await clock.advance(500);
    expect(ada.sees).toEqual(["ada", "bob…"]);
    bob.typing(false);
    await clock.advance(500);
    expect(ada.sees).toEqual(["ada", "bob"]);
    again.leave();
    bob.leave();
    await clock.advance(500);
    expect(ada.sees).toEqual(["ada"]);
    expect(bob.sees).toEqual(["ada", "bob"]);
  });

  test("a mark of typing ends by itself after six seconds, unless it is set again", async () => {
    const { open } = startProcess("a");
    const [ada, bob] = [open("ada"), open("bob")];
    bob.typing(true);
    await clock.advance(3_000);
    bob.typing(true);
    await clock.advance(5_900);
    expect(ada.sees).toEqual(["ada", "bob…"]);
    await clock.advance(700);
    expect(ada.sees).toEqual(["ada", "bob"]);
  });

  test("a thousand marks a second reach others twice a second", async () => {
    const { open } = startProcess("a");
    const [ada, bob] = [open("ada"), open("bob")];
    await clock.advance(500);
    const before = ada.shown.length;
    for (let at = 0; at < 2_000; at++) {
      bob.typing(at % 2 === 0);
      // An odd count, so that there is something to send each time.
      if (at % 9 === 8) await clock.advance(9);
    }
    expect(ada.shown.length - before).toBeLessThanOrEqual(5);
  });

  test("who is a member no longer is shown no longer, and one who only looks never is", async () => {
    const { open, people } = startProcess("a");
    members = ["ada", "bob"];
    const ada = open("ada");
    const bob = open("bob");
    const looking = open(undefined);
    await clock.advance(500);
    expect(looking.sees).toEqual(["ada", "bob"]);
    members = ["ada"];
    people.membersRemoved("s");
    await clock.advance(500);
    expect(ada.sees).toEqual(["ada"]);
    expect(looking.sees).toEqual(["ada"]);
    ada.typing(true);
    await clock.advance(500);
    expect(bob.sees).toEqual(["ada", "bob"]);
  });

  test("nothing is left when all have gone", async () => {
    const { open } = startProcess("a");
    const all = [open("ada"), open("bob"), open(undefined), open("eve", "another")];
    all[0]!.typing(true);
    await clock.advance(500);
    for (const each of all) each.leave();
    await clock.advance(1_000);
    expect(clock.timers).toBe(0);
  });
});

describe("across processes", () => {
  test("all see each other by the owner of the log, and who types until it ends", async () => {
    const [a, b, c] = [startProcess("a"), startProcess("b"), startProcess("c")];
    const clients = [a.open("ada"), b.open("bob"), c.open("cat"), c.open("ada")];
    await clock.advance(2_000);
    for (const client of clients) expect(client.sees).toEqual(["ada", "bob", "cat"]);
    clients[1]!.typing(true);
    await clock.advance(1_000);
    for (const client of clients) expect(client.sees).toEqual(["ada", "bob…", "cat"]);
    // It goes on for longer than a mark lasts.
    for (let at = 0; at < 4; at++) {
      await clock.advance(2_000);
      clients[1]!.typing(true);
      for (const client of clients) expect(client.sees).toContain("bob…");
    }
    await clock.advance(8_000);
    for (const client of clients) expect(client.sees).toEqual(["ada", "bob", "cat"]);
    clients[1]!.leave();
    await clock.advance(1_500);
    expect(clients[0]!.sees).toEqual(["ada", "cat"]);
    expect(clients[2]!.sees).toEqual(["ada", "cat"]);
  });

  test("an owner without people of its own passes on what others say, and forgets it", async () => {
    startProcess("a");
    const [b, c] = [startProcess("b"), startProcess("c")];
    const [bob, cat] = [b.open("bob"), c.open("cat")];
    const looking = c.open(undefined);
    await clock.advance(2_000);
    expect(bob.sees).toEqual(["bob", "cat"]);
    expect(looking.sees).toEqual(["bob", "cat"]);
    for (const each of [bob, cat, looking]) each.leave();
    await clock.advance(20_000);
    expect(clock.timers).toBe(0);
  });

  test("what is lost on the way is there some seconds later", async () => {
    const [a, b] = [startProcess("a"), startProcess("b")];
    const ada = a.open("ada");
    isLossy = true;
    const bob = b.open("bob");
    await clock.advance(2_000);
    expect(ada.sees).toEqual(["ada"]);
    isLossy = false;
    await clock.advance(6_000);
    expect(ada.sees).toEqual(["ada", "bob"]);
    expect(bob.sees).toEqual(["ada", "bob"]);
    isLossy = true;
    bob.leave();
    b.open("eve");
    await clock.advance(1_000);
    isLossy = false;
    await clock.advance(6_000);
    expect(ada.sees).toEqual(["ada", "eve"]);
    isLossy = true;
    ada.leave();
    a.open("cat");
    const eve = b.open("eve");
    await clock.advance(1_000);
    isLossy = false;
    await clock.advance(6_000);
    expect(eve.sees).toEqual(["cat", "eve"]);
  });

  test("the people of a process that died are gone after seconds", async () => {
    const [a, b] = [startProcess("a"), startProcess("b")];
    const ada = a.open("ada");
    b.open("bob").typing(true);
    await clock.advance(2_000);
    expect(ada.sees).toEqual(["ada", "bob…"]);
    b.people.close();
    await b.bus.close();
    await clock.advance(8_000);
    expect(ada.sees).toEqual(["ada", "bob"]);
    await clock.advance(15_000);
    expect(ada.sees).toEqual(["ada"]);
  });

  test("a new owner of the log knows all of them some seconds later", async () => {
    const [a, b, c] = [startProcess("a"), startProcess("b"), startProcess("c")];
    a.open("ada");
    const [bob, cat] = [b.open("bob"), c.open("cat")];
    await clock.advance(2_000);
    owner = "b";
    await clock.advance(6_000);
    expect(bob.sees).toEqual(["ada", "bob", "cat"]);
    expect(cat.sees).toEqual(["ada", "bob", "cat"]);
    cat.leave();
    await clock.advance(2_000);
    expect(bob.sees).toEqual(["ada", "bob"]);
    // The process goes, and what it has said with it.
    a.people.close();
    await a.bus.close();
    await clock.advance(25_000);
    expect(bob.sees).toEqual(["bob"]);
  });

  test("while no process owns the log, those of the same process see each other", async () => {
    owner = undefined;
    const b = startProcess("b");
    const bob = b.open("bob");
    b.open("eve");
    await clock.advance(1_000);
    expect(bob.sees).toEqual(["bob", "eve"]);
  });

  test("a client that types like mad makes four envelopes a second, and a quiet crowd few", async () => {
    const [a, b] = [startProcess("a"), startProcess("b")];
    a.open("ada");
    const bob = b.open("bob");
    await clock.advance(2_000);
    envelopes = [];
    for (let at = 0; at < 1_000; at++) {
      bob.typing(at % 2 === 0);
      await clock.advance(1);
    }
    expect(envelopes.length).toBeLessThanOrEqual(4);
    for (let at = 0; at < 300; at++) {
      a.open(`user ${at}`, `session ${at}`);
      b.open(`user ${at}`, `session ${at}`);
    }
    await clock.advance(3_000);
    envelopes = [];
    await clock.advance(10_000);
    expect(envelopes.length).toBeLessThanOrEqual(6);
  });

  test("messages of another release or another program change nothing else", async () => {
    const a = startProcess("a");
    const ada = a.open("ada");
    const other = buses.connect("x", { clock });
    for (const body of [
      null,
      7,
      { sessions: [null, { sessionId: 7 }, { sessionId: "s", people: [null, { user: 7 }, 3] }] },
      { sessions: "s", digest: 4, again: "yes", all: 1 },
      { sessions: [{ sessionId: "s", people: manyUsers(5_000) }] },
    ]) {
      other.send("a", "session.people", body as never);
    }
    await clock.advance(1_000);
    expect(ada.shown.at(-1)!.length).toBeLessThanOrEqual(100);
    await clock.advance(30_000);
    expect(ada.sees).toEqual(["ada"]);
  });
});

function manyUsers(count: number): object[] {
  return Array.from({ length: count }, (_, at) => ({ user: `user ${at}`, typing: false }));
}
