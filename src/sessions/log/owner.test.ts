import { beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { Command } from "../conversation/command.ts";
import type { CommitResult, Head, Journal, LogRecord } from "./journal.ts";
import { createMemoryJournal } from "./memory-journal.ts";
import { type CommittedRecord, createOwner, type Owner } from "./owner.ts";

const tenant = "default";
const unknown = () => new FlotillaError("unknown_outcome", "the answer was lost");
const away = async () => Promise.reject(new FlotillaError("store_unavailable", "away"));

describe("an owner", () => {
  let clock: MovableClock;
  let journal: Journal;
  let records: LogRecord[];
  let delivered: CommittedRecord[];
  let onDelivered: () => void;
  let fenced: number;
  let isFresh: boolean;
  /** What becomes of the next commits, in order; those after it are as they should be. */
  let commits: ((store: () => Promise<CommitResult>, record: LogRecord) => Promise<CommitResult>)[];
  let head: Head;
  let owner: Owner;
  const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(7));

  const own = (taken: Head, more: { slotsMost?: number; agent?: true } = {}): Owner =>
    createOwner(
      taken,
      { busy: [] },
      {
        ...(more.slotsMost !== undefined && { maxSlots: more.slotsMost }),
        journal: {
          ...journal,
          commit(at, record) {
            records.push(record);
            const store = () => journal.commit(at, record);
            return commits.shift()?.(store, record) ?? store();
          },
        },
        clock,
        random: seededRandom(1),
        ids,
        log: silentLogger,
        facts: () => ({
          nowMs: clock.now(),
          newId: () => ids.next(),
          agent: () => more.agent && { during: "queue" as const, attempts: 3, compaction: null },
          runnerFor: () => null,
        }),
        prime: () => undefined,
        onCommitted(committed) {
          delivered.push(committed);
          onDelivered();
        },
        onFenced: () => fenced++,
        isFresh: () => isFresh,
      },
    );
  const take = async (podId: string): Promise<Head> => {
    const seen = (await journal.heads())[0]!;
    return (await journal.take(seen, { podId, host: null, recordId: ids.next() }))!;
  };
  const create = (sessionId: string) =>
    owner.submit(tenant, sessionId, {
      type: "create",
      sessionId,
      tenant,
      agents: [],
      users: ["ada"],
      metadata: null,
    });
  const say = (sessionId: string, clientId: string) =>
    owner.submit(tenant, sessionId, message(clientId));

  beforeEach(async () => {
    clock = movableClock();
    journal = createMemoryJournal({ ids });
    records = [];
    delivered = [];
    onDelivered = () => {};
    commits = [];
    fenced = 0;
    isFresh = true;
    await journal.create(1);
    head = await take("pod-1");
    owner = own(head);
    await create("s");
    records = [];
    delivered = [];
  });

  test("O2: ends its stop though servers never say what became of a record, and answers nothing of it", async () => {
    const endless = Array.from({ length: 1_000 }, () => async () => Promise.reject(unknown()));
    commits = endless;
    const said = say("s", "a").catch((error: unknown) => error);
    await eventLoopTurns();
    const queued = say("s", "b").catch((error: unknown) => error);
    let isStopped = false;
    const stopped = owner.stop().then(() => (isStopped = true));
    await clock.advance(4_900);
    expect(isStopped).toBe(false);
    await clock.advance(500);
    await stopped;
    // Whether it is stored, the next owner finds out: neither was refused for certain.
    for (const each of [said, queued]) expect(await each).toMatchObject({ code: "not_owner" });
    expect((await said) as FlotillaError).not.toHaveProperty("details.taken");
    expect(delivered).toEqual([]);
    expect(fenced).toBe(1);
  });

  test("S2, S4: gives out seqs in the order of the calls, all that came meanwhile in one record", async () => {
    const first = say("s", "a");
    await eventLoopTurns(1);
    const rest = Array.from({ length: 50 }, (_, at) => say("s", `b${at}`));
    const seqs = (await Promise.all([first, ...rest])).map(({ seq }) => seq);
    expect(seqs).toEqual(Array.from({ length: 51 }, (_, at) => at + 1));
    expect(records.length).toBeLessThanOrEqual(3);
  });

  test("S6, O3: answers, shows and delivers nothing before the commit, and has one under way", async () => {
    const gate = Promise.withResolvers<void>();
    commits.push(async (store) => (await gate.promise, store()));
    const answers: string[] = [];
    const first = say("s", "a").then(() => answers.push("a"));
    await eventLoopTurns();
    const second = say("s", "b").then(() => answers.push("b"));
    await eventLoopTurns();
    expect([answers, delivered, owner.cachedHeader("s")?.lastSeq, records.length]).toEqual([
      [],
      [],
      0,
      1,
    ]);
    gate.resolve();
    await Promise.all([first, second]);
    expect(answers).toEqual(["a", "b"]);
    expect(delivered.map(({ record }) => record.entries.map(({ seq }) => seq))).toEqual([[1], [2]]);
    expect(owner.cachedHeader("s")?.lastSeq).toBe(2);
  });

  test("O2, O7: sends the same record again until it is known, and stores it once", async () => {
    commits.push(
      async (store) => (await store(), Promise.reject(unknown())),
      async () => Promise.reject(new FlotillaError("store_unavailable", "away")),
      async () => Promise.reject(unknown()),
    );
    const answer = say("s", "a");
    await eventLoopTurns();
    await clock.advance(10_000);
    expect(await answer).toMatchObject({ seq: 1 });
    expect(new Set(records.map(({ recordId }) => recordId)).size).toBe(1);
    expect(records).toHaveLength(4);
    expect(await journal.entries("s", { after: 0, limit: 10 })).toHaveLength(1);
  });

  test("O2: never rejects as failed what may be stored", async () => {
    // The answer is lost, and then the store can't be reached for longer than any caller's limits.
    commits.push(async (store) => (await store(), Promise.reject(unknown())));
    for (let times = 0; times < 30; times++) commits.push(away);
    const answer = say("s", "a");
    await clock.advance(60_000);
    expect(await answer).toMatchObject({ seq: 1 });
  });

  test("rejects callers with a store that is away once patience is over, where nothing can be stored", async () => {
    for (let times = 0; times < 200; times++) commits.push(away);
    const told: string[] = [];
    const tell = (clientId: string) =>
      say("s", clientId).then(
        () => told.push(`${clientId} stored`),
        (error: FlotillaError) => told.push(`${clientId} ${error.code}`),
      );
    void tell("a");
    await clock.advance(10_000);
    void tell("b");
    await clock.advance(4_900);
    expect(told).toEqual([]);
    await clock.advance(400);
    expect(told).toEqual(["a store_unavailable"]);
    // Each has its own fifteen seconds, and nothing of the first is left behind.
    commits = [];
    await clock.advance(300);
    expect(told).toEqual(["a store_unavailable", "b stored"]);
    expect(await say("s", "a")).toMatchObject({ seq: 2 });
  });

  test("S4, S10: sessions that aren't in memory wait for the store as long, in order", async () => {
    const { header } = journal;
    let isAway = true;
    journal.header = (sessionId) => (isAway ? away() : header(sessionId));
    owner = own(await take("pod-2"));
    const first = say("s", "a");
    await clock.advance(10_000);
    const second = say("s", "b");
    isAway = false;
    await clock.advance(300);
    expect([(await first).seq, (await second).seq]).toEqual([1, 2]);
  });

  test.each(["drop", "stop"] as const)(
    "S4: at its %s, what waits for a session that can't be read is sent to the next owner at once",
    async (end) => {
      journal.header = () => new Promise(() => {});
      owner = own(await take("pod-2"));
      const refused = say("s", "a").catch((error: FlotillaError) => error);
      await owner[end]();
      expect(await refused).toMatchObject({ code: "not_owner", details: { taken: false } });
    },
  );

  test("O3: one that is fenced stores nothing, answers `not_owner`, and forgets what it knew", async () => {
    await take("pod-2");
    const answers = await Promise.allSettled([say("s", "a"), say("s", "b")]);
    expect(answers.map((each) => each.status === "rejected" && each.reason.code)).toEqual([
      "not_owner",
      "not_owner",
    ]);
    expect([fenced, delivered.length, owner.cachedHeader("s")]).toEqual([1, 0, undefined]);
    await expect(say("s", "c")).rejects.toMatchObject({ code: "not_owner" });
    expect(await journal.entries("s", { after: 0, limit: 10 })).toEqual([]);
  });

  test.each([true, false])(
    "S7, O3: one that stood still while another took over refuses nothing by what it remembers (fresh: %s)",
    async (fresh) => {
      const asked = { type: "create", sessionId: "new", tenant, agents: [], users: [] } as const;
      await expect(say("new", "a")).rejects.toMatchObject({ code: "not_found" });
      expect(records).toEqual([]);
      isFresh = fresh;
      if (!fresh) {
        const next = own(await take("pod-2"));
        await next.submit(tenant, "new", { ...asked, metadata: null });
      }
      await expect(say("new", "a")).rejects.toMatchObject({
        code: fresh ? "not_found" : "not_owner",
      });
      expect(fenced).toBe(fresh ? 0 : 1);
    },
  );

  test("S7: one whose beats aren't answered refuses what it still can prove to be so", async () => {
    isFresh = false;
    await expect(say("none", "a")).rejects.toMatchObject({ code: "not_found" });
    expect(records).toHaveLength(1);
    expect(await say("s", "a")).toMatchObject({ seq: 1 });
    expect(await say("s", "a")).toMatchObject({ seq: 1, duplicate: true });
  });

  test("O1: one that has stopped stores nothing more, so that its log can be given up", async () => {
    const asked = say("s", "a");
    const reading = Promise.withResolvers<void>();
    const { header } = journal;
    journal.header = async (sessionId) => (await reading.promise, header(sessionId));
    // Its header is still being read when the owner stops.
    const late = say("other", "b").catch((error: FlotillaError) => error);
    let answered = false;
    void asked.then(() => (answered = true));
    await owner.stop();
    expect(answered).toBe(true);
    reading.resolve();
    const untaken = { code: "not_owner", details: { taken: false } };
    expect(await late).toMatchObject(untaken);
    await expect(say("s", "c")).rejects.toMatchObject(untaken);
    await eventLoopTurns();
    expect(records.map(({ entries }) => entries.length)).toEqual([1]);
  });

  test("O7: one whose record was stored before another took over leaves it to its caller to retry there", async () => {
    commits.push(async (store) => {
      await store();
      await take("pod-2");
      throw unknown();
    });
    const lost = say("s", "a").catch((error: unknown) => error);
    await clock.advance(1_000);
    expect(await lost).toMatchObject({ code: "not_owner" });
    owner = own(await take("pod-2"));
    expect(await say("s", "a")).toMatchObject({ seq: 1, duplicate: true });
    expect(await journal.entries("s", { after: 0, limit: 10 })).toHaveLength(1);
  });

  test("S3: what is sent again has the same seq, in the same record, later, and with another owner", async () => {
    const [one, other] = await Promise.all([say("s", "a"), say("s", "a")]);
    expect([one, other]).toMatchObject([{ seq: 1 }, { seq: 1, duplicate: true }]);
    expect(await say("s", "a")).toMatchObject({ seq: 1, duplicate: true });
    owner = own(await take("pod-2"));
    await say("s", "b");
    expect(await say("s", "a")).toMatchObject({ seq: 1, duplicate: true, lastSeq: 2 });
    expect(owner.cachedHeader("s")?.lastSeq).toBe(2);
  });

  test("S3, O2: what was stored isn't refused when it is sent again, whatever became of the session", async () => {
    await say("s", "a");
    await owner.submit(tenant, "s", { type: "archive" });
    owner = own(await take("pod-2"));
    const answers = await Promise.allSettled([say("s", "b"), say("s", "a")]);
    expect(answers).toMatchObject([
      { reason: { code: "conflict" } },
      { value: { seq: 1, duplicate: true } },
    ]);
  });

  test("S3, O2: however many entries came since, what was stored isn't refused when it is sent again", async () => {
    const first = await say("s", "a");
    for (let at = 0; at < 300; at++) await say("s", `later ${at}`);
    await owner.submit(tenant, "s", { type: "archive" });
    owner = own(await take("pod-2"));
    expect(await say("s", "a")).toMatchObject({ seq: first.seq, duplicate: true });
  });

  test("O2: refuses nothing while it can't read whether it was stored", async () => {
    await say("s", "a");
    await owner.submit(tenant, "s", { type: "archive" });
    journal.storedIds = () => Promise.reject(new FlotillaError("store_unavailable", "away"));
    owner = own(await take("pod-2"));
    const answers = Promise.allSettled([
      say("s", "a"),
      owner.submit(tenant, "s", { type: "unarchive" }),
    ]);
    await clock.advance(20_000);
    expect(await answers).toMatchObject([
      { reason: { code: "store_unavailable" } },
      { value: { done: true } },
    ]);
  });

  test("S4: sessions wait for no read but their own, and the commands of each keep their order", async () => {
    await create("other");
    await say("s", "a");
    await owner.submit(tenant, "s", { type: "archive" });
    const { storedIds } = journal;
    let isAway = true;
    journal.storedIds = (asked) => (isAway ? away() : storedIds(asked));
    owner = own(await take("pod-2"));
    const told: string[] = [];
    const tell = (name: string, answer: Promise<unknown>) =>
      answer.then(
        () => told.push(name),
        (error: FlotillaError) => told.push(`${name} ${error.code}`),
      );
    // Both in one record, which the archived session's would have to wait for a look.
    void tell("s refused", say("s", "b"));
    void tell("s unarchived", owner.submit(tenant, "s", { type: "unarchive" }));
    void tell("other 1", say("other", "1"));
    await eventLoopTurns();
    void tell("s said", say("s", "c"));
    void tell("other 2", say("other", "2"));
    await eventLoopTurns();
    expect(told).toEqual(["other 1", "other 2"]);
    isAway = false;
    await clock.advance(1_000);
    expect(told.slice(2)).toEqual(["s refused conflict", "s unarchived", "s said"]);
    expect(clock.timers).toBe(0);
  });

  test("S4: what waits for a read is rejected in its order, for another owner, where its owner stops", async () => {
    await owner.submit(tenant, "s", { type: "archive" });
    journal.storedIds = away;
    owner = own(await take("pod-2"));
    const asked = ["a", "b"].map((clientId) => say("s", clientId).catch((error) => error));
    await eventLoopTurns();
    asked.push(say("s", "c").catch((error) => error));
    await owner.stop();
    for (const error of await Promise.all(asked)) {
      expect(error).toMatchObject({ code: "not_owner", details: { taken: false } });
    }
    await clock.advance(1_000);
    expect(clock.timers).toBe(0);
  });

  test("S10: keeps nothing for longer than its caller waits for it", async () => {
    for (let times = 0; times < 200; times++) commits.push(away);
    const told: number[] = [];
    const startedMs = clock.monotonic();
    for (const limitMs of [2_000, 60_000]) {
      void owner
        .submit(tenant, "s", message(`${limitMs}`), { limitMs })
        .catch(() => told.push(clock.monotonic() - startedMs));
    }
    await clock.advance(2_300);
    expect(told).toHaveLength(1);
    await clock.advance(12_600);
    expect(told).toHaveLength(1);
    await clock.advance(400);
    expect(told).toHaveLength(2);
  });

  test("only the command at fault fails, and the others get its seq", async () => {
    const poison = async (store: () => Promise<CommitResult>, record: LogRecord) =>
      record.entries.some(({ clientId }) => clientId === "poison")
        ? Promise.reject(new FlotillaError("internal", "the store can't take this"))
        : store();
    for (let times = 0; times < 20; times++) commits.push(poison);
    const asked = ["a", "poison", "b", "c"].map((clientId) => say("s", clientId));
    const answers = await Promise.allSettled(asked);
    expect(
      answers.map((each) => (each.status === "fulfilled" ? each.value.seq : each.reason.code)),
    ).toEqual([1, "internal", 2, 3]);
  });

  test("S12: a session that can't be read is never taken for a new one", async () => {
    const header = journal.header;
    journal.header = () => Promise.reject(new FlotillaError("store_unavailable", "away"));
    owner = own(await take("pod-2"));
    const refused = say("s", "a").catch((error: unknown) => error);
    await clock.advance(20_000);
    expect(await refused).toMatchObject({ code: "store_unavailable" });
    journal.header = header;
    owner = own(await take("pod-3"));
    await expect(say("nobody", "a")).rejects.toMatchObject({ code: "not_found" });
    expect(await say("s", "a")).toMatchObject({ seq: 1 });
  });

  test("S11: another tenant's session is none", async () => {
    await expect(owner.submit("other", "s", message("a"))).rejects.toMatchObject({
      code: "not_found",
    });
    expect(records).toEqual([]);
  });

  test("keeps the order of commands that came while a session was read", async () => {
    owner = own(await take("pod-2"));
    const seqs = await Promise.all(["a", "b", "c"].map((clientId) => say("s", clientId)));
    expect(seqs.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  });

  test("S12: a session with a command under way isn't forgotten, however many others come", async () => {
    await say("s", "a");
    owner = own(await take("pod-2"), { slotsMost: 2 });
    await say("s", "b");
    const gate = Promise.withResolvers<void>();
    commits.push(async (store) => (await gate.promise, store()));
    const others = [create("t"), create("u")];
    await eventLoopTurns();
    const asked = [create("s"), say("s", "c"), ...["v", "w", "x"].map(create)];
    await eventLoopTurns();
    gate.resolve();
    await Promise.all(others);
    expect((await Promise.all(asked)).slice(0, 2)).toMatchObject([{ duplicate: true }, { seq: 3 }]);
    expect((await journal.header("s"))?.lastSeq).toBe(3);
  });

  test("regenerates an answer once, also where that is requested again when it is done", async () => {
    const agents = ["echo"];
    const made = { type: "create", sessionId: "t", tenant, agents, users: [], metadata: null };
    const ask = (command: Command) => owner.submit(tenant, "t", command);
    const target = { seq: 2, messageId: "m", author: "echo" };
    const again: Command = { type: "regenerate", clientId: "again", target };
    const finish = (epoch: number): Command => ({
      type: "turn_finished",
      epoch,
      attempt: 1,
      reply: { outcome: "completed", parts: [{ type: "text", text: "hi" }], tokens: 1 },
    });
    owner = own(await take("pod-2"), { agent: true });
    await ask(made as Command);
    await ask(message("a"));
    await ask(finish(1));
    await Promise.all([ask(again), ask(again)]);
    await ask(finish(2));
    expect(await ask(again)).toMatchObject({ duplicate: true, lastSeq: 3 });
    expect(owner.cachedHeader("t")).toMatchObject({ work: null, epoch: 2 });
    expect(await ask(message("again"))).toMatchObject({ seq: 4 });
  });

  test("keeps no more of sessions that there aren't than of those that there are", async () => {
    let reads = 0;
    const header = journal.header;
    journal.header = (sessionId) => (reads++, header(sessionId));
    owner = own(await take("pod-2"), { slotsMost: 10 });
    for (let at = 0; at < 30; at++) await say(`none-${at}`, "a").catch(() => {});
    await say("none-0", "b").catch(() => {});
    expect(reads).toBe(31);
  });

  test("what can't be decided here is refused alone, and the log goes on", async () => {
    const ask = (command: object) => owner.submit(tenant, "s", command as Command);
    const answers = await Promise.allSettled([
      say("s", "a"),
      ask({ type: "of_a_later_release" }),
      ask({ ...message("broken"), parts: 7 }),
      say("s", "b"),
    ]);
    expect(
      answers.map((each) => (each.status === "fulfilled" ? each.value.seq : each.reason.code)),
    ).toEqual([1, "unsupported", "internal", 2]);
    await owner.submit(tenant, "s", { type: "delete" });
    await expect(ask({ type: "of_a_later_release" })).rejects.toMatchObject({
      code: "unsupported",
    });
  });

  test("what is stored is answered, whatever becomes of publishing it", async () => {
    onDelivered = () => {
      throw new Error("somebody who follows has failed");
    };
    expect(await say("s", "a")).toMatchObject({ seq: 1 });
    expect(await say("s", "b")).toMatchObject({ seq: 2 });
  });

  test("stops after what is under way, and takes no more", async () => {
    const gate = Promise.withResolvers<void>();
    commits.push(async (store) => (await gate.promise, store()));
    const first = say("s", "a");
    await eventLoopTurns();
    const queued = say("s", "b");
    const stopped = owner.stop();
    await expect(say("s", "c")).rejects.toMatchObject({ code: "not_owner" });
    gate.resolve();
    await stopped;
    expect([await first, await queued]).toMatchObject([{ seq: 1 }, { seq: 2 }]);
  });
});

function message(clientId: string): Command {
  return {
    type: "append",
    clientId,
    messageId: clientId,
    role: "user",
    author: "ada",
    parts: [{ type: "text", text: clientId }],
    tokens: 1,
  };
}
