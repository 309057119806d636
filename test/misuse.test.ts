import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import {
  agent,
  connect,
  type Flotilla,
  schedule,
  startPod,
  task,
  textOf,
  throttle,
} from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../src/base/log.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** What goes wrong in a first hour, and what is said of it. */
let folder: string;
let store: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-misuse-"));
  store = `sqlite:${join(folder, "flotilla.db")}`;
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const quiet = { log: silentLogger, dataDir: false } as const;
const greet = task("greet", {}, async () => "hello");

describe("waiting", () => {
  test("for what `enqueue` gives before it was awaited is refused with a sentence", async () => {
    await using flotilla = connect(store, quiet);
    const enqueued = flotilla.enqueue(greet, null);
    for (const wait of [flotilla.waitFor, flotilla.tasks.settled]) {
      await expect(wait(enqueued as never)).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining("got a promise: await what `enqueue` gives first"),
      });
      await expect(wait({ id: 1 } as never)).rejects.toMatchObject({ code: "invalid_option" });
    }
    await enqueued;
  });

  test("says why, where it takes longer than it may", async () => {
    await using flotilla = connect(store, quiet);
    const why = async (taskId: string) => {
      const waited = flotilla.waitFor(taskId, { timeoutMs: 50 });
      return waited.then(String, (error: Error) => error.message);
    };
    const { taskId } = await flotilla.enqueue("greet", null);
    expect(await why(taskId)).toMatch(
      /didn't finish within 50 ms: no pod that is up works on "greet"$/,
    );
    const later = await flotilla.enqueue("greet", null, { delayMs: 60_000 });
    expect(await why(later.taskId)).toMatch(/it isn't due before \d{4}-.*Z, and no pod/);
    const after = await flotilla.enqueue("greet", null, { after: [taskId] });
    expect(await why(after.taskId)).toMatch(/it waits for other tasks/);
    await flotilla.tasks.pause("greet");
    expect(await why(taskId)).toMatch(/"greet" is paused/);
    await flotilla.tasks.resume("greet");
    const slow = task("greet", {}, () => new Promise(() => {}));
    await using pod = await startPod({ store, use: [slow], ...quiet, shutdownMs: 0, graceMs: 0 });
    await expect.poll(async () => (await flotilla.tasks.get(taskId))!.status).toBe("claimed");
    expect(await why(taskId)).toContain(`it runs on pod ${pod.podId}, attempt 1`);
  });

  test("says what holds up a task that pods work on: a failure, a limit, a throttle", async () => {
    const backoff = { baseMs: 60_000 };
    const flaky = task("flaky", { backoff }, () => Promise.reject(new Error("not today")));
    const endless = () => new Promise<never>(() => {});
    const limited = task("limited", { concurrency: { limit: 1 } }, endless);
    const api = throttle("api", { min: 1, max: 1, initial: 1 });
    const throttled = task("throttled", { throttle: api }, () => api.run(endless));
    const use = [flaky, limited, throttled];
    await using pod = await startPod({ store, use, ...quiet, shutdownMs: 0, graceMs: 0 });
    const why = async (taskId: string) => {
      const waited = pod.waitFor(taskId, { timeoutMs: 50 });
      return waited.then(String, (error: Error) => error.message);
    };
    const failed = await pod.enqueue(flaky, null);
    const [, second] = await pod.enqueueMany(limited, [null, null]);
    const [, last] = await pod.enqueueMany(throttled, [null, null]);
    for (const [taskId, reason] of [
      [failed.taskId, /it isn't due before \d{4}-.*Z after it failed: not today$/],
      [second!.taskId, /the limit of key\/limited\/ is reached$/],
      [last!.taskId, /the throttle api has no permit, and \d wait before it$/],
    ] as const) {
      await expect.poll(() => why(taskId)).toMatch(reason);
    }
  });
});

