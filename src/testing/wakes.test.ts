import { describe, expect, test } from "vitest";
import { type Entry, textOf } from "../protocol/message.ts";
import { agent } from "../sessions/agents/agent.ts";
import type { AgentContext } from "../sessions/agents/spec.ts";
import type { Chat } from "../sessions/sessions.ts";
import { testFlotilla } from "./test-flotilla.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

/** What an agent was asked, each time that it was called. */
type Asked = { readonly texts: readonly string[]; readonly woken: AgentContext["woken"] };

/** An agent that says this, and nothing where it says undefined. */
function clockwork(say: (asked: Asked, context: AgentContext) => unknown = () => "Good morning.") {
  const asked: Asked[] = [];
  const helper = agent("helper", async (context) => {
    const now = { texts: context.messages.map(textOf), woken: context.woken };
    asked.push(now);
    return say(now, context) as string;
  });
  return { helper, asked };
}

const entriesOf = async (chat: Chat): Promise<readonly Entry[]> =>
  (await chat.entries({ limit: 1_000 })).entries;

const kindsOf = (entries: readonly Entry[]) =>
  entries.map(({ kind, wake, role }) => (wake ? `${kind} ${wake.event}` : `${kind} ${role}`));

describe("a wake", () => {
  test("asks the agent at its time, once, and says in the log that it was set, by whom and for when", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const set = await chat.wake({ key: "morning", afterMs: hourMs, message: "Say good morning." });
    expect(set).toMatchObject({ key: "morning", seq: 1, duplicate: false });
    const [entry] = await entriesOf(chat);
    expect(entry).toMatchObject({
      kind: "wake",
      author: "ada",
      wake: { event: "set", key: "morning", agent: "helper", atMs: set.atMs },
    });
    expect(await chat.wakes()).toMatchObject([
      { key: "morning", atMs: set.atMs, author: "ada", preview: "Say good morning.", setSeq: 1 },
    ]);

    await t.advance(hourMs - minuteMs);
    expect(asked).toEqual([]);
    await t.advance(2 * minuteMs);
    await t.until(async () => (await chat.view()).lastSeq === 3);
    expect(asked).toEqual([
      { texts: ["Say good morning."], woken: { key: "morning", atMs: set.atMs } },
    ]);
    const entries = await entriesOf(chat);
    expect(kindsOf(entries)).toEqual(["wake set", "wake fired", "message assistant"]);
    expect(textOf(entries[2]!)).toBe("Good morning.");
    expect(await chat.wakes()).toEqual([]);
    // User interfaces show what was answered, and agents also what was asked.
    expect((await chat.messages()).map(textOf)).toEqual(["Good morning."]);
    await chat.ask("And now?");
    expect(asked[1]!.texts).toEqual(["Say good morning.", "Good morning.", "And now?"]);
    await t.advance(2 * hourMs);
    expect(asked).toHaveLength(2);
  });

  test("that finds nothing to say leaves no entry", async () => {
    const { helper, asked } = clockwork(({ woken }) => (woken ? undefined : "Hello."));
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.wake({ key: "beat", cron: "*/5 * * * *", message: "Look around." });
    for (let beats = 1; beats <= 3; beats++) {
      await t.advance(5 * minuteMs);
      await t.until(() => asked.length === beats);
    }
    await t.until(async () => (await chat.view()).state.state === "idle");
    expect(kindsOf(await entriesOf(chat))).toEqual(["wake set"]);
    const { turns } = await chat.turns();
    expect(turns.map(({ outcome }) => outcome)).toEqual(["completed", "completed", "completed"]);
    expect(await chat.wakes()).toHaveLength(1);
    // The conversation goes on as if nothing had been.
    expect(textOf(await chat.ask("Hi"))).toBe("Hello.");
  });

  test("comes again at each time of a pattern, and says so in the log when it is cancelled", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const { atMs } = await chat.wake({ key: "hourly", cron: "0 * * * *" });
    await t.advance(hourMs);
    await t.until(() => asked.length === 1);
    await t.until(async () => (await chat.wakes())[0]?.atMs === atMs + hourMs);
    expect(asked[0]).toEqual({ texts: [], woken: { key: "hourly", atMs } });
    expect(await chat.cancelWake("hourly")).toBe(true);
    expect(await chat.cancelWake("hourly")).toBe(false);
    await t.advance(3 * hourMs);
    expect(asked).toHaveLength(1);
    expect(kindsOf(await entriesOf(chat)).at(-1)).toBe("wake cancelled");
  });

  test("that is set again with its key takes the place of the first, and with its id is the same", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const first = await chat.wake({ key: "k", afterMs: hourMs, message: "one", id: "a" });
    expect(await chat.wake({ key: "k", afterMs: 2 * hourMs, message: "one", id: "a" })).toEqual({
      ...first,
      duplicate: true,
    });
    await chat.wake({ key: "k", afterMs: 3 * hourMs, message: "two", id: "b" });
    await t.advance(2 * hourMs);
    expect(asked).toEqual([]);
    await t.advance(2 * hourMs);
    await t.until(() => asked.length === 1);
    expect(asked[0]!.texts).toEqual(["two"]);
  });

  test("that is set, cancelled and ended over and over leaves no tasks behind", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const tasksOf = async (status: "pending" | "completed") =>
      (await t.tasks.list({ name: "flotilla:wake", status, limit: 200 })).tasks;
    const isLeft = (count: number) => async () => (await tasksOf("pending")).length === count;
    // Of later times, and of earlier ones.
    for (let n = 1; n <= 40; n++) {
      await chat.wake({ key: "k", afterMs: 100 * hourMs + n * (n % 2 ? minuteMs : -minuteMs) });
    }
    await t.until(isLeft(1));
    for (let n = 1; n <= 20; n++) {
      await chat.wake({ key: `of ${n}`, cron: "0 0 * * *" });
      expect(await chat.cancelWake(`of ${n}`)).toBe(true);
    }
    await t.until(isLeft(2));
    for (let n = 1; n <= 5; n++) {
      await chat.wake({ key: "k", afterMs: 50 * hourMs });
      await chat.wake({ key: "other", afterMs: 50 * hourMs });
      await chat.archive();
      await chat.unarchive();
    }
    const last = await chat.wake({ key: "k", afterMs: 10 * hourMs, message: "the last" });
    await t.until(isLeft(1));
    expect(asked).toEqual([]);
    expect((await tasksOf("completed")).length).toBeGreaterThan(60);
    await t.advance(10 * hourMs);
    await t.until(() => asked.length === 1);
    expect(asked).toEqual([{ texts: ["the last"], woken: { key: "k", atMs: last.atMs } }]);
    await t.until(isLeft(0));
  });

  test("whose time is over is due at once", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.wake({ key: "late", at: new Date(0) });
    await t.until(() => asked.length === 1);
    expect(asked[0]!.woken).toMatchObject({ key: "late" });
  });

  test("waits for the answer that is being made, and a message that waits goes first", async () => {
    let release: (() => void) | undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const order: string[] = [];
    const patient = { deadlineMs: 10 * hourMs, idleTimeoutMs: 10 * hourMs };
    const helper = agent(
      "helper",
      { during: "interrupt", ...patient },
      async ({ messages, woken }) => {
        order.push(woken ? "woken" : textOf(messages.at(-1)!));
        if (order.length === 1) await held;
        return "yes";
      },
    );
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.wake({ key: "k", afterMs: minuteMs, message: "look" });
    await t.advance(2 * minuteMs);
    await t.until(() => order.length === 1);
    // The agent lets messages interrupt it, but what has woken it would be lost then.
    await chat.send("first");
    await chat.wake({ key: "again", at: 0 });
    await t.until(async () => (await t.tasks.list({ status: "completed" })).tasks.length === 2);
    release!();
    await t.until(() => order.length === 3);
    expect(order).toEqual(["woken", "first", "woken"]);
    const isOver = async () => (await chat.view()).state.state === "idle";
    await t.until(isOver);
    const fired = (await entriesOf(chat)).filter(({ wake }) => wake?.event === "fired");
    expect(fired.map(({ wake }) => wake!.key)).toEqual(["k", "again"]);
  });

  test("is gone from a session that was archived or deleted", async () => {
    const { helper, asked } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const archived = await t.sessions.create(helper, { user: "ada" });
    await archived.wake({ key: "k", afterMs: hourMs });
    await archived.archive();
    await archived.unarchive();
    expect(await archived.wakes()).toEqual([]);
    await archived.archive();
    await expect(archived.wake({ key: "k", afterMs: 0 })).rejects.toMatchObject({
      code: "conflict",
    });
    const deleted = await t.sessions.create(helper, { user: "ada" });
    await deleted.wake({ key: "k", afterMs: hourMs });
    await deleted.remove();
    await t.advance(2 * hourMs);
    await t.until(async () => (await t.tasks.list({ status: "completed" })).tasks.length === 2);
    expect(asked).toEqual([]);
  });

  test("whose agent has left the session is seen to have failed", async () => {
    const { helper, asked } = clockwork();
    const other = agent("other", () => "here");
    await using t = await testFlotilla({ use: [helper, other] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.wake({ key: "k", cron: "0 * * * *", message: "look" });
    await chat.members({ agents: ["other"] });
    await t.advance(hourMs);
    await t.until(async () => (await chat.view()).lastSeq === 3);
    const entries = await entriesOf(chat);
    expect(kindsOf(entries)).toEqual(["wake set", "wake fired", "message assistant"]);
    expect(entries[2]).toMatchObject({ outcome: "failed", error: { code: "agent_removed" } });
    expect([asked, await chat.wakes()]).toEqual([[], []]);
  });

  const refused = [
    ["of no time", { key: "k" }, "invalid_option"],
    ["of two times", { key: "k", at: 0, afterMs: 1 }, "invalid_option"],
    ["of a time that is none", { key: "k", at: Number.NaN }, "invalid_option"],
    ["of a time before 0", { key: "k", afterMs: -1 }, "invalid_option"],
    ["in two years", { key: "k", at: Date.UTC(2999, 0) }, "invalid_option"],
    ["each second", { key: "k", cron: "* * * * * *" }, "invalid_option"],
    ["twice within a minute, once a day", { key: "k", cron: "0,30 0 0 * * *" }, "invalid_option"],
    ["of a pattern that is none", { key: "k", cron: "often" }, "invalid_schedule"],
    ["of a pattern that never comes", { key: "k", cron: "0 0 30 2 *" }, "invalid_option"],
    ["of a zone that is none", { key: "k", cron: "0 * * * *", timezone: "x" }, "invalid_schedule"],
    ["of a zone without a pattern", { key: "k", at: 0, timezone: "UTC" }, "invalid_option"],
    ["without a key", { key: "", at: 0 }, "invalid_option"],
    ["of a long key", { key: "k".repeat(101), at: 0 }, "invalid_option"],
    ["of a long message", { key: "k", at: 0, message: "m".repeat(2_001) }, "invalid_option"],
    ["for an agent of no session", { key: "k", at: 0, to: "nobody" }, "invalid_input"],
  ] as const;
  test("is refused where it is wrong, and where a session has too many", async () => {
    const { helper } = clockwork();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const codeOf = (error: unknown) => (error as { code: string }).code;
    const codes = refused.map(async ([what, wake]) => [
      what,
      await chat.wake(wake).then(() => "set", codeOf),
    ]);
    expect(await Promise.all(codes)).toEqual(refused.map(([what, , code]) => [what, code]));
    for (let n = 1; n <= 20; n++) await chat.wake({ key: `k${n}`, afterMs: hourMs });
    const another = chat.wake({ key: "k21", afterMs: hourMs });
    await expect(another).rejects.toMatchObject({ code: "conflict" });
    await chat.wake({ key: "k20", afterMs: 2 * hourMs });
    expect(await chat.wakes()).toHaveLength(20);
    const plain = await t.sessions.create(null, { user: "ada" });
    const ofNobody = plain.wake({ key: "k", afterMs: 0 });
    await expect(ofNobody).rejects.toMatchObject({ code: "invalid_input" });
  });

  test("is set by a turn once, though the turn starts over", async () => {
    let calls = 0;
    const set: unknown[] = [];
    const helper = agent("helper", async ({ wake, woken, attempt }) => {
      if (woken) return "done";
      calls++;
      set.push(await wake({ key: "later", afterMs: hourMs + attempt, message: "go on" }));
      return "I will look again in an hour.";
    });
    await using t = await testFlotilla({ use: [helper], pods: 2 });
    const chat = await t.sessions.create(helper, { user: "ada" });
    t.crashAfter("ran");
    await chat.ask("Remind me");
    expect(calls).toBe(2);
    expect(set[1]).toEqual(set[0]);
    expect(kindsOf(await entriesOf(chat))).toEqual([
      "message user",
      "wake set",
      "message assistant",
    ]);
    expect(await chat.wakes()).toMatchObject([{ key: "later", author: "helper" }]);
    await t.advance(hourMs + minuteMs);
    await t.until(async () => (await chat.view()).lastSeq === 5);
  });

  test("is not set by a turn for the next minute, so that no agent keeps itself awake", async () => {
    const helper = agent("helper", async ({ wake }) => {
      await wake({ key: "again", afterMs: 1_000 });
      return "never";
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    expect(await chat.ask("go")).toMatchObject({ outcome: "failed" });
    expect(await chat.wakes()).toEqual([]);
  });

  const crashes = [
    ...Array.from({ length: 6 }, (_, at) => ["stored", at + 1] as const),
    ...(["claimed", "started", "ran", "finished"] as const).flatMap((point) =>
      [1, 2].map((times) => [point, times] as const),
    ),
  ];
  test.each(crashes)(
    "is neither lost nor doubled, though a pod crashes at `%s` for the %d. time",
    async (point, times) => {
      const { helper } = clockwork(({ texts }) => `${texts.length}`);
      await using t = await testFlotilla({ use: [helper], pods: 2 });
      const chat = await t.sessions.create(helper, { user: "ada" });
      t.crashAfter(point, { times });
      await chat.wake({ key: "k", cron: "0 * * * *", message: "look", id: "set" });
      for (const fired of [1, 2]) {
        await t.advance(hourMs);
        await t.until(async () => (await chat.view()).lastSeq === 1 + 2 * fired);
      }
      expect(kindsOf(await entriesOf(chat))).toEqual([
        "wake set",
        "wake fired",
        "message assistant",
        "wake fired",
        "message assistant",
      ]);
      expect(await chat.wakes()).toHaveLength(1);
    },
  );
});
