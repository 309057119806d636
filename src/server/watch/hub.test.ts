import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Verb } from "../../protocol/verbs.ts";
import { applyPatch, type WatchData, type WatchEvent } from "../../protocol/watch.ts";
import type { Caller } from "../auth/caller.ts";
import { createSerializer } from "../serializer.ts";
import { createWatchHub, type WatchHub, type WatchLimits, type WatchSink } from "./hub.ts";
import { fleetSpecs } from "../api/fleet.schema.ts";
import { maxTasksInView, parseTopic, topicSpec, topicSpecs, type TopicSources } from "./topics.ts";

const callerWith = (verbs: readonly Verb[], tenant?: string): Caller => ({
  kind: "server",
  tenant: tenant ?? "default",
  ...(tenant === undefined && { allTenants: true }),
  verbs: new Set(verbs),
});
const viewer = callerWith(["fleet:read"]);
const seeing = callerWith(["fleet:read", "payloads:read"]);
const ofAcme = callerWith(["fleet:read"], "acme");

/** A fleet in memory that counts what is read of it. */
function openHub({ limits = {} }: { limits?: Partial<WatchLimits> } = {}) {
  const clock = movableClock();
  const reads: Record<string, number> = {};
  const lines: string[] = [];
  const note = (_: object, message: string) => void lines.push(message);
  const log: Logger = { debug: note, info: note, warn: note, error: note };
  const state = {
    pods: [{ podId: "a", status: "up", beat: 1 }] as object[],
    task: { taskId: "t", tenant: "acme", name: "mail", status: "pending", payload: { to: "ada" } },
    groups: [] as object[],
    error: undefined as Error | undefined,
    tookMs: 0,
    held: undefined as Promise<void> | undefined,
  };
  const reading = async <Answer>(what: string, answer: () => Answer): Promise<Answer> => {
    reads[what] = (reads[what] ?? 0) + 1;
    await state.held;
    clock.jump(state.tookMs);
    if (state.error) throw state.error;
    return answer();
  };
  const sources = {
    pages: {
      fleet: () => reading("pods", () => ({ pods: state.pods })),
      task: () => reading("task", () => state.task),
      newestTasks: ({ tenant }: { tenant?: string }) =>
        reading(`newest of ${tenant}`, () => [{ taskId: `t of ${tenant}`, status: "pending" }]),
      links: () =>
        Promise.resolve({
          startedBy: null,
          started: [],
          hasMore: false,
          dependents: [],
          copies: [],
        }),
      sessions: (tenant: string) =>
        reading(`sessions of ${tenant}`, () => ({
          sessions: [{ sessionId: `s of ${tenant}`, state: { state: "idle" }, preview: "secret" }],
        })),
      sessionOwner: (tenant: string, sessionId: string) =>
        reading(`owner of ${sessionId} of ${tenant}`, () =>
          tenant === "acme" ? { logId: 3, term: 2, podId: "a" } : undefined,
        ),
    },
    deadLetters: () => ({
      groups: ({ tenant = "all" }: { tenant?: string }) =>
        reading(`groups of ${tenant}`, () => ({ groups: state.groups, count: 0, tasks: 0 })),
    }),
  } as unknown as TopicSources;
  const hub = createWatchHub({ ...sources, serializer: createSerializer(), clock, log, limits });
  return { hub, clock, reads, state, lines };
}

/** A reader that keeps what it gets, and what that makes of each topic. */
function watching(hub: WatchHub, caller: Caller, topics: readonly string[], takes = Infinity) {
  const events: WatchEvent[] = [];
  const data: Record<string, WatchData> = {};
  const sink: WatchSink = {
    push({ text }) {
      if (events.length >= takes) return false;
      const event = JSON.parse(text) as WatchEvent;
      events.push(event);
      if (event.type === "snapshot") data[event.topic] = event.data;
      if (event.type === "patch") data[event.topic] = applyPatch(data[event.topic]!, event.patch);
      return true;
    },
    drained: () => Promise.resolve(),
  };
  const stop = hub.watch(caller, topics, sink);
  return { events, data, stop, types: () => events.map(({ type }) => type) };
}

