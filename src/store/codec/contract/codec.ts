import { expect, test } from "vitest";
import { systemClock } from "../../../base/clock.ts";
import { until } from "../../../base/contract/movable-clock.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { flow } from "../../../flows/flow.ts";
import { connect } from "../../../runtime/connect.ts";
import { startPod } from "../../../runtime/start-pod.ts";
import { schedule } from "../../../schedules/schedule.ts";
import { agent } from "../../../sessions/agents/agent.ts";
import { task } from "../../../tasks/task.ts";
import type { PayloadCodec } from "../codec.ts";
import { encryption } from "../encryption.ts";

export type CodecHarness = {
  url: string;
  dataDir: string;
  /** Everything that is stored: the rows of all tables as text, or the files themselves. */
  dump(): Promise<string>;
  /** Runs a statement by hand, on tables as the database names them. */
  run(text: (table: (name: string) => string) => string): Promise<void>;
};

const one = Buffer.alloc(32, 1).toString("base64");
const two = Buffer.alloc(32, 2).toString("base64");
const canary = "canary-of-the-mine";

/** What a store keeps of what users put in, with a codec. */
export function codecContract(harness: () => CodecHarness): void {
  const settings = { log: silentLogger, heartbeatMs: 100, deadAfterMs: 60_000 };
  const codec = encryption({ keys: { one } });
  const secret = (where: string) => ({ text: `${canary} ${where}` });

  test("nothing that users put in is readable in the store, and all of it comes back", async () => {
    const { url: store, dataDir, dump } = harness();
    const good = task<object, object, object>("good", { progress: "local" }, async (context) => {
      context.progress(secret("progress"));
      await context.step("think", () => secret("step"));
      const signal = await context.step.signal("go");
      return { got: signal, ...secret("result") };
    });
    const bad = task("bad", { attempts: 1 }, () => {
      throw new Error(`${canary} error`);
    });
    const machine = flow("machine", { version: 1 })
      .to("one", () => ({ seen: secret("state") }))
      .signal("approve")
      .to("two", () => ({ more: secret("more state") }))
      .end();
    const helper = agent("helper", async () => `${canary} answer`);
    const use = [good, bad, machine, helper];
    const declared = schedule("nightly", {
      task: good,
      pattern: "0 0 1 1 *",
      input: secret("schedule"),
    });
    await using pod = await startPod({
      ...settings,
      store,
      use,
      dataDir,
      codec,
      schedules: [declared],
    });
    await using flotilla = connect(store, { codec });

    const running = await flotilla.enqueue(good, secret("input"));
    const failing = await flotilla.enqueue(bad, null);
    const { runId } = await flotilla.runs.start(machine, secret("run input"));
    const chat = await flotilla.sessions.create("helper", {
      user: "ada",
      metadata: secret("metadata"),
    });
    const answered = await chat.ask(`${canary} question`);
    await flotilla.tasks.signal(running.taskId, "go", secret("signal"));
    await flotilla.runs.signal(runId, "approve", secret("approval"));

    expect(await flotilla.waitFor(running)).toEqual({
      got: secret("signal"),
      ...secret("result"),
    });
    await expect(flotilla.waitFor(failing)).rejects.toThrow(`${canary} error`);
    const ended = await flotilla.runs.wait(runId);
    expect(ended).toMatchObject({ more: secret("more state") });
    expect(JSON.stringify(answered)).toContain(`${canary} answer`);
    expect((await flotilla.tasks.get(running.taskId))!.payload).toEqual(secret("input"));
    expect(JSON.stringify(await flotilla.tasks.events(failing.taskId))).toContain(canary);
    expect((await flotilla.schedules.get("nightly"))!.input).toEqual(secret("schedule"));
    expect(JSON.stringify(await chat.entries())).toContain(`${canary} question`);
    expect(await flotilla.deadLetters.list({})).toMatchObject({
      tasks: [{ message: `${canary} error` }],
    });

    await flotilla.close();
    await pod.stop();
    const stored = await dump();
    expect(stored).toContain("~one:");
    expect(stored).not.toContain(canary);
  });

  test("tasks that were inserted by hand, or before there was a codec, run", async () => {
    const { url: store, run } = harness();
    const seen: string[] = [];
    const plain = task<string, string, void>("plain", {}, ({ input }) => void seen.push(input));
    await using before = connect(store);
    await before.enqueue(plain, "before");
    await run(
      (table) => `insert into ${table("task")} (name, payload) values ('plain', '"by hand"')`,
    );
    await using _pod = await startPod({ ...settings, store, use: [plain], dataDir: false, codec });
    await until("both", () => seen.length === 2);
    expect(seen.toSorted()).toEqual(["before", "by hand"]);
  });

  test("keys are rotated: what an earlier one wrote is read, and a later one writes", async () => {
    const { url: store, dump } = harness();
    const echo = task<string, string, string>("rotated", {}, ({ input }) => input);
    await using first = connect(store, { codec });
    const early = await first.enqueue(echo, "early");
    const rotated = encryption({ keys: { one, two } });
    await using pod = await startPod({
      ...settings,
      store,
      use: [echo],
      dataDir: false,
      codec: rotated,
    });
    expect(await pod.waitFor(early)).toBe("early");
    expect(await pod.waitFor(await pod.enqueue(echo, "late"))).toBe("late");
    expect(await dump()).toContain("~two:");
  });

  test("a pod without the key tries again, tells why, and fails no list", async () => {
    const { url: store } = harness();
    const echo = task<string, string, string>(
      "locked",
      { attempts: 2, backoff: { baseMs: 1 } },
      ({ input }) => input,
    );
    await using first = connect(store, { codec });
    const locked = await first.enqueue(echo, "locked");
    const said: unknown[] = [];
    const log: Logger = {
      ...silentLogger,
      error: (fields, message) => void said.push({ ...fields, message }),
    };
    const other = encryption({ keys: { two } });
    await using pod = await startPod({
      ...settings,
      log,
      store,
      use: [echo],
      dataDir: false,
      codec: other,
    });
    await expect(pod.waitFor(locked)).rejects.toMatchObject({ details: { code: "codec_failed" } });
    const { tasks } = await pod.tasks.list({ name: "locked" });
    expect(tasks).toHaveLength(1);
    expect(said).toContainEqual({
      message: "stored value not decoded",
      reason: 'there is no key "one"',
    });
    // With the key it runs. The pod that hasn't got it would fail it once more.
    await pod.stop();
    await first.tasks.retry(locked.taskId);
    await using whole = await startPod({
      ...settings,
      store,
      use: [echo],
      dataDir: false,
      codec,
    });
    expect(await whole.waitFor(locked)).toBe("locked");
  });

  test("a codec that throws, or returns no text, refuses the write, and nothing is stored", async () => {
    const { url: store } = harness();
    const broken: PayloadCodec = {
      encode: () => {
        throw new Error("no key today");
      },
      decode: (stored) => stored,
    };
    const wrong = { encode: () => 7, decode: (stored: string) => stored };
    // One that would have to be waited for gives no text either.
    const waiting = { encode: async (text: string) => text, decode: (stored: string) => stored };
    for (const each of [broken, wrong, waiting] as unknown as PayloadCodec[]) {
      await using flotilla = connect(store, { codec: each });
      await expect(flotilla.enqueue("refused", { name: canary })).rejects.toMatchObject({
        code: "codec_failed",
      });
    }
    await using flotilla = connect(store);
    expect((await flotilla.tasks.list({ name: "refused" })).tasks).toEqual([]);
  });

  test("no list is searched by values of payloads, which no statement can read", async () => {
    await using flotilla = connect(harness().url, { codec });
    const filter = { name: "mail", sinceMs: 0, payload: { to: canary } };
    await expect(flotilla.tasks.list(filter)).rejects.toMatchObject({ code: "unsupported" });
  });

  test("a codec that was exchanged fails what the other one wrote, and no list", async () => {
    const { url: store } = harness();
    const echo = task<string, string, string>(
      "exchanged",
      { attempts: 1, backoff: { baseMs: 1 } },
      ({ input }) => input,
    );
    const failing = task("failing", { attempts: 1 }, () => {
      throw new Error("boom");
    });
    const helper = agent("helper", async () => "yes");
    const settled = { ...settings, store, use: [echo, failing, helper], dataDir: false } as const;
    const first = await startPod({ ...settled, codec });
    const failed = await first.enqueue(failing, null);
    await expect(first.waitFor(failed)).rejects.toThrow("boom");
    const chat = await first.sessions.create("helper", { user: "ada", metadata: { title: "x" } });
    await chat.ask("hello");
    await first.stop();
    await using producer = connect(store, { codec });
    const written = await producer.enqueue(echo, "text");
    /** Makes something of everything, though not what it was. */
    const other: PayloadCodec = {
      encode: (text) => Buffer.from(text).toString("base64"),
      decode: (stored) => Buffer.from(stored, "base64").toString(),
    };
    for (const exchanged of [encryption({ keys: { two } }), other]) {
      await using pod = await startPod({ ...settled, codec: exchanged });
      await expect(pod.waitFor(written)).rejects.toThrow(/be decoded|JSON/);
      expect((await pod.tasks.list()).tasks.length).toBeGreaterThanOrEqual(2);
      expect(await pod.tasks.events(failed.taskId)).not.toEqual([]);
      expect((await pod.deadLetters.list()).tasks).not.toEqual([]);
      expect(await pod.sessions.list()).toMatchObject({ sessions: [] });
      const view = pod.sessions.open(chat.sessionId).view();
      await expect(view).rejects.toThrow(/be decoded|JSON/);
      expect(await pod.waitFor(await pod.enqueue(echo, "own"))).toBe("own");
      await pod.stop();
      await producer.tasks.retry(written.taskId);
    }
    await using whole = await startPod({ ...settled, codec });
    expect(await whole.waitFor(written)).toBe("text");
    const { sessions } = await whole.sessions.list();
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual([chat.sessionId]);
  });

  test("a slow codec makes its pod slow, and costs it nothing else", async () => {
    const { url: store } = harness();
    const takesMs = 20;
    const holdUp = () => {
      const endMs = systemClock.monotonic() + takesMs;
      while (systemClock.monotonic() < endMs);
    };
    const slow: PayloadCodec = {
      encode(text) {
        holdUp();
        return codec.encode(text);
      },
      decode(stored) {
        holdUp();
        return codec.decode(stored);
      },
    };
    const echo = task<number, number, number>("slow", {}, ({ input }) => input);
    await using pod = await startPod({
      ...settings,
      store,
      use: [echo],
      dataDir: false,
      codec: slow,
    });
    const all = await Promise.all(
      Array.from({ length: 20 }, async (_, at) => pod.waitFor(await pod.enqueue(echo, at))),
    );
    expect(all).toEqual(Array.from({ length: 20 }, (_, at) => at));
    const { tasks } = await pod.tasks.list({ name: "slow" });
    expect(tasks.filter(({ failures, deaths }) => failures + deaths > 0)).toEqual([]);
  });

  test("a declared schedule that is put again is unchanged", async () => {
    const { url: store } = harness();
    const nightly = task<unknown, unknown, void>("nightly-task", {}, () => {});
    const declared = schedule("again", { task: nightly, pattern: "0 0 1 1 *", input: secret("x") });
    await using flotilla = connect(store, { codec });
    const first = await flotilla.schedules.put(declared);
    expect(await flotilla.schedules.put(declared)).toEqual(first);
    const other = schedule("again", { task: nightly, pattern: "0 0 1 1 *", input: secret("y") });
    expect((await flotilla.schedules.put(other)).input).toEqual(secret("y"));
  });

  test.each([null, {}, { encode: 1, decode: 2 }])("refuses %j as a codec", (given) => {
    const options = { codec: given as unknown as PayloadCodec };
    expect(() => connect(harness().url, options)).toThrow("`encode` and `decode`");
  });
}