describe("enqueueing a name that no pod which is up works on", () => {
  test("is told to the log, once in a while", async () => {
    const warned: string[] = [];
    const log = { ...silentLogger, warn: (_: object, text: string) => void warned.push(text) };
    await using flotilla = connect(store, { ...quiet, log });
    await flotilla.enqueue("gret", null);
    await flotilla.enqueue("gret", null);
    await expect.poll(() => warned).toHaveLength(1);
    expect(warned[0]).toBe('no pod that is up works on "gret": its tasks wait until one does');
    expect(await flotilla.tasks.noWorker(["gret"])).toEqual(["gret"]);
    await using _ = await startPod({ store, use: [greet], ...quiet });
    await using another = connect(store, { ...quiet, log });
    await another.waitFor(await another.enqueue(greet, null));
    expect(await another.tasks.noWorker(["greet", "gret"])).toEqual(["gret"]);
    expect(warned).toHaveLength(1);
  });

  test.each<[string, (flotilla: Flotilla) => Promise<unknown>]>([
    ["enqueueMany", (flotilla) => flotilla.enqueueMany("gret", [1, 2])],
    [
      "enqueueEach",
      (flotilla) =>
        flotilla.enqueueEach([
          { task: "greet", input: null },
          { task: "gret", input: null },
        ]),
    ],
    [
      "enqueueGraph",
      (flotilla) =>
        flotilla.enqueueGraph([
          { ref: "a", task: "greet", input: null },
          { ref: "b", task: "gret", input: null, after: ["a"] },
        ]),
    ],
    [
      "runs.start",
      (flotilla) =>
        flotilla.runs.start(
          { name: "gret", input: undefined, output: undefined, isFlow: true },
          null,
        ),
    ],
  ])("is told by %s too, and of no other name", async (_, enqueue) => {
    const warned: string[] = [];
    const log = { ...silentLogger, warn: (_: object, text: string) => void warned.push(text) };
    await using _pod = await startPod({ store, use: [greet], ...quiet });
    await using flotilla = connect(store, { ...quiet, log });
    await enqueue(flotilla);
    await expect.poll(() => warned).toHaveLength(1);
    expect(warned[0]).toMatch(/^no pod that is up works on "gret"/);
  });

  test("is a warning of the process where there is no log", async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => {
      // Node warns of this and that, once in each process.
      if (warning.name === "FlotillaWarning") warnings.push(warning);
    };
    process.on("warning", onWarning);
    try {
      await using flotilla = connect(store, { dataDir: false });
      await flotilla.enqueue("gret", null);
      await expect.poll(() => warnings.map(String)).toHaveLength(1);
      expect(warnings[0]!.message).toMatch(/^no pod that is up works on "gret"/);
    } finally {
      process.off("warning", onWarning);
    }
  });
});

describe("a task", () => {
  test("with a function where its options go is refused with a sentence", () => {
    expect(() => task("greet", (async () => "hello") as never)).toThrow(
      'task "greet": the function comes third, as in `task("greet", {}, async ({ input }) => …)`',
    );
  });

  test.each([
    ["a Map", new Map([["a", 1]])],
    ["a function", { log() {} }],
  ])("that returns %s fails with a sentence, at once", async (_, value) => {
    const odd = task("odd", {}, async () => value as never);
    await using pod = await startPod({ store, use: [odd], ...quiet });
    const { taskId } = await pod.enqueue(odd, null);
    const ended = await pod.tasks.settled(taskId);
    expect(ended).toMatchObject({
      status: "failed",
      error: { message: expect.stringMatching(/^the result of "odd" (is|has) a (Map|function)/) },
    });
  });
});

describe("a word of another queue", () => {
  const hello = task("hello");
  const cron = "* * * * *";
  const withCode = "`attempts` is given with the code, as in `.handle(";
  const bySchedule = "a schedule says when, as in `schedule(";

  test.each<[string, string, (flotilla: Flotilla) => unknown]>([
    ["task", "did you mean `attempts`?", () => task("x", { retries: 3 } as never, () => 1)],
    ["contract", withCode, () => task("x", { retries: 3 } as never)],
    ["contract", withCode, () => task("x", { attempts: 3 } as never)],
    ["handler", "did you mean `attempts`?", () => hello.handle({ retries: 3 } as never, () => 1)],
    ["handler", "did you mean `slots`?", () => hello.handle({ concurrency: 3 } as never, () => 1)],
    ["task", bySchedule, () => task("x", { cron } as never)],
    ["schedule", "did you mean `pattern`?", () => schedule("x", { task: greet, cron } as never)],
    ["enqueue", "did you mean `delayMs`?", (to) => to.enqueue("x", null, { delay: 5 } as never)],
    ["enqueue", bySchedule, (to) => to.enqueue("x", null, { cron } as never)],
    ["pod", "did you mean `slots`?", () => startPod({ store, concurrency: 5 } as never)],
  ])("in the options of a %s is answered: %s", async (_, meant, act) => {
    await using flotilla = connect(store, quiet);
    const acting = Promise.resolve(flotilla).then(act);
    await expect(acting).rejects.toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(meant),
    });
  });
});