describe("a watched topic", () => {
  test("is read once for twenty watchers, and comes as a snapshot and then as patches", async () => {
    const { hub, clock, reads, state } = openHub();
    const watchers = Array.from({ length: 20 }, () => watching(hub, viewer, ["pods"]));
    await eventLoopTurns();
    expect(reads).toEqual({ pods: 1 });
    state.pods = Array.from({ length: 3 }, (_, at) => ({ podId: `p${at}`, status: "up", beat: 1 }));
    await clock.advance(1_000);
    expect(reads).toEqual({ pods: 2 });
    state.pods = state.pods.map((pod, at) => (at === 1 ? { ...pod, beat: 2 } : pod));
    await clock.advance(1_000);
    expect(reads).toEqual({ pods: 3 });
    for (const { events, data } of watchers) {
      expect(events.at(-1)).toMatchObject({
        type: "patch",
        patch: { in: { pods: { in: { p1: { set: { beat: 2 } } } } } },
      });
      expect(data["pods"]).toEqual({
        pods: Object.fromEntries(state.pods.map((pod, at) => [`p${at}`, pod])),
      });
    }
  });

  test("sends nothing while nothing changes, and what a later watcher gets is whole", async () => {
    const { hub, clock, state } = openHub();
    const first = watching(hub, viewer, ["pods"]);
    await clock.advance(5_000);
    expect(first.types()).toEqual(["snapshot"]);
    state.pods = [...state.pods, { podId: "b", status: "up", beat: 1 }];
    await clock.advance(1_000);
    const second = watching(hub, viewer, ["pods"]);
    await eventLoopTurns();
    expect(second.types()).toEqual(["snapshot"]);
    expect(second.data).toEqual(first.data);
  });

  test("isn't read while it isn't watched, and no timer is left", async () => {
    const { hub, clock, reads } = openHub();
    expect(clock.timers).toBe(0);
    const { stop } = watching(hub, viewer, ["pods", "failures"]);
    await clock.advance(3_000);
    stop();
    const before = { ...reads };
    await clock.advance(60_000);
    expect(reads).toEqual(before);
    expect([hub.topics, clock.timers]).toEqual([0, 0]);
  });

  test("is read for at most a twentieth of the time", async () => {
    const { hub, clock, reads, state } = openHub();
    state.tookMs = 500;
    watching(hub, viewer, ["pods"]);
    await eventLoopTurns();
    await clock.advance(9_999);
    expect(reads).toEqual({ pods: 1 });
    await clock.advance(1);
    expect(reads).toEqual({ pods: 2 });
  });

  test("isn't read more often by callers that come and go", async () => {
    const { hub, clock, reads } = openHub();
    for (let times = 0; times < 50; times++) {
      const { stop, events } = watching(hub, viewer, ["pods"]);
      await clock.advance(10);
      expect(events).toHaveLength(1);
      stop();
    }
    expect(reads).toEqual({ pods: 1 });
  });

  test("is another one to callers of another tenant, and they see none of each other's", async () => {
    const { hub, reads } = openHub();
    const [all, acme, other] = [viewer, ofAcme, callerWith(["fleet:read"], "other")].map((caller) =>
      watching(hub, caller, ["failures", "task:t"]),
    );
    await eventLoopTurns();
    expect(reads).toMatchObject({
      "groups of all": 1,
      "groups of acme": 1,
      "groups of other": 1,
      task: 3,
    });
    expect(all!.data["task:t"]).toMatchObject({ task: { tenant: "acme" } });
    expect(acme!.data["task:t"]).toMatchObject({ task: { tenant: "acme" } });
    expect(other!.data["task:t"]).toEqual({ task: null, links: null });
  });

  test("about the newest tasks is read once for all callers of a tenant, and has no other's", async () => {
    const { hub, clock, reads } = openHub();
    const readers = ["acme", "acme", "other"].map((tenant) =>
      watching(hub, callerWith(["fleet:read"], tenant), ["newest"]),
    );
    await clock.advance(1_000);
    expect(reads).toEqual({ "newest of acme": 2, "newest of other": 2 });
    expect(readers.map(({ data }) => Object.keys(data["newest"]!["tasks"] as WatchData))).toEqual([
      ["t of acme"],
      ["t of acme"],
      ["t of other"],
    ]);
  });

  test("about sessions is of the tenant that its caller names, and refused to a token of some", async () => {
    const { hub, reads } = openHub();
    const [first, other] = ["default", "other"].map((tenant) =>
      watching(hub, { ...viewer, tenant }, ["sessions"]),
    );
    const acme = watching(hub, ofAcme, ["sessions", "sessions:other"]);
    await eventLoopTurns();
    expect(reads).toEqual({
      "sessions of default": 1,
      "sessions of other": 1,
      "sessions of acme": 1,
    });
    const seen = [first!, other!, acme].map(({ data }) =>
      Object.keys(data["sessions"]!["sessions"] as WatchData),
    );
    expect(seen).toEqual([["s of default"], ["s of other"], ["s of acme"]]);
    expect(acme.data["sessions:other"]).toEqual({ sessions: {} });
    expect(JSON.stringify(first!.events)).not.toContain("secret");
    const ofSome = { ...viewer, sessions: new Set(["s"]) };
    expect(() => watching(hub, ofSome, ["sessions"])).toThrow(
      expect.objectContaining({ code: "forbidden" }),
    );
  });

  test("about the owner of a session is of the tenant that is named, and of no caller of one", async () => {
    const { hub, reads } = openHub();
    const all = watching(hub, viewer, ["owner:s", "owner:s/acme"]);
    const named = watching(hub, { ...viewer, tenant: "acme" }, ["owner:s"]);
    await eventLoopTurns();
    expect(reads).toEqual({ "owner of s of default": 1, "owner of s of acme": 2 });
    const owner = { logId: 3, term: 2, podId: "a" };
    expect(all.data).toEqual({ "owner:s": { owner: null }, "owner:s/acme": { owner } });
    expect(named.data).toEqual({ "owner:s": { owner } });
    for (const caller of [ofAcme, { ...viewer, sessions: new Set(["s"]) }])
      expect(() => watching(hub, caller, ["owner:s"])).toThrow(
        expect.objectContaining({ code: "forbidden" }),
      );
  });

  test("is read once for callers with and without content, and shown to each as it may", async () => {
    const { hub, clock, reads, state } = openHub();
    const [shapes, content] = [viewer, seeing].map((caller) => watching(hub, caller, ["task:t"]));
    await eventLoopTurns();
    expect(reads).toEqual({ task: 1 });
    expect(content!.data["task:t"]).toMatchObject({ task: { payload: { to: "ada" } } });
    expect(shapes!.data["task:t"]).toMatchObject({
      task: { payload: expect.stringMatching(/^object, 1 key/) },
    });
    state.task = { ...state.task, payload: { to: "eve" } };
    await clock.advance(1_000);
    expect(content!.data["task:t"]).toMatchObject({ task: { payload: { to: "eve" } } });
    // Its shape is the same, so there is nothing to send.
    expect(shapes!.types()).toEqual(["snapshot"]);
    expect(JSON.stringify(shapes!.events)).not.toMatch(/ada|eve/);
    const late = watching(hub, viewer, ["task:t"]);
    await eventLoopTurns();
    expect(JSON.stringify(late.events)).not.toMatch(/ada|eve/);
  });

  test("goes on for the others when one of its watchers is cut off", async () => {
    const { hub, clock, state } = openHub();
    const slow = watching(hub, viewer, ["pods"], 1);
    const fast = watching(hub, viewer, ["pods"]);
    await eventLoopTurns();
    for (let beat = 2; beat < 5; beat++) {
      state.pods = [{ podId: "a", status: "up", beat }];
      await clock.advance(1_000);
    }
    expect(slow.events).toHaveLength(1);
    expect(fast.data["pods"]).toEqual({ pods: { a: { podId: "a", status: "up", beat: 4 } } });
    fast.stop();
    await clock.advance(60_000);
    expect(hub.topics).toBe(0);
  });

  test("sends the snapshots of many topics one after another, as they are read", async () => {
    const { hub, clock, state } = openHub();
    let read = () => {};
    let unread = 0;
    const got: string[] = [];
    hub.watch(viewer, ["pods", "failures", "task:t"], {
      push({ text }) {
        unread++;
        got.push((JSON.parse(text) as WatchEvent).topic);
        return true;
      },
      drained: () =>
        unread === 0 ? Promise.resolve() : new Promise<void>((resolve) => (read = resolve)),
    });
    await eventLoopTurns();
    expect(got).toHaveLength(1);
    // What changes meanwhile is in the snapshots that are still to come.
    state.task = { ...state.task, status: "claimed" };
    await clock.advance(1_000);
    for (let times = 0; times < 3; times++) {
      unread = 0;
      read();
      await eventLoopTurns();
    }
    expect(got.toSorted()).toEqual(["failures", "pods", "task:t"]);
  });
});

