import { actAs } from "../audit/actor.ts";
import { type AuditEntry, createAudit } from "../audit/audit.ts";
import { uuidv7 } from "../base/ids.ts";
import { sql, table } from "../store/sql.ts";
import { createTasks } from "../tasks/tasks.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import type { Entry } from "../protocol/message.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { agent } from "./agents/agent.ts";
import { createStreamPods, type StreamPod } from "./contract/stream-pods.ts";
import { placeOnStreams } from "./log/place.ts";
import { createSqlReads } from "./log/sql-journal.ts";
import type { InboxEvent } from "./service.ts";
import type { Chat } from "./sessions.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});
const asker = agent("asker", async function* ({ messages }) {
  if (JSON.stringify(messages).includes("at sea")) yield "found";
  else yield { type: "tool-input-available", toolCallId: "call-1", toolName: "locate", input: {} };
});
const endless = agent("endless", async function* ({ signal }) {
  yield "so it ";
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
});
let looked = 0;
let release = (): void => {};
let released = Promise.resolve();
/** Waits, behind a step that is stored, until it is released. */
const stepper = agent("stepper", async function* ({ step }) {
  const saw = await step("look", () => `a ship${++looked > 1 ? " again" : ""}`);
  await released;
  yield `saw ${saw}`;
});
const agents = [echo, asker, endless, stepper];

