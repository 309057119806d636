import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { sql, table } from "../../store/sql.ts";
import { storeSteps } from "../../tasks/sql/steps.ts";
import { type Flow, flow } from "../flow.ts";
import { openRuns, type RunsHarness, soon } from "./harness.ts";

const journal = table("step_journal");

/** What is promised of steps in the transitions of runs, on every store. */
export function runStepsContract(kind: StoreKind): void {
  describe(`steps of runs on ${kind.name}`, () => {
    let runs: RunsHarness;
    const calls: string[] = [];
    beforeEach(async () => {
      runs = await openRuns(kind);
      calls.length = 0;
    });
    afterEach(() => runs.close());

    const called = <Result>(name: string, result?: Result): Result => {
      calls.push(name);
      return result as Result;
    };
    const rows = (runId: string) =>
      runs.database.read(
        sql`select part, key, token from ${journal} where owner_id = ${runId} order by part, seq`,
      );
    const keys = async (runId: string) =>
      (await rows(runId)).map((row) => `${row["part"]}: ${row["key"]}`);
    const failing = (times: number) => {
      let failures = 0;
      return () => {
        if (failures++ < times) throw new Error("not yet");
      };
    };

    test("run once, and answer in a later attempt at their transition, which forgets them when it is stored", async () => {
      const fail = failing(1);
      const seen: string[][] = [];
      const made = flow("order", { version: 1, backoff: soon })
        .to("reserve", async ({ step, runId }) => {
          const at = await step("at", () => called("at", new Date(0)));
          const list = await step.forEach("each", ["a", "b"], { key: (item) => item }, (item) =>
            called(item, item),
          );
          const sum = await step.loop("sum", 0, async (sum, round) => {
            const next = await round.step("add", () => called("add", sum + 1));
            return next === 2 ? round.done(next) : next;
          });
          const outer = await step("outer", async (inner) =>
            inner.step("inner", () => called("inner", 1)),
          );
          seen.push(await keys(runId));
          fail();
          return { at, list, sum, outer };
        })
        .to("ship", async ({ step, runId }) => {
          await step("send", ({ key }) => called(key));
          seen.push(await keys(runId));
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({
        status: "completed",
        output: { at: "1970-01-01T00:00:00.000Z", list: ["a", "b"], sum: 2, outer: 1 },
      });
      expect(calls).toEqual(["at", "a", "b", "add", "add", "inner", `${run.runId}/ship/send`]);
      const reserved = ["at", "each[a]", "each[b]", "sum", "outer"].map((key) => `reserve: ${key}`);
      expect(seen).toEqual([reserved, reserved, ["ship: send"]]);
      expect(await keys(run.runId)).toEqual([]);
    });

    test("cost no read in a first claim, and one in an attempt that follows another", async () => {
      let reads = 0;
      const database: Database = {
        ...runs.database,
        read(statement, options) {
          if (JSON.stringify(statement).includes("input_hash")) reads++;
          return runs.database.read(statement, options);
        },
      };
      const counts: number[] = [];
      const fail = failing(1);
      const made = flow("order", { version: 1, backoff: soon })
        .to("one", async ({ step }) => {
          for (const name of ["a", "b", "c"]) await step(name, () => name);
          counts.push(reads);
          fail();
        })
        .end();
      await runs.pod("pod-1", [made], { database });
      await runs.ended(await runs.start(made, null));
      expect(counts).toEqual([0, 1]);
    });

    test("count attempts from the last that is stored, which the history shows", async () => {
      const attempts: number[] = [];
      const made = flow("order", { version: 1, backoff: soon, attempts: 2 })
        .to("one", async ({ step, attempt }) => {
          attempts.push(attempt);
          for (let at = 1; at <= 4; at++) {
            await step(`part ${at}`, () => called(`part ${at}`));
            if (calls.length === at && attempts.length === at) throw new Error("dies often");
          }
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["part 1", "part 2", "part 3", "part 4"]);
      expect(attempts).toEqual([1, 2, 2, 2, 2]);
      const history = await runs.history(run.runId);
      const errors = history.filter(({ type }) => type === "error");
      expect(errors.map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1]);
      expect(await runs.noted(run)).toEqual([
        "start",
        "stepped one",
        "error one",
        "stepped one",
        "error one",
        "stepped one",
        "error one",
        "stepped one",
        "error one",
        "complete one",
        "finish",
      ]);
    });

    test("that store nothing more don't keep a transition from failing", async () => {
      const made = flow("order", { version: 1, backoff: soon, attempts: 3 })
        .to("one", async ({ step }) => {
          await step("only", () => called("only"));
          called("attempt");
          throw new Error("always");
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({ status: "failed" });
      expect(calls).toEqual(["only", "attempt", "attempt", "attempt"]);
      // A run that is resumed goes on behind them.
      expect(await keys(run.runId)).toEqual(["one: only"]);
      await runs.resume(run.runId);
      await runs.until("the next attempt", () => calls.length > 4);
      expect(calls[4]).toBe("attempt");
    });

    test("survive any number of deaths of their pods, as long as they get on", async () => {
      const ends: (() => void)[] = [];
      const made = flow("order", { version: 1 })
        .to("one", async ({ step }) => {
          for (let at = 0; at < 8; at++) await step(`part ${at}`, () => called(`part ${at}`));
          await new Promise<void>((resolve) => ends.push(resolve));
        })
        .end();
      const stuck = flow("order", { version: 1 })
        .to("one", async ({ step }) => {
          await step(`part ${calls.length}`, () => called(`part ${calls.length}`));
          await new Promise<void>(() => {});
        })
        .end();
      const run = await runs.start(made, null);
      for (let at = 0; at < 6; at++) {
        const pod = await runs.pod(`pod-${at}`, [stuck as Flow], { pollMs: 1_000_000 });
        await runs.until("its step", async () => (await rows(run.runId)).length === at + 1);
        expect(await runs.recoverFrom(`pod-${at}`)).toBe(1);
        expect(await runs.get(run.runId)).toMatchObject({ deaths: 1, attempt: 1 });
        void pod.stop({ waitMs: 0 });
      }
      await runs.pod("pod-last", [made]);
      await runs.until("the last part", () => ends.length > 0);
      ends.forEach((end) => end());
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toHaveLength(8);
    });

    test("of a pod that another has claimed the run from are refused, whatever the transition does", async () => {
      const gates: (() => void)[] = [];
      const errors: unknown[] = [];
      const made = flow("order", { version: 1 })
        .to("one", async ({ step }) => {
          await step("first", () => called("first"));
          await new Promise<void>((resolve) => gates.push(resolve));
          const late = await step("late", () => called("late", "late")).catch((error: unknown) => {
            errors.push((error as FlotillaError).code);
            return "caught";
          });
          return { late };
        })
        .to("two", () => void called("two"))
        .end();
      const first = await runs.pod("pod-1", [made], { pollMs: 1_000_000 });
      const run = await runs.start(made, null);
      await runs.until("the first step", () => gates.length === 1);
      await runs.recoverFrom("pod-1");
      await runs.pod("pod-2", [made]);
      await runs.until("it goes on elsewhere", () => gates.length === 2);
      gates[0]!();
      await runs.until("the first is done with it", () => first.running === 0);
      expect(errors).toEqual(["claim_lost"]);
      gates[1]!();
      expect(await runs.ended(run)).toMatchObject({ output: { late: "late" } });
      expect(calls).toEqual(["first", "late", "late", "two"]);
    });

    test("of an abandoned attempt are refused, also while the same claim has gone on", async () => {
      let store: (() => Promise<unknown>) | undefined;
      const made = flow("order", { version: 1 })
        .to("one", async ({ step }) => {
          await step("first", () => called("first"));
          store = () => step("late", () => called("late"));
          await new Promise<void>(() => {});
        })
        .finally(({ step }) => step("tidy", () => called("tidy")) as Promise<never>)
        .end();
      await runs.pod("pod-1", [made], { graceMs: 20, pollMs: 20 });
      const run = await runs.start(made, null);
      await runs.until("it hangs", () => store !== undefined);
      await runs.cancel(run.runId);
      expect(await runs.ended(run)).toMatchObject({ status: "cancelled" });
      await expect(store!()).rejects.toMatchObject({ code: "closed" });
      expect(calls).toEqual(["first", "tidy"]);
      // The finalizer's are forgotten. Those of the transition are kept for when it is resumed.
      expect(await keys(run.runId)).toEqual(["one: first"]);
    });

    test("of a transition that is over are refused, though its claim goes on", async () => {
      let reached = false;
      const made = flow("order", { version: 1 })
        .to("one", async ({ step }) => void (await step("first", () => called("first"))))
        .to("two", async ({ step }) => {
          await step("second", () => called("second"));
          reached = true;
          await new Promise<void>(() => {});
        })
        .end();
      await runs.pod("pod-1", [made], { graceMs: 20 });
      const { runId } = await runs.start(made, null);
      await runs.until("the second transition", () => reached);
      const row = await runs.queue.row(runId);
      const [token, seq] = [Number(row["claim_token"]), Number(row["run_seq"])];
      const late = { key: "late", seq: 9, kind: "done", inputHash: null, value: "1" } as const;
      const send = (part: string, runSeq: number) => {
        const step = { ...late, tookMs: 0, forgets: false };
        return runs.database.write(
          storeSteps([{ taskId: runId, token, step, run: { part, seq: runSeq } }]),
        );
      };
      for (const [part, at] of [
        ["one", seq - 1],
        ["two", seq - 1],
      ] as const) {
        expect((await send(part, at))[0]).toEqual([]);
      }
      expect(await keys(runId)).toEqual(["two: second"]);
      expect((await send("two", seq))[0]).toHaveLength(1);
    });

    test("are stored once, however often the answer of the store is lost", async () => {
      let sent = 0;
      const forgetful: Database = {
        ...runs.database,
        async write(statements, options) {
          const tables = await runs.database.write(statements, options);
          if (!JSON.stringify(statements).includes("given.took_ms") || sent++ % 2 === 1)
            return tables;
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
      const made = flow("order", { version: 1, backoff: soon })
        .to("one", async ({ step }) => {
          for (const name of ["a", "b", "c"]) await step(name, () => called(name));
        })
        .end();
      await runs.pod("pod-1", [made], { database: forgetful });
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(sent).toBeGreaterThan(3);
      expect(calls).toEqual(["a", "b", "c"]);
      expect(await runs.noted(run)).toEqual(["start", "stepped one", "complete one", "finish"]);
    });

    test("begin no more on a pod that stops: the run goes on behind the last of them, uncounted", async () => {
      let reached = () => {};
      const gate = new Promise<void>((resolve) => (reached = resolve));
      let go = () => {};
      const release = new Promise<void>((resolve) => (go = resolve));
      const made = flow("order", { version: 1, attempts: 1 })
        .to("one", async ({ step }) => {
          await step("first", async () => {
            called("first");
            reached();
            await release;
          });
          await step("second", () => called("second"));
        })
        .end();
      const first = await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      await gate;
      const stopping = runs.stop(first, 60_000);
      go();
      await stopping;
      expect(calls).toEqual(["first"]);
      expect(await runs.get(run.runId)).toMatchObject({ status: "open", attempt: 1 });
      await runs.pod("pod-2", [made]);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["first", "second"]);
    });

    test("begin no more once the run is cancelled, and what has ended is kept", async () => {
      const gates: (() => void)[] = [];
      let aborted = false;
      const made = flow("order", { version: 1 })
        .to("one", async ({ step, signal }) => {
          signal.addEventListener("abort", () => (aborted = true));
          await step("first", async () => {
            called("first");
            await new Promise<void>((resolve) => gates.push(resolve));
          });
          await step("second", () => called("second")).catch(() => {});
          return { done: true };
        })
        .end();
      await runs.pod("pod-1", [made], { pollMs: 20 });
      const run = await runs.start(made, null);
      await runs.until("the first step", () => gates.length > 0);
      await runs.cancel(run.runId);
      await runs.until("the cancel", () => aborted);
      gates[0]!();
      expect(await runs.ended(run)).toMatchObject({ status: "cancelled" });
      expect(calls).toEqual(["first"]);
      expect(await keys(run.runId)).toEqual(["one: first"]);
    });

    test("at most once aren't called again, and are looked for", async () => {
      const made = flow("order", { version: 1, backoff: soon, attempts: 2 })
        .to("one", async ({ step }) => {
          await step("charge", { once: { look: () => called("look", "found") } }, () => {
            called("charge");
            throw new Error("did it happen?");
          });
        })
        .end();
      await runs.pod("pod-1", [made]);
      expect(await runs.ended(await runs.start(made, null))).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["charge", "look"]);
    });

    test("that aborted fail the run, and run again when it is resumed", async () => {
      let broken = true;
      const made = flow("order", { version: 1, backoff: soon })
        .to("one", async ({ step }) => {
          await step("good", () => called("good"));
          await step("bad", () => {
            called("bad");
            if (broken) throw abort("no such user");
          });
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({ status: "failed", error: { code: "aborted" } });
      broken = false;
      await runs.resume(run.runId);
      await runs.until("its end", async () => (await runs.view(run)).status === "completed");
      expect(calls).toEqual(["good", "bad", "bad"]);
    });

    test("whose input has changed set the run aside, until they are forgotten", async () => {
      let input = 1;
      const fail = failing(1);
      const made = flow("order", { version: 1, backoff: soon })
        .to("one", async ({ step }) => {
          await step("before", () => called("before"));
          await step("read", { input }, () => called("read")).catch(() => {});
          input = 2;
          fail();
          return { one: 1 };
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      const { doing } = await runs.doing(run, "set_aside");
      expect(doing).toMatchObject({
        reason: "step_changed",
        message: expect.stringContaining('step "read" is stored for another input'),
      });
      await expect(runs.resume(run.runId, { forget: ["no"] })).rejects.toMatchObject({
        code: "not_found",
      });
      await runs.resume(run.runId, { forget: ["read"] });
      expect(await runs.ended(run)).toMatchObject({ status: "completed", output: { one: 1 } });
      expect(calls).toEqual(["before", "read", "read"]);
    });

    test("that a higher version has stored keep lower versions from the run", async () => {
      const fail = failing(1);
      const build = (version: number) =>
        flow("order", { version, backoff: { baseMs: 60_000, jitter: 0 } })
          .to("zero", () => {})
          .to("one", async ({ step }) => {
            await step("by", () => called(`version ${version}`));
            if (version === 2) fail();
          })
          .end();
      const [one, two] = [build(1), build(2)];
      // It stands at the second transition, by version 1.
      const held = flow("order", { version: 1 })
        .to("zero", () => {})
        .to("one", () => new Promise<void>(() => {}))
        .end();
      const first = await runs.pod("pod-1", [held as Flow], { pollMs: 1_000_000 });
      const run = await runs.start(one, null);
      await runs.seen(run, "its transition", ({ at }) => at === "one");
      await runs.recoverFrom("pod-1");
      void first.stop({ waitMs: 0 });
      const second = await runs.pod("pod-2", [two], { pollMs: 1_000_000 });
      await runs.doing(run, "retrying");
      expect(await keys(run.runId)).toEqual(["one: by"]);
      expect(await runs.view(run)).toMatchObject({ version: 2 });
      await runs.stop(second);
      await runs.pod("pod-3", [one]);
      await runs.pass(120_000);
      expect(calls).toEqual(["version 2"]);
      await runs.pod("pod-4", [two]);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["version 2"]);
    });

    test("are found again, under the same key, when their transition has another name", async () => {
      const fail = failing(1);
      const given: string[] = [];
      const run = async ({ step }: { step: any }) => {
        await step("a", ({ key }: { key: string }) => called("a", given.push(key)));
        await step("b", ({ key }: { key: string }) => {
          given.push(key);
          fail();
          return called("b");
        });
      };
      const slow = { baseMs: 60_000, jitter: 0 } as const;
      const before = flow("order", { version: 1, backoff: slow }).to("old", run).end();
      const after = flow("order", { version: 2, backoff: slow, renamed: { old: "new" } })
        .to("new", run)
        .end();
      const first = await runs.pod("pod-1", [before]);
      const { runId } = await runs.start(before, null);
      await runs.doing(runId, "retrying");
      await runs.stop(first);
      await runs.pod("pod-2", [after]);
      await runs.pass(60_000);
      expect(await runs.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["a", "b"]);
      expect(given).toEqual([`${runId}/old/a`, `${runId}/old/b`, `${runId}/old/b`]);
      expect(await keys(runId)).toEqual([]);
    });

    test("are not for functions that only plan, and don't wait", async () => {
      const errors: unknown[] = [];
      const made = flow("order", { version: 1, attempts: 1 })
        .to("waits", async ({ step }) => {
          const waits = step as unknown as Record<string, (...given: unknown[]) => Promise<void>>;
          for (const wait of ["sleep", "signal", "children"]) {
            await waits[wait]!("some", 1).catch((error: FlotillaError) =>
              errors.push([error.code, error.message]),
            );
          }
        })
        .sleep("plans", (context) => {
          const { step } = context as unknown as { step: unknown };
          return step ? 1 : 2;
        })
        .end();
      await runs.pod("pod-1", [made]);
      const ended = await runs.ended(await runs.start(made, null));
      expect(ended).toMatchObject({
        status: "failed",
        error: { message: expect.stringContaining('"plans" only plans') },
      });
      expect(errors).toHaveLength(3);
      expect(errors[0]).toEqual([
        "invalid_option",
        expect.stringContaining("a flow has `.sleep`, `.signal` and `.children`"),
      ]);
    });

    test.skipIf(!kind.callers)(
      "are stored in a transaction of the function, exactly once",
      async () => {
        const caller = await runs.queue.store.caller!();
        await caller.exec("create table if not exists effects (body text)");
        await caller.exec("delete from effects");
        let attempts = 0;
        const made = flow("order", { version: 1, backoff: soon, attempts: 3 })
          .to("one", async ({ step }) => {
            attempts++;
            const seat = await step("seat", async ({ store }) => {
              called("seat");
              await caller.begin();
              await caller.exec("insert into effects values ('1A')");
              await store(caller.handle, { seat: "1A" });
              await caller.exec(calls.length === 1 ? "rollback" : "commit");
              throw new Error("the answer to the commit was lost");
            });
            if (attempts < 4) throw new Error("once more");
            return { seat };
          })
          .end();
        await runs.pod("pod-1", [made]);
        const run = await runs.start(made, null);
        expect(await runs.ended(run)).toMatchObject({ output: { seat: { seat: "1A" } } });
        // The first was rolled back. Attempts count from the second, which was committed.
        expect([calls, attempts]).toEqual([["seat", "seat"], 4]);
        expect(await caller.all("select body from effects")).toHaveLength(1);
        await caller.close();
      },
    );

    test("go with their run", async () => {
      const made = flow("order", { version: 1, attempts: 1 })
        .to("one", async ({ step }) => {
          await step("kept", () => called("kept"));
          throw new Error("fails");
        })
        .end();
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      await runs.ended(run);
      expect(await keys(run.runId)).toHaveLength(1);
      await runs.pass(100_000);
      await runs.queue.prune({ olderThanMs: 60_000 });
      expect(await runs.get(run.runId)).toBeUndefined();
      expect(await keys(run.runId)).toEqual([]);
    });
  });
}