describe("a store that is away", () => {
  test("is reported once to all, and a snapshot comes when it is back", async () => {
    const { hub, clock, state, lines } = openHub();
    const early = watching(hub, viewer, ["pods"]);
    await eventLoopTurns();
    state.error = new FlotillaError("store_unavailable", "connect to db.internal:5432 failed");
    await clock.advance(4_000);
    expect(early.types()).toEqual(["snapshot", "trouble"]);
    expect(early.events[1]).toMatchObject({ topic: "pods", code: "store_unavailable" });
    expect(JSON.stringify(early.events)).not.toContain("db.internal");
    expect(lines).toEqual(["watched topic unreadable"]);
    // A watcher that comes meanwhile gets the last that is known, and what is wrong.
    const late = watching(hub, viewer, ["pods"]);
    const lateWithContent = watching(hub, seeing, ["pods"]);
    const other = watching(hub, viewer, ["failures"]);
    await eventLoopTurns();
    expect(late.types()).toEqual(["snapshot", "trouble"]);
    expect(lateWithContent.types()).toEqual(["snapshot", "trouble"]);
    expect(other.types()).toEqual(["trouble"]);
    state.error = undefined;
    await clock.advance(1_000);
    expect(early.types()).toEqual(["snapshot", "trouble", "snapshot"]);
    expect(late.types()).toEqual(["snapshot", "trouble", "snapshot"]);
    expect(other.types()).toEqual(["trouble", "snapshot"]);
    await clock.advance(5_000);
    expect(early.events).toHaveLength(3);
  });

  test("is reported while a read hangs, which is the only one", async () => {
    const { hub, clock, state, reads } = openHub();
    const hanging = Promise.withResolvers<void>();
    state.held = hanging.promise;
    const { types } = watching(hub, viewer, ["pods"]);
    await clock.advance(4_999);
    expect(types()).toEqual([]);
    await clock.advance(60_000);
    expect(types()).toEqual(["trouble"]);
    expect(reads).toEqual({ pods: 1 });
    hanging.resolve();
    await eventLoopTurns();
    expect(types()).toEqual(["trouble", "snapshot"]);
  });

  test("and an error that is none of ours shows nothing of itself", async () => {
    const { hub, state } = openHub();
    state.error = new TypeError("cannot read the secret of undefined");
    const { events } = watching(hub, viewer, ["pods"]);
    await eventLoopTurns();
    expect(events).toMatchObject([{ type: "trouble", code: "internal" }]);
    expect(JSON.stringify(events)).not.toContain("secret");
  });
});

