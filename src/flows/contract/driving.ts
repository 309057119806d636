import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { flow } from "../flow.ts";
import { codeOf, openRuns, type RunsHarness } from "./harness.ts";

/** What a run does that nothing gets in the way of, on every store. */
export function drivingContract(kind: StoreKind): void {
  describe(`running flows on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    test("transitions run in the order in which they were declared, each once, and their states merge", async () => {
      const calls: string[] = [];
      const order = flow<{ n: number }>("order", { version: 1 })
        .to("first", ({ input }) => {
          calls.push("first");
          return { n: input.n, kept: "first" };
        })
        .to("second", async ({ state }) => {
          calls.push("second");
          return { n: state.n + 1, at: new Date(0), left: undefined };
        })
        .to("nothing", () => {
          calls.push("nothing");
        })
        .to("third", ({ state }) => {
          calls.push("third");
          return { seen: state };
        })
        .end();
      await runs.pod("pod-1", [order]);
      const run = await runs.start(order, { n: 1 });
      const state = { n: 2, kept: "first", at: "1970-01-01T00:00:00.000Z" };
      expect(await runs.outcome(runs.wait(run))).toEqual({ ...state, seen: state });
      expect(calls).toEqual(["first", "second", "nothing", "third"]);
      expect(await runs.noted(run)).toEqual([
        "start",
        "complete first",
        "complete second",
        "complete nothing",
        "complete third",
        "finish",
      ]);
      expect(await runs.get(run.runId)).toMatchObject({
        status: "completed",
        version: 1,
        at: null,
        doing: null,
        state: { ...state, seen: state },
      });
    });

    test("is held to its input and its output by their schemas, in both of their forms", async () => {
      const seen: unknown[] = [];
      const input = z.object({ to: z.string().trim() });
      const output = z.object({ sent: z.coerce.string() });
      const mail = flow("mail", { version: 1, input, output })
        .to("send", ({ input: given }) => {
          seen.push(given);
          return { sent: given.to, more: "isn't in the output" };
        })
        .end();
      await runs.pod("pod-1", [mail]);
      const run = await runs.start(mail, { to: " ada " });
      expect(await runs.outcome(runs.wait(run))).toEqual({ sent: "ada" });
      expect(seen).toEqual([{ to: "ada" }]);
      expect(await codeOf(runs.start(mail, { to: 3 } as never))).toBe("invalid_input");
    });

    test("an input that its schema refuses fails the run before anything has run, but finalizers", async () => {
      const calls: string[] = [];
      const mail = flow("mail", { version: 1, input: z.object({ to: z.string() }) })
        .to("send", () => void calls.push("send"))
        .finally("tidy", ({ outcome }) => void calls.push(`tidy ${outcome.type}`))
        .end();
      await runs.pod("pod-1", [mail]);
      const run = await runs.start("mail", { to: 3 });
      expect(await runs.ended(run)).toMatchObject({
        status: "failed",
        error: { code: "invalid_input" },
      });
      expect(calls).toEqual([]);
      expect(await runs.noted(run)).toEqual(["start", "error send", "error tidy", "finish"]);
    });

    test("a state that the output refuses is the error of the last transition", async () => {
      const output = z.object({ sum: z.number().max(3) });
      const add = flow("add", { version: 1, output, attempts: 2, backoff: { baseMs: 0 } })
        .to("sum", () => ({ sum: 4 }))
        .end();
      await runs.pod("pod-1", [add]);
      const run = await runs.start(add, null);
      expect(await runs.ended(run)).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "invalid_output" },
      });
      expect(await runs.noted(run)).toEqual(["start", "error sum", "error sum", "finish"]);
    });

    test("a handoff ends the run with what it gives, and skips to its finalizers", async () => {
      const calls: string[] = [];
      const check = flow("check", { version: 1, output: z.object({ path: z.string() }) })
        .to("look", ({ handoff }) => {
          calls.push("look");
          return handoff({ path: "/there" });
        })
        .to("work", () => {
          calls.push("work");
          return { path: "/made" };
        })
        .finally(({ outcome }) => void calls.push(JSON.stringify(outcome)))
        .end();
      await runs.pod("pod-1", [check]);
      const run = await runs.start(check, null);
      expect(await runs.outcome(runs.wait(run))).toEqual({ path: "/there" });
      expect(calls).toEqual(["look", '{"type":"completed","output":{"path":"/there"}}']);
      expect(await runs.noted(run)).toEqual([
        "start",
        "complete look",
        "complete finally",
        "finish",
      ]);
    });

    test("what initializers make is in every transition, and made once for each claim", async () => {
      let made = 0;
      const seen: unknown[] = [];
      const env = flow("env", { version: 1, backoff: { baseMs: 0 } })
        .init(({ input }) => ({ connection: ++made, input }))
        .init(async () => ({ second: true }))
        .to("one", ({ env: given }) => void seen.push(["one", given]))
        .to("two", ({ env: given, attempt }) => {
          seen.push(["two", given]);
          if (attempt === 1) throw new Error("once");
        })
        .finally(({ env: given }) => void seen.push(["finally", given]))
        .end();
      await runs.pod("pod-1", [env]);
      const run = await runs.start(env, "in");
      expect(await runs.ended(run)).toMatchObject({ status: "completed", state: {} });
      const given = (connection: number) => ({ connection, input: "in", second: true });
      expect(seen).toEqual([
        ["one", given(1)],
        ["two", given(1)],
        ["two", given(2)],
        ["finally", given(2)],
      ]);
    });

    test("a transition isn't called where its pod begins to stop while initializers run", async () => {
      const begun = Promise.withResolvers<void>();
      const isStopping = Promise.withResolvers<void>();
      const calls: string[] = [];
      const slow = flow("slow", { version: 1 })
        .init(async () => {
          begun.resolve();
          await isStopping.promise;
          return {};
        })
        .to("work", () => void calls.push("work"))
        .end();
      const pod = await runs.pod("pod-1", [slow]);
      const { runId } = await runs.start(slow, null);
      await runs.outcome(begun.promise);
      const stopped = pod.stop({ waitMs: 60_000 });
      isStopping.resolve();
      await runs.outcome(stopped);
      expect(calls).toEqual([]);
      expect(await runs.noted(runId)).toEqual([]);
      await runs.pod("pod-2", [slow]);
      expect(await runs.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["work"]);
    });

    test("an initializer that throws, or takes too long, is an attempt of the transition that it was for", async () => {
      let tries = 0;
      const calls: string[] = [];
      const env = flow("env", { version: 1, backoff: { baseMs: 0 }, timeoutMs: 50 })
        .init(async () => {
          tries++;
          if (tries === 1) throw new Error("no connection");
          if (tries === 2) await new Promise(() => {});
        })
        .to("one", ({ attempt }) => void calls.push(`one ${attempt}`))
        .end();
      await runs.pod("pod-1", [env], { graceMs: 20 });
      const run = await runs.start(env, null);
      await runs.until("the second", () => tries === 2);
      await runs.pass(100);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["one 3"]);
      const errors = (await runs.history(run.runId)).filter(({ type }) => type === "error");
      expect(errors).toMatchObject([
        { transition: "one", attempt: 1, detail: { error: { message: "no connection" } } },
        { transition: "one", attempt: 2, detail: { error: { code: "timeout" } } },
      ]);
    });

    test("interceptors run around every transition and finalizer, the first outermost", async () => {
      const calls: string[] = [];
      const around =
        (name: string) =>
        async ({ transition }: { transition: string }, next: () => Promise<unknown>) => {
          calls.push(`${name} before ${transition}`);
          const returned = await next();
          calls.push(`${name} after ${transition}`);
          return returned;
        };
      const wrapped = flow("wrapped", { version: 1, interceptors: [around("a"), around("b")] })
        .to("one", () => {
          calls.push("one");
          return { one: 1 };
        })
        .finally(() => void calls.push("finally"))
        .end();
      await runs.pod("pod-1", [wrapped]);
      const run = await runs.start(wrapped, null);
      expect(await runs.ended(run)).toMatchObject({ output: { one: 1 } });
      const of = (name: string) => [
        `a before ${name}`,
        `b before ${name}`,
        name,
        `b after ${name}`,
        `a after ${name}`,
      ];
      expect(calls).toEqual([...of("one"), ...of("finally")]);
    });

    test.each([
      ["calls `next` twice", (next: () => Promise<unknown>) => Promise.all([next(), next()])],
      ["doesn't call `next`", () => ({ one: "made up" })],
      ["doesn't wait for `next`", (next: () => Promise<unknown>) => void next()],
    ])("an interceptor that %s fails the attempt, and nothing runs twice", async (_, misuse) => {
      let calls = 0;
      let misused = false;
      const interceptor = (context: { attempt: number }, next: () => Promise<unknown>) => {
        if (context.attempt > 1) return next();
        misused = true;
        return misuse(next);
      };
      const wrapped = flow("wrapped", {
        version: 1,
        interceptors: [interceptor],
        backoff: { baseMs: 0 },
      })
        .to("one", async () => {
          calls++;
          await Promise.resolve();
          return { one: calls };
        })
        .end();
      await runs.pod("pod-1", [wrapped]);
      const run = await runs.start(wrapped, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(misused).toBe(true);
      expect(calls).toBeLessThanOrEqual(2);
      const [, error] = await runs.history(run.runId);
      expect(error).toMatchObject({
        type: "error",
        detail: { error: { code: "invalid_middleware" } },
      });
    });

    test("what an interceptor throws counts as thrown by the transition, and it may turn what is returned", async () => {
      const interceptor = async (context: { attempt: number }, next: () => Promise<unknown>) => {
        const returned = await next();
        if (context.attempt === 1) throw new Error("not yet");
        return { ...(returned as object), turned: true };
      };
      const wrapped = flow("wrapped", {
        version: 1,
        interceptors: [interceptor],
        backoff: { baseMs: 0 },
      })
        .to("one", () => ({ one: 1 }))
        .end();
      await runs.pod("pod-1", [wrapped]);
      const run = await runs.start(wrapped, null);
      expect(await runs.ended(run)).toMatchObject({ output: { one: 1, turned: true } });
      expect(await runs.noted(run)).toEqual(["start", "error one", "complete one", "finish"]);
    });

    test("can be started by its name, by an enqueue, and by a row that was inserted by SQL", async () => {
      const echo = flow("echo", { version: 3 })
        .to("one", async ({ input, runId }) => {
          const known = (await runs.get(runId))?.doing?.type ?? null;
          return { input, known };
        })
        .end();
      const byName = await runs.start("echo", 1);
      const { taskId: byEnqueue } = await runs.queue.enqueue("echo", 2);
      const byHand = runs.queue.ids.next();
      await runs.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload) values (${byHand}, 'echo', '3')`,
      ]);
      await runs.pod("pod-1", [echo]);
      for (const [runId, input] of [
        [byName.runId, 1],
        [byEnqueue, 2],
        [byHand, 3],
      ] as const) {
        expect(await runs.ended(runId)).toMatchObject({
          version: 3,
          output: { input, known: "running" },
        });
      }
    });

    test("can be started in a transaction of the caller's, and isn't there unless that commits", async () => {
      const echo = flow("echo", { version: 1, queue: { name: "q", limit: 1 } })
        .to("one", ({ input }) => ({ input }))
        .end();
      const caller = await runs.queue.store.caller?.();
      if (!caller) return;
      await runs.pod("pod-1", [echo]);
      await caller.begin();
      const vanished = await runs.start(echo, "vanished", { tx: caller.handle });
      await caller.exec("rollback");
      await caller.begin();
      const kept = await runs.start(echo, "kept", { tx: caller.handle });
      expect(await runs.get(kept.runId)).toBeUndefined();
      await caller.exec("commit");
      await caller.close();
      expect(await runs.ended(kept)).toMatchObject({ output: { input: "kept" } });
      expect(await runs.get(vanished.runId)).toBeUndefined();
    });

    test("a task can't be started as a run, nor can a caller set the attempts of a run", async () => {
      const echo = flow("echo", { version: 1 })
        .to("one", () => {})
        .end();
      const task = { name: "mail", input: undefined, output: undefined };
      expect(await codeOf(runs.start(task as never, 1))).toBe("invalid_option");
      expect(await codeOf(runs.start(echo, 1, { attempts: 2 } as never))).toBe("invalid_option");
    });

    test("its position can be read at any moment: what runs, since when, at which attempt", async () => {
      const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
      const slow = flow("slow", { version: 1, backoff: { baseMs: 0 } })
        .to("one", () => ({ one: 1 }))
        .to("two", ({ attempt }) => {
          if (attempt === 1) throw new Error("once");
          return finished;
        })
        .end();
      await runs.pod("pod-1", [slow]);
      const run = await runs.start(slow, null);
      const view = await runs.seen(run, "the second attempt", ({ at, attempt, doing }) => {
        return at === "two" && attempt === 2 && doing?.type === "running";
      });
      expect(view).toMatchObject({
        flow: "slow",
        state: { one: 1 },
        error: { message: "once" },
        doing: { podId: "pod-1", sinceMs: expect.any(Number) },
      });
      finish();
      await runs.ended(run);
    });
  });
}