describe("sessions while the database is away for ten minutes", () => {
  let clock: MovableClock;
  let database: Database;
  let pods: ReturnType<typeof createStreamPods>;
  let running: StreamPod[];

  beforeEach(async () => {
    clock = movableClock();
    ({ database } = await memoryKind.open());
    await migrate(database);
    await placeOnStreams(database);
    pods = createStreamPods({ database, agents, clock, random: seededRandom(21), logs: 4 });
    running = [];
    looked = 0;
    released = new Promise((resolve) => (release = resolve));
  });
  afterEach(async () => {
    pods.isAway = false;
    for (const each of running) await pods.settled(each.stop());
  });

  const start = (podId: string): StreamPod => {
    const pod = pods.start(podId);
    running.push(pod);
    return pod;
  };
  const settled = <Value>(call: Promise<Value>) => pods.settled(call);

  /** What a client sees that joins now, until it has so many entries. */
  const joined = async (chat: Chat, count: number): Promise<Entry[]> => {
    const seen: Entry[] = [];
    for await (const event of chat.events()) {
      if (event.type === "entry") seen.push(event.entry);
      if (seen.length >= count) break;
    }
    return seen;
  };

  /**
   * That the database has every entry that the logs were given, these sessions' among them, once nothing waits any
   * more. What a reader sees by then comes from the database alone, so it is no measure of it.
   */
  const areEqual = async (reader: StreamPod, chats: readonly Chat[]) => {
    pods.isAway = false;
    const unarchived = () =>
      running.reduce((sum, { journal }) => sum + journal.state().unarchivedEntries, 0);
    for (let waited = 0; unarchived() > 0 && waited < 60; waited++) await clock.advance(1_000);
    expect(unarchived()).toBe(0);
    const page = { after: 0, limit: 10_000 };
    expect(chats.flatMap(({ sessionId }) => pods.logged.get(sessionId) ?? [])).not.toEqual([]);
    const rows = await database.read(sql`select count(*) as entries from ${table("message")}`);
    const logged = [...pods.logged.values()].flat();
    expect(Number(rows[0]!["entries"])).toBe(logged.length);
    for (const [sessionId, entries] of pods.logged) {
      const stored = await createSqlReads({ database }).entries(sessionId, page);
      expect(stored).toEqual(entries);
      expect(stored.map(({ seq }) => seq)).toEqual(stored.map((_, nth) => nth + 1));
      expect(await settled(reader.journal.entries(sessionId, page))).toEqual(entries);
    }
  };

  test("S2, S10: fail nothing: appends, joins, turns, stops, tool results and new sessions, and are the same in the archive afterwards", async () => {
    const [one, two] = [start("pod-1"), start("pod-2")];
    const chats: Chat[] = [];
    for (const name of ["echo", "echo", "echo"]) {
      chats.push(await settled(one!.sessions.create(name, { user: "ann" })));
    }
    for (const chat of chats) await settled(chat.ask("before"));
    await clock.advance(2_000);
    pods.isAway = true;
    const awaySinceMs = clock.monotonic();
    const expected = new Map(chats.map(({ sessionId }) => [sessionId, 2]));
    const add = (chat: Chat, count: number) => {
      const { sessionId } = chat;
      expected.set(sessionId, (expected.get(sessionId) ?? 0) + count);
    };
    /** Sessions that are made meanwhile: one with a tool of its client, and one that is stopped. */
    const makeOthers = async () => {
      const asked = await settled(two!.sessions.create("asker", { user: "ann" }));
      const asks = await settled(asked.ask("where am I?"));
      const results = [{ toolCallId: "call-1", output: "at sea" }];
      await settled(asked.toolResult(asks.messageId, results));
      const all = await settled(joined(asked, 4));
      expect(all.at(-1)!.parts.at(-1)).toMatchObject({ text: "found" });
      await settled(asked.read(2));
      const stopped = await settled(one!.sessions.create("endless", { user: "ann" }));
      await settled(stopped.send("go on"));
      await clock.advance(500);
      expect(await settled(stopped.stop({ author: "ann" }))).toBe(true);
      await settled(joined(stopped, 3));
      expected.set(asked.sessionId, 4);
      expected.set(stopped.sessionId, 3);
    };
    for (let round = 0; clock.monotonic() - awaySinceMs < 600_000; round++) {
      const chat = chats[round % chats.length]!;
      const answer = await settled(chat.ask(`round ${round}`));
      expect(answer.parts).toMatchObject([{ text: `you said round ${round}` }]);
      add(chat, 2);
      const elsewhere = two!.sessions.open(chat.sessionId, { user: "bob" });
      const seen = await settled(joined(elsewhere, expected.get(chat.sessionId)!));
      expect(seen.at(-1)).toEqual(answer);
      if (round % 5 === 0) await makeOthers();
      await clock.advance(20_000);
    }
    expect(expected.size).toBeGreaterThan(10);
    const all = [...expected.keys()].map((sessionId) => two!.sessions.open(sessionId));
    await areEqual(two!, all);
    for (const [sessionId, count] of expected) {
      const { entries } = await settled(one!.sessions.open(sessionId).entries({ limit: 100 }));
      expect(entries).toHaveLength(count);
    }
  });

  test("W1: outlive a deploy and a pod's death meanwhile, and so do turns that run", async () => {
    const first = start("pod-1");
    const chat = await settled(first.sessions.create("echo", { user: "ann" }));
    await settled(chat.ask("before"));
    await clock.advance(2_000);
    pods.isAway = true;
    await clock.advance(60_000);
    // A deploy: the next pod comes, has never reached the database, and the first one goes.
    const second = start("pod-2");
    const asked = await settled(second.sessions.create("asker", { user: "ann" }));
    const asks = await settled(asked.ask("where am I?"));
    await settled(first.stop());
    running = [second];
    const there = second.sessions.open(chat.sessionId, { user: "ann" });
    expect(await settled(there.ask("after the deploy"))).toMatchObject({
      parts: [{ text: "you said after the deploy" }],
    });
    const results = [{ toolCallId: "call-1", output: "at sea" }];
    await settled(asked.toolResult(asks.messageId, results));
    await settled(joined(asked, 4));
    await clock.advance(60_000);
    // A death: what it had acked is in the log alone, and a turn of it runs.
    const third = start("pod-3");
    await clock.advance(3_000);
    const endless = await settled(second.sessions.create("endless", { user: "ann" }));
    await settled(endless.send("go on"));
    await clock.advance(1_000);
    second.kill();
    running = [third];
    const left = third.sessions.open(chat.sessionId, { user: "ann" });
    await settled(left.ask("after the death"));
    expect(await settled(joined(left, 6))).toHaveLength(6);
    const going = third.sessions.open(endless.sessionId, { user: "ann" });
    await clock.advance(5_000);
    expect(await settled(going.stop({ author: "ann" }))).toBe(true);
    await settled(joined(going, 2));
    await clock.advance(60_000);
    await areEqual(third, [left, going, third.sessions.open(asked.sessionId)]);
  });

  test("are acted on by operators, whose acts are in the audit when it is back; a full audit that was seen before refuses them", async () => {
    const pod = start("pod-1");
    const made = await settled(pod.sessions.create("endless", { user: "ann" }));
    await settled(made.send("go on"));
    await clock.advance(2_000);
    const operator = {
      kind: "key",
      keyName: "ops",
      role: "operator",
      address: "10.0.0.7",
    } as const;
    const act = <Value>(work: (chat: Chat) => Promise<Value>) =>
      settled(actAs(operator, () => work(pod.sessions.open(made.sessionId))));
    pods.isAway = true;
    const sinceMs = clock.monotonic();
    expect(await act((chat) => chat.stop({}))).toBe(true);
    await act((chat) => chat.setMetadata({ seen: true }));
    await act((chat) => chat.members({ addUsers: ["bob"] }));
    await act((chat) => chat.archive());
    // No call waited for what only the database could say.
    expect(clock.monotonic() - sinceMs).toBeLessThan(5_000);
    pods.isAway = false;
    await areEqual(pod, [made]);
    const audit = createAudit({ database });
    const acts = async () => (await audit.list()).entries.map(({ action }) => action).toSorted();
    const expected = ["archive", "members", "metadata", "stop"].map((each) => `sessions.${each}`);
    expect(await acts()).toEqual(expected);
    const [{ keyName, subject }] = (await audit.list()).entries as [AuditEntry];
    expect([keyName, subject]).toEqual(["ops", made.sessionId]);

    await database.write([
      sql`update ${table("audit")} set action = 'audit.full', outcome = 'full' where action = 'sessions.stop'`,
    ]);
    const full = { code: "overloaded" };
    await expect(act((chat) => chat.unarchive())).rejects.toMatchObject(full);
    pods.isAway = true;
    await expect(act((chat) => chat.unarchive())).rejects.toMatchObject(full);
    expect(await acts()).toHaveLength(expected.length);
  });

  test("S13: start tasks with their messages, of which one whose key is taken by then has its id found", async () => {
    const pod = start("pod-1");
    const chat = await settled(pod.sessions.create("echo", { user: "ann" }));
    const asks = (text: string) =>
      settled(chat.send(text, { tasks: [{ task: "announce", options: { key: "dawn" } }] }));
    pods.isAway = true;
    const ids = [(await asks("one")).tasks![0]!, (await asks("two")).tasks![0]!];
    const tasks = createTasks({
      database,
      clock,
      random: seededRandom(3),
      ids: uuidv7(clock, seededRandom(4)),
    });
    expect(ids[0]!.taskId).not.toBe(ids[1]!.taskId);
    const count = async () =>
      (await database.read(sql`select 1 as found from ${table("task")}`)).length;
    expect(await count()).toBe(0);
    await areEqual(pod, [chat]);
    expect(await count()).toBe(1);
    const found = await Promise.all(ids.map((id) => tasks.get(id.taskId)));
    expect(found.map((task) => task?.taskId)).toEqual([ids[0]!.taskId, ids[0]!.taskId]);
  });

  test("S11: go on with an answer of a pod that died behind the steps that it had stored, and run none again", async () => {
    const first = start("pod-1");
    const chat = await settled(first.sessions.create("stepper", { user: "ann" }));
    await clock.advance(2_000);
    pods.isAway = true;
    await settled(chat.send("look"));
    await clock.advance(2_000);
    expect(looked).toBe(1);
    const second = start("pod-2");
    await clock.advance(2_000);
    first.kill();
    running = [second];
    await clock.advance(5_000);
    release();
    const there = second.sessions.open(chat.sessionId, { user: "ann" });
    const seen = await settled(joined(there, 2));
    expect(seen.at(-1)!.parts).toMatchObject([{ text: "saw a ship" }]);
    expect(looked).toBe(1);
    await areEqual(second, [there]);
  });

  test("S10: answer at once of an id from outside that only the database could know, and when to ask again", async () => {
    const [one, two] = [start("pod-1"), start("pod-2")];
    const chat = await settled(one!.sessions.create("echo", { user: "ann" }));
    await settled(chat.ask("before"));
    await clock.advance(2_000);
    pods.isAway = true;
    const refused = async (call: () => Promise<unknown>, more: object = {}): Promise<number> => {
      const askedMs = clock.monotonic();
      const error: unknown = await settled(call()).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: "store_unavailable", ...more });
      return clock.monotonic() - askedMs;
    };
    const calls = (pod: StreamPod) => [
      () => pod.sessions.create("echo", { user: "ann", sessionId: "from-outside" }),
      () => pod.sessions.open("from-outside", { user: "ann" }).send("hi"),
      () => pod.sessions.open("from-outside").view(),
      () => pod.sessions.open("from-outside").stop(),
      () => pod.sessions.open("from-outside").entries(),
    ];
    for (const each of calls(one!)) expect(await refused(each)).toBeLessThan(4_000);
    // Whether an id is new is never a caller's to say.
    const claimed = { user: "ann", sessionId: "from-outside", isFresh: true };
    await expect(one!.sessions.create("echo", claimed as never)).rejects.toMatchObject({
      code: "invalid_option",
    });
    await clock.advance(5_000);
    const told = { retryAfterMs: 5_000 };
    for (const each of calls(one!)) expect(await refused(each, told)).toBeLessThan(2_500);
    // Another pod asks the owner of the log, and for reads waits a moment for the database by itself.
    const [create, send, ...reads] = calls(two!);
    for (const each of [create!, send!]) {
      expect(await refused(each, told)).toBeLessThan(2_500);
    }
    for (const each of reads) expect(await refused(each)).toBeLessThan(4_000);
    // A fork needs what only the database knows, too.
    expect(await refused(() => chat.fork({ atSeq: 1 }), told)).toBeLessThan(2_500);
    // Those that the log has go on meanwhile, and what was refused can be done once it is back.
    await settled(chat.ask("meanwhile"));
    pods.isAway = false;
    await clock.advance(6_000);
    await settled(two!.sessions.create("echo", { user: "ann", sessionId: "from-outside" }));
    await areEqual(one!, [chat, two!.sessions.open("from-outside")]);
  });

  test("have their members, state and places in the log, and their metadata of before in the database alone", async () => {
    const [owner, other] = [start("pod-1"), start("pod-2")];
    const given = { user: "ann", users: ["bob"], metadata: { title: "the sea" } };
    const chat = await settled(owner!.sessions.create("echo", given));
    await settled(chat.ask("before"));
    await clock.advance(5_000);
    pods.isAway = true;
    await clock.advance(300_000);
    for (const { service } of [owner!, other!]) {
      const get = (more?: { withoutMetadata: true }) =>
        settled(service.get("default", chat.sessionId, more));
      const found = await get({ withoutMetadata: true });
      expect([found.users.toSorted(), found.lastSeq, found.state.state, found.metadata]).toEqual([
        ["ann", "bob"],
        2,
        "idle",
        null,
      ]);
      await expect(get()).rejects.toMatchObject({ code: "store_unavailable" });
    }
    await settled(chat.setMetadata({ title: "the coast" }));
    expect((await settled(chat.view())).metadata).toEqual({ title: "the coast" });
  });

  test("show the last pages of lists again, with their time, and then say that they can't be read", async () => {
    const pod = start("pod-1");
    const made = await settled(pod.sessions.create("echo", { user: "ann" }));
    await clock.advance(2_000);
    const before = await settled(pod.sessions.list());
    expect(before.sessions.map(({ sessionId }) => sessionId)).toEqual([made.sessionId]);
    pods.isAway = true;
    await settled(pod.sessions.create("echo", { user: "ann" }));
    await clock.advance(300_000);
    expect(await settled(pod.sessions.list())).toEqual(before);
    expect(clock.now() - before.asOf!).toBeGreaterThanOrEqual(300_000);
    const away = { code: "store_unavailable" };
    const another = { user: "ann", tenant: "another" };
    await expect(settled(pod.sessions.list(another))).rejects.toMatchObject(away);
    await clock.advance(310_000);
    await expect(settled(pod.sessions.list())).rejects.toMatchObject(away);
    pods.isAway = false;
    await clock.advance(10_000);
    expect((await settled(pod.sessions.list())).sessions).toHaveLength(2);
  });

  test("show inboxes as they were, with their time, and then say that they can't be read", async () => {
    const pod = start("pod-1");
    const made = await settled(pod.sessions.create("echo", { user: "ann" }));
    await settled(made.ask("before"));
    await clock.advance(2_000);
    const seen: InboxEvent[] = [];
    const leaving = new AbortController();
    const following = (async () => {
      for await (const event of pod.sessions.inbox("ann", { signal: leaving.signal })) {
        seen.push(event);
      }
    })().catch(() => {});
    const snapshot = async () => {
      for await (const event of pod.sessions.inbox("ann")) return event;
      throw new Error("the inbox has ended");
    };
    await clock.advance(3_000);
    expect(seen).toMatchObject([{ type: "snapshot", sessions: [{ sessionId: made.sessionId }] }]);
    pods.isAway = true;
    const sinceMs = clock.now();
    const missed = await settled(pod.sessions.create("echo", { user: "ann" }));
    await clock.advance(60_000);
    // Its readers are told, and one that comes now sees the same.
    const told = seen.findLast((event) => event.type === "changed") as { asOf?: number };
    expect(told.asOf).toBeLessThanOrEqual(sinceMs + 1_000);
    const then = await settled(snapshot());
    expect(then).toMatchObject({ type: "snapshot", asOf: told.asOf });
    await clock.advance(600_000);
    const away = { code: "store_unavailable" };
    await expect(settled(snapshot())).rejects.toMatchObject(away);
    pods.isAway = false;
    await clock.advance(20_000);
    const shown = new Set(seen.flatMap((event) => ("sessions" in event ? event.sessions : [])));
    expect([...shown].map(({ sessionId }) => sessionId)).toContain(missed.sessionId);
    const last = seen.findLast((event) => event.type === "changed");
    expect(last).not.toHaveProperty("asOf");
    expect(await settled(snapshot())).not.toHaveProperty("asOf");
    leaving.abort();
    await settled(following);
  });
});