describe("the limits of watching", () => {
  test("bound the topics of a watcher and of a server", async () => {
    const { hub, clock } = openHub({ limits: { topicsPerWatcher: 2, topics: 3 } });
    const sink = { push: () => true, drained: () => Promise.resolve() };
    const code = (topics: string[], caller = viewer) => {
      try {
        return hub.watch(caller, topics, sink);
      } catch (error) {
        return (error as FlotillaError).code;
      }
    };
    expect(code([])).toBe("invalid_input");
    expect(code(["pods", "failures", "overview"])).toBe("invalid_input");
    const stop = hub.watch(viewer, ["pods", "failures"], sink);
    hub.watch(viewer, ["task:t"], sink);
    expect(code(["task:u"])).toBe("overloaded");
    // What is watched already costs nothing more.
    expect(code(["pods"])).toBeTypeOf("function");
    stop();
    await clock.advance(0);
    // A topic that was left makes way for another one at once.
    expect(code(["task:u"])).toBeTypeOf("function");
    expect(hub.topics).toBe(3);
  });

  test("bound the bytes of a topic and of all together", async () => {
    const { hub, clock, state } = openHub({ limits: { snapshotBytes: 2_000, bytes: 3_000 } });
    const fill = (chars: number) =>
      (state.task = { ...state.task, payload: { to: "x".repeat(chars) } });
    fill(1_400);
    const first = watching(hub, seeing, ["task:t"]);
    await eventLoopTurns();
    expect(first.types()).toEqual(["snapshot"]);
    const second = watching(hub, seeing, ["task:u"]);
    await eventLoopTurns();
    expect(second.events).toMatchObject([{ type: "trouble", code: "overloaded" }]);
    fill(3_000);
    await clock.advance(1_000);
    expect(first.events.at(-1)).toMatchObject({ type: "trouble", code: "payload_too_large" });
    const third = watching(hub, seeing, ["task:t"]);
    await eventLoopTurns();
    expect(third.events).toMatchObject([{ type: "trouble", code: "payload_too_large" }]);
    fill(10);
    await clock.advance(1_000);
    expect(first.types().at(-1)).toBe("snapshot");
    expect(second.types().at(-1)).toBe("snapshot");
  });

  test("hold after the server has stopped: nothing is read, and no timer is left", async () => {
    const { hub, clock, reads } = openHub();
    watching(hub, viewer, ["pods"]);
    await clock.advance(1_000);
    hub.close();
    await clock.advance(10_000);
    expect([reads, clock.timers]).toEqual([{ pods: 2 }, 0]);
    expect(() => watching(hub, viewer, ["pods"])).toThrow(
      expect.objectContaining({ code: "closed" }),
    );
  });
});

