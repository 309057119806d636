import { beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { createMemoryBus } from "../../bus/memory-bus.ts";
import type { Bus } from "../../bus/bus.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import type { Head } from "./journal.ts";
import {
  type CommandRouter,
  createCommandRouter,
  type CommandRouterParts,
} from "./command-router.ts";
import type { Owner } from "./owner.ts";

const command = (clientId: string) => ({ type: "stop", clientId }) as unknown as Command;
const nameOf = (given: Command) => (given as unknown as { clientId: string }).clientId;

describe("a command router", () => {
  let clock: MovableClock;
  let stored: string[];
  /** What the owner of this process does with the next commands; undefined: there is none. */
  let submit: ((given: Command) => Promise<CommandResult>) | undefined;
  let owner: string | null;
  let term: number;
  /** The owner of this process, if there is one; another object once it has taken the log anew. */
  let local: Owner;
  /** The store that says who owns a log can't be reached. */
  let isAway: boolean;
  /** How many of the next envelopes are lost. */
  let losing: number;
  /** How long the senders of envelopes wait for the answers. */
  let limits: unknown[];
  /** What the owner of this process was told of how long its callers wait. */
  let options: unknown[];
  let bus: Bus;
  let heads: CommandRouterParts["heads"];
  let router: CommandRouter;

  beforeEach(() => {
    clock = movableClock();
    stored = [];
    submit = undefined;
    owner = null;
    term = 1;
    isAway = false;
    losing = 0;
    limits = [];
    options = [];
    const exchange = createMemoryBus({
      carry(_, arrive) {
        if (losing-- > 0) return "lost";
        arrive();
        return undefined;
      },
    });
    bus = exchange.connect("here", { clock });
    const there = exchange.connect("there", { clock });
    there.serve("session.ask", (body) => {
      const asked = body as unknown as { command: Command; limitMs: unknown };
      limits.push(asked.limitMs);
      if (nameOf(asked.command) === "silent") return new Promise<Json>(() => {});
      return store(asked.command) as Promise<Json>;
    });
    const head = () => ({ owner, incarnation: "one", term }) as Head;
    local = localOwner();
    heads = {
      last: [head()],
      all: async () => [head()],
      of: async () => {
        if (isAway) throw new FlotillaError("store_unavailable", "away");
        return head();
      },
    };
    router = createCommandRouter({
      bus,
      heads,
      owners: {
        of: () => submit && local,
        awaken: async () => {},
      },
      create: async () => {},
      clock,
      random: seededRandom(1),
    });
  });
  const localOwner = () =>
    ({
      head: { incarnation: "one", term: 3 } as Head,
      submit: (_, __, asked, more) => (options.push(more), submit!(asked)),
    }) as Owner;
  const store = async (given: Command): Promise<CommandResult> => {
    stored.push(nameOf(given));
    return { lastSeq: stored.length, seq: stored.length };
  };
  const ask = (clientId: string) => router.submit("default", "s", command(clientId));

  test("submits to an owner of its own process at once, one after the other without waiting", () => {
    submit = store;
    void ask("a");
    void ask("b");
    expect(stored).toEqual(["a", "b"]);
  });

  test("S4: keeps the order of what was under way when the log moved", async () => {
    const lost: ((error: unknown) => void)[] = [];
    submit = () => new Promise((_, reject) => lost.push(reject));
    const answers = ["a", "b", "c"].map(ask);
    submit = undefined;
    owner = "there";
    for (const reject of lost) reject(new FlotillaError("not_owner", "moved"));
    await eventLoopTurns(1);
    const late = ask("d");
    await clock.advance(5_000);
    await Promise.all([...answers, late]);
    expect(stored).toEqual(["a", "b", "c", "d"]);
  });

  test.each(["in another process", "in this one again"])(
    "S4: what an owner that lost its log hasn't rejected yet comes before what is sent to its next owner, %s",
    async (where) => {
      const held = Promise.withResolvers<CommandResult>();
      submit = () => held.promise;
      const answers = [ask("a")];
      local = localOwner();
      owner = "there";
      submit = where === "in this one again" ? store : undefined;
      answers.push(ask("b"));
      await clock.advance(5_000);
      expect(stored).toEqual([]);
      held.reject(new FlotillaError("not_owner", "moved"));
      await clock.advance(1_000);
      await Promise.all(answers);
      expect(stored).toEqual(["a", "b"]);
      void ask("c");
      await eventLoopTurns();
      expect(stored).toEqual(["a", "b", "c"]);
    },
  );

  test("S4: what follows an envelope that was lost waits until that was answered", async () => {
    owner = "there";
    losing = 1;
    const answers = ["a", "b", "c"].map(ask);
    await clock.advance(10_000);
    await Promise.all(answers);
    expect(stored).toEqual(["a", "b", "c"]);
  });

  test("asks the next owner as soon as it is known, whatever the one before still says", async () => {
    owner = "there";
    const answer = ask("silent");
    await clock.advance(300);
    term++;
    submit = store;
    await clock.advance(900);
    expect(stored).toEqual(["silent"]);
    expect(await answer).toMatchObject({ seq: 1 });
  });

  test.each([
    [{ incarnation: "one", term: 2 }, "not_owner", []],
    [{ incarnation: "another", term: 3 }, "not_owner", []],
    [{ incarnation: "one", term: 3 }, "taken", ["a"]],
    // As earlier releases ask.
    [undefined, "taken", ["a"]],
  ])("O2: an envelope for %j, at an owner of term 3: %s", async (term, outcome, found) => {
    submit = store;
    const asked = { tenant: "default", sessionId: "s", command: command("a"), term };
    const body = JSON.parse(JSON.stringify(asked)) as Json;
    const answer = await bus
      .request("here", "session.ask", body, { timeoutMs: 1_000 })
      .then(() => "taken")
      .catch((error: FlotillaError) => error.code);
    expect([answer, stored]).toEqual([outcome, found]);
  });

  test("O2: what was refused for certain isn't stored by an earlier owner that has the log again", async () => {
    // The first envelope is at a pod that is paused.
    const held: (() => void)[] = [];
    const exchange = createMemoryBus({
      carry({ to, text }, arrive) {
        if (to === "slept" && text.includes("session.ask")) held.push(arrive);
        else queueMicrotask(arrive);
        return undefined;
      },
    });
    let head = { owner: "slept", incarnation: "one", term: 1 } as Head;
    let isThere = false;
    const heads: CommandRouterParts["heads"] = {
      get last() {
        return [head];
      },
      all: async () => [head],
      of: async () => head,
    };
    const shared = { heads, create: async () => {}, clock, random: seededRandom(1) };
    const own: Pick<Owner, "head" | "submit"> = {
      get head() {
        return head;
      },
      submit: async (_, __, given) =>
        isThere ? store(given) : Promise.reject(new FlotillaError("not_found", "none")),
    };
    for (const address of ["slept", "next"]) {
      const of = () => (head.owner === address ? (own as Owner) : undefined);
      const owners = { of, awaken: async () => {} };
      createCommandRouter({ ...shared, bus: exchange.connect(address, { clock }), owners });
    }
    const web = exchange.connect("web", { clock });
    const from = createCommandRouter({ ...shared, bus: web, owners: undefined });
    const asked = { ...command("a"), type: "append" } as Command;
    const said = from.submit("default", "s", asked).catch((error: FlotillaError) => error.code);
    await clock.advance(1_000);
    head = { ...head, owner: "next", term: 2 };
    await clock.advance(3_000);
    expect(await said).toBe("not_found");
    head = { ...head, owner: "slept", term: 3 };
    isThere = true;
    for (const arrive of held) arrive();
    await eventLoopTurns();
    expect(held).toHaveLength(1);
    expect(stored).toEqual([]);
  });

  test.each([
    ["append", "conflict", "conflict"],
    ["tool_result", "not_found", "not_found"],
    ["create", "not_found", "not_found"],
    // The session may have been made by the first try, and be another's business since.
    ["create", "conflict", "unknown_outcome"],
    ["regenerate", "conflict", "unknown_outcome"],
    ["metadata", "not_found", "unknown_outcome"],
    ["members", "not_found", "unknown_outcome"],
    ["members", "invalid_input", "unknown_outcome"],
    ["turn_finished", "payload_too_large", "payload_too_large"],
  ] as const)(
    "O2: %s that is refused as %s after a try that may have been stored: %s",
    async (type, refusal, told) => {
      const moved = Promise.withResolvers<CommandResult>();
      submit = () => moved.promise;
      const asked = { type, clientId: "a" } as unknown as Command;
      const answer = router
        .submit("default", "s", asked)
        .catch((error: FlotillaError) => error.code);
      submit = () => Promise.reject(new FlotillaError(refusal, "refused"));
      moved.reject(new FlotillaError("not_owner", "moved"));
      await clock.advance(1_000);
      expect(await answer).toBe(told);
    },
  );

  test("a refusal is certain where the owner of this process never took the command", async () => {
    submit = () => {
      submit = () => Promise.reject(new FlotillaError("not_found", "none"));
      const details = { taken: false };
      return Promise.reject(new FlotillaError("not_owner", "moved", { details }));
    };
    const said = router
      .submit("default", "s", { type: "archive" })
      .catch((error: FlotillaError) => error.code);
    await clock.advance(1_000);
    expect(await said).toBe("not_found");
  });

  test("a refusal is certain where the pod that was tried before never took the command", async () => {
    submit = () => Promise.reject(new FlotillaError("not_found", "none"));
    const exchange = createMemoryBus({ carry: (_, arrive) => arrive() });
    let owner = "before";
    const heads: CommandRouterParts["heads"] = {
      last: [{} as Head],
      all: async () => [],
      of: async () => ({ owner, incarnation: "one", term: 1 }) as Head,
    };
    const shared = { heads, create: async () => {}, clock, random: seededRandom(1) };
    const refusing = { submit: () => submit!(undefined!), head: { incarnation: "one", term: 1 } };
    for (const address of ["before", "now"]) {
      const of = () => {
        if (address === "now") return refusing as unknown as Owner;
        owner = "now";
        return undefined;
      };
      const owners = { of, awaken: async () => {} };
      createCommandRouter({ ...shared, bus: exchange.connect(address, { clock }), owners });
    }
    const web = exchange.connect("web", { clock });
    const from = createCommandRouter({ ...shared, bus: web, owners: undefined });
    const said = from
      .submit("default", "s", { type: "archive" })
      .catch((error: FlotillaError) => error);
    await clock.advance(1_000);
    expect(await said).toMatchObject({ code: "not_found" });
  });

  test("S4: an owner that comes back meanwhile gets the commands in the same order", async () => {
    const first = ask("a");
    await eventLoopTurns();
    submit = store;
    const second = ask("b");
    await clock.advance(1_000);
    await Promise.all([first, second]);
    expect(stored).toEqual(["a", "b"]);
  });

  test("waits for an owner, and finds it once there is one", async () => {
    const answer = ask("a");
    await clock.advance(3_000);
    expect(stored).toEqual([]);
    owner = "there";
    await clock.advance(1_000);
    expect(await answer).toMatchObject({ seq: 1 });
  });

  test("never calls a change of metadata a conflict that may be one with itself", async () => {
    const change: Command = { type: "metadata", metadata: "{}", ifVersion: 1 };
    const conflict = async () => Promise.reject(new FlotillaError("conflict", "version 2"));
    submit = conflict;
    await expect(router.submit("default", "s", change)).rejects.toMatchObject({
      code: "conflict",
    });
    // It may have been stored by the one who lost the log.
    const moved = Promise.withResolvers<CommandResult>();
    submit = () => moved.promise;
    const answer = router
      .submit("default", "s", change)
      .catch((error: FlotillaError) => error.code);
    submit = conflict;
    moved.reject(new FlotillaError("not_owner", "moved"));
    await clock.advance(1_000);
    expect(await answer).toBe("unknown_outcome");
  });

  test.each([null, 7, {}, { tenant: "default", sessionId: "s" }])(
    "refuses what is no command: %j",
    async (body) => {
      submit = store;
      await expect(
        bus.request("here", "session.ask", body, { timeoutMs: 1_000 }),
      ).rejects.toMatchObject({ code: "invalid_input" });
      expect(stored).toEqual([]);
    },
  );

  test("rejects with `unavailable` where nothing can be stored, and with `unknown_outcome` where it may be", async () => {
    const never = ask("a").catch((error: FlotillaError) => error.code);
    await clock.advance(20_000);
    expect(await never).toBe("unavailable");
    owner = "nobody";
    const maybe = ask("b").catch((error: FlotillaError) => error.code);
    await clock.advance(30_000);
    expect(await maybe).toBe("unknown_outcome");
  });

  test("S10: waits for a store that is away, fifteen seconds at most", async () => {
    owner = "there";
    isAway = true;
    const stores = ["a", "b"].map(ask);
    await clock.advance(14_000);
    expect(stored).toEqual([]);
    isAway = false;
    await clock.advance(1_000);
    await Promise.all(stores);
    expect(stored).toEqual(["a", "b"]);

    isAway = true;
    let told: string | undefined;
    void ask("c").catch((error: FlotillaError) => (told = error.code));
    await clock.advance(14_700);
    expect(told).toBeUndefined();
    await clock.advance(800);
    expect(told).toBe("store_unavailable");
  });

  test.each(["an owner of this process", "the store"])(
    "S10: rejects with `unknown_outcome` after its time where %s never answers",
    async (silent) => {
      const never = new Promise<never>(() => {});
      if (silent === "the store") heads.of = () => never;
      else submit = () => never;
      let told: string | undefined;
      void ask("a").catch((error: FlotillaError) => (told = error.code));
      await clock.advance(15_000);
      expect(told).toBeUndefined();
      await clock.advance(1_000);
      expect(told).toBe("unknown_outcome");
    },
  );

  describe("where envelopes are slow", () => {
    const eachWayMs = 1_500;
    /** How often the owner was asked. */
    let asked: number;
    let slow: CommandRouter;

    beforeEach(() => {
      asked = 0;
      const exchange = createMemoryBus({
        carry: (_, arrive) => void clock.after(eachWayMs, arrive),
      });
      exchange.connect("there", { clock }).serve("session.ask", () => ({ version: ++asked }));
      owner = "there";
      slow = createCommandRouter({
        bus: exchange.connect("here", { clock }),
        heads,
        owners: undefined,
        create: async () => {},
        clock,
        random: seededRandom(1),
      });
    });

    const answered = async (asking: Command) => {
      const answer = slow
        .submit("default", "s", asking)
        .catch((error: FlotillaError) => error.code);
      await clock.advance(60_000);
      return answer;
    };

    test("an answer counts that comes after the next try was made", async () => {
      expect(await answered(command("a"))).toEqual({ version: 1 });
    });

    test("also one that comes while the store doesn't answer who owns the log", async () => {
      const { of } = heads;
      heads.of = (...given) => (asked === 0 ? of(...given) : new Promise(() => {}));
      expect(await answered(command("a"))).toEqual({ version: 1 });
    });

    test.each<Command>([
      { type: "metadata", metadata: "{}" },
      { type: "members", addUsers: ["ada"] },
      { type: "archive" },
      { type: "unarchive" },
      { type: "compact" },
    ])("O2: not that of $type, of which another copy may come later", async (change) => {
      expect(await answered(change)).toBe("unknown_outcome");
      expect(asked).toBeGreaterThan(1);
    });
  });

  test("one without an answer holds up its own session, not for longer than its time", async () => {
    owner = "nobody";
    const asked = ["a", "b", "c"].map((each) => ask(each).catch(() => clock.monotonic()));
    const startedMs = clock.monotonic();
    await clock.advance(60_000);
    for (const atMs of (await Promise.all(asked)) as number[]) {
      expect(atMs - startedMs).toBeLessThan(25_000);
    }
    owner = "there";
    const next = ask("d");
    await clock.advance(1_000);
    await eventLoopTurns();
    expect(await next).toMatchObject({ seq: 1 });
  });

  test("S10: each copy of an envelope carries how long its caller waits, so that few are kept", async () => {
    owner = "there";
    const startedMs = clock.monotonic();
    let toldMs = 0;
    void ask("silent").catch(() => (toldMs = clock.monotonic() - startedMs));
    await clock.advance(20_000);
    expect(toldMs).toBeLessThanOrEqual(16_000);
    expect(limits.length).toBeGreaterThan(5);
    expect(limits[0]).toBe(2_000);
    expect(limits.at(-1)).toBeLessThan(2_000);
  });

  test.each([
    [undefined, {}],
    ["long", {}],
    [1_500, { limitMs: 1_500 }],
  ])(
    "S10: an envelope with a limit of %j is kept so long by its owner",
    async (limitMs, expected) => {
      submit = store;
      const body = { tenant: "default", sessionId: "s", command: command("a"), limitMs };
      const envelope = JSON.parse(JSON.stringify(body)) as Json;
      await bus.request("here", "session.ask", envelope, { timeoutMs: 1_000 });
      expect(options).toEqual([expected]);
    },
  );

  test("passes on what an owner refuses, without another try", async () => {
    submit = () => Promise.reject(new FlotillaError("conflict", "the session is archived"));
    await expect(ask("a")).rejects.toMatchObject({ code: "conflict" });
  });
});