describe("a promise that a handler leaves behind and that rejects", () => {
  test("is logged with its task, and the pod goes on", async () => {
    const errors: [object, string][] = [];
    const error = (details: object, text: string) => void errors.push([details, text]);
    const log = { ...silentLogger, error };
    const careless = task("careless", {}, async () => {
      void Promise.reject(new Error("left behind"));
      return "done";
    });
    await using pod = await startPod({ ...quiet, store, use: [careless, greet], log });
    const enqueued = await pod.enqueue(careless, null);
    expect(await pod.waitFor(enqueued)).toBe("done");
    await expect.poll(() => errors).toHaveLength(1);
    expect(errors[0]).toEqual([
      expect.objectContaining({ task: enqueued.taskId, name: "careless", error: "left behind" }),
      "unhandled rejection in a handler or agent",
    ]);
    expect(await pod.waitFor(await pod.enqueue(greet, null))).toBe("hello");
  });

  test("is logged with the turn where an agent leaves it, and the next turn is answered", async () => {
    const errors: [object, string][] = [];
    const error = (details: object, text: string) => void errors.push([details, text]);
    const log = { ...silentLogger, error };
    const careless = agent("careless", async function* () {
      void Promise.reject(new Error("left behind"));
      yield "hello";
    });
    await using pod = await startPod({ ...quiet, store, use: [careless], log });
    const chat = await pod.sessions.create(careless, { sessionId: "first", user: "ada" });
    expect(textOf(await chat.ask("one"))).toBe("hello");
    await expect.poll(() => errors).toHaveLength(1);
    expect(errors[0]).toEqual([
      expect.objectContaining({ session: "first", agent: "careless", error: "left behind" }),
      "unhandled rejection in a handler or agent",
    ]);
    expect(textOf(await chat.ask("two"))).toBe("hello");
  });

  /** Runs a program with a pod that does something, and would go on for long. */
  const runPod = (options: string, act: string) => {
    const program = `
      import { startPod, task } from "flotilla";
      const careless = task("careless", {}, async () => void Promise.reject(new Error("left behind")));
      const log = Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, () => {}]));
      const pod = await startPod({ store: ${JSON.stringify(store)}, use: [careless], log, dataDir: false, ${options} });
      setTimeout(() => process.exit(99), 120_000);
      ${act}`;
    const flags = ["--conditions=flotilla:source", "--input-type=module", "-e", program];
    return spawnSync(process.execPath, flags, { cwd: root, encoding: "utf8" });
  };
  const asHandler = `await pod.waitFor(await pod.enqueue(careless, null));
      setTimeout(() => process.exit(0), 200);`;
  const asProgram = `void Promise.reject(new Error("the program's own"));
      setTimeout(() => process.exit(0), 200);`;

  test.each([
    [
      "ends the process where the config says so",
      `onUnhandledRejection: "exit"`,
      asHandler,
      1,
      /Error: left behind/,
    ],
    ["ends no process otherwise", "", asHandler, 0, /^$/],
    [
      "is Node's to deal with where it isn't a handler's",
      "",
      asProgram,
      1,
      /Error: the program's own/,
    ],
  ])("%s", (_, options, act, code, said) => {
    const { status, stderr } = runPod(options, act);
    expect({ status, stderr }).toEqual({ status: code, stderr: expect.stringMatching(said) });
  });

  test("can be dealt with in two ways, and in no other", async () => {
    const unknown = startPod({ store, use: [greet], onUnhandledRejection: "ignore" as never });
    await expect(unknown).rejects.toMatchObject({ code: "invalid_option" });
  });
});