describe("the name of a topic", () => {
  test("has its arguments percent-encoded, and is the same however it was written", () => {
    expect(parseTopic("throttle:a%2Fb%2Cc/key%20one")).toMatchObject({
      topic: "throttle:a%2Fb%2Cc/key%20one",
      args: ["a/b,c", "key one"],
    });
    expect(parseTopic("flow:order:v2").args).toEqual(["order:v2"]);
    expect(parseTopic("flow:order:v2").topic).toBe("flow:order%3Av2");
    expect(parseTopic("flow:order%3av2").topic).toBe("flow:order%3Av2");
  });

  test.each([
    ["", "there is no topic"],
    ["__proto__", "there is no topic"],
    ["nothing", "there is no topic"],
    ["pods:a", "takes nothing after its name, not 1"],
    ["task", "takes 1 after its name, not 0"],
    ["task:a/b", "takes 1 after its name, not 2"],
    [`tasks:${"a/".repeat(maxTasksInView)}a`, "takes 1 to 100 after its name, not 101"],
    ["task:%", "must be a name or an id"],
    ["task:%00", "must be a name or an id"],
    [`task:${"x".repeat(501)}`, "must be a name or an id"],
  ])("%s is refused: %s", (name, message) => {
    expect(() => parseTopic(name)).toThrow(
      expect.objectContaining({ code: "invalid_input", message: expect.stringContaining(message) }),
    );
  });

  test("stands for routes, whose verb and tenants it needs of its caller", () => {
    const { hub } = openHub();
    const codeOf = (caller: Caller, topic: string) => {
      try {
        watching(hub, caller, [topic]).stop();
        return "let in";
      } catch (error) {
        return (error as FlotillaError).code;
      }
    };
    const topics = Object.keys(topicSpecs);
    const name = (topic: string) =>
      topicSpecs[topic as keyof typeof topicSpecs].args?.min ? `${topic}:x` : topic;
    const found = (caller: Caller) =>
      topics.filter((topic) => codeOf(caller, name(topic)) === "let in").toSorted();
    expect(found(callerWith(["admin"]))).toEqual(topics.toSorted());
    expect(found(viewer)).toEqual(topics.filter((topic) => topic !== "audit").toSorted());
    expect(found(ofAcme)).toEqual([
      "acts",
      "approvals",
      "failures",
      "newest",
      "run",
      "sessions",
      "task",
      "tasks",
    ]);
    expect(found(callerWith(["sessions:read"]))).toEqual([]);
  });

  test("needs a route that isn't open, or doesn't compile", () => {
    const declared = {
      schema: fleetSpecs.pods.answers[200],
      read: () => Promise.resolve({ pods: [] }),
    };
    // @ts-expect-error It has no route.
    const none = topicSpec(declared);
    // @ts-expect-error Its list of routes is empty.
    const empty = topicSpec({ ...declared, routes: [] });
    // @ts-expect-error Its route is open to all.
    const open = topicSpec({ ...declared, routes: [fleetSpecs.live] });
    const guarded = topicSpec({ ...declared, routes: [fleetSpecs.pods] });
    expect([none, empty, open, guarded]).toHaveLength(4);
  });
});
