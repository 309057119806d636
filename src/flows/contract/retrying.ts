import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, retryAfter, snooze } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";
import { cancel, unrecoverable } from "../decide/thrown.ts";

/** Things that a transition may throw, none of which may get in the way of trying again. */
const thrown: [string, () => unknown][] = [
  ["undefined", () => undefined],
  ["null", () => null],
  ["a text that databases can't store", () => "nul \u0000 and \ud800"],
  ["an error of ten million characters", () => new Error("x".repeat(10_000_000))],
  [
    "an object whose getters throw",
    () => ({
      get message(): string {
        throw new Error("not even that");
      },
      get retryAfterMs(): number {
        throw new Error("not even that");
      },
    }),
  ],
  [
    "an error whose stack throws",
    () =>
      Object.defineProperty(new Error("hidden"), "stack", {
        get() {
          throw new Error("no stack");
        },
      }),
  ],
  [
    "something that throws when it is read",
    () => {
      const { proxy, revoke } = Proxy.revocable({}, {});
      revoke();
      return proxy;
    },
  ],
];

/** What a transition may return that can't be stored, and the code for it. */
const unstorable: [string, () => unknown, string][] = [
  ["too large", () => "x".repeat(3_000), "payload_too_large"],
  ["too deep", () => nested(200), "payload_too_deep"],
  ["not storable", () => "lone \ud800", "payload_not_storable"],
];

const soon = { baseMs: 0 };

/** What becomes of transitions that fail, on every store. */
export function retryingContract(kind: StoreKind): void {
  describe(`trying transitions again on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    const errorsOf = async (runId: string) =>
      (await runs.history(runId)).filter(({ type }) => type === "error");

    test("whatever is thrown, synchronously or later, is tried again", async () => {
      const left = thrown.flatMap(([, make]) => [make, make]);
      const tries = left.length + 1;
      const throwing = flow("throwing", { version: 1, attempts: tries, backoff: soon })
        .to("one", ({ attempt }) => {
          const make = left[attempt - 1];
          if (make === undefined) return { attempt };
          if (attempt % 2 === 1) throw make();
          return Promise.resolve().then(() => {
            throw make();
          });
        })
        .end();
      await runs.pod("pod-1", [throwing]);
      const run = await runs.start(throwing, null);
      expect(await runs.ended(run)).toMatchObject({ output: { attempt: tries } });
      const errors = await errorsOf(run.runId);
      expect(errors.map(({ attempt }) => attempt)).toEqual(left.map((_, at) => at + 1));
      for (const { detail } of errors) {
        expect(detail).toMatchObject({ error: { message: expect.any(String) } });
      }
    });

    test("attempts and their backoff belong to the transition, and begin again with the next", async () => {
      const backoff = { baseMs: 4, factor: 2, maxMs: 10, jitter: 0 };
      const seen: string[] = [];
      const failing = flow("failing", { version: 1, attempts: 4, backoff })
        .to("one", ({ attempt }) => {
          seen.push(`one ${attempt}`);
          if (attempt < 4) throw new Error("not yet");
        })
        .to("two", { attempts: 2, backoff: { baseMs: 1, jitter: 0 } }, ({ attempt }) => {
          seen.push(`two ${attempt}`);
          throw new Error("never");
        })
        .finally(({ attempt, outcome }) => void seen.push(`finally ${attempt} ${outcome.type}`))
        .end();
      await runs.pod("pod-1", [failing]);
      const run = await runs.start(failing, null);
      expect(await runs.ended(run)).toMatchObject({
        status: "failed",
        error: { code: "handler_failed", message: "never" },
      });
      expect(seen).toEqual([
        "one 1",
        "one 2",
        "one 3",
        "one 4",
        "two 1",
        "two 2",
        "finally 1 failed",
      ]);
      const waits = (await errorsOf(run.runId)).map(({ atMs, startedAtMs, detail, ...rest }) => {
        const { retryAtMs } = detail as { retryAtMs: number | null };
        expect(startedAtMs).toBeLessThanOrEqual(atMs);
        return [rest.transition, retryAtMs === null ? null : retryAtMs - startedAtMs!];
      });
      // Moments pass while it runs and is stored, but the rest is the backoff.
      const atLeast = [4, 8, 10, 1];
      expect(waits).toHaveLength(5);
      for (const [at, ms] of atLeast.entries()) expect(waits[at]![1]).toBeGreaterThanOrEqual(ms);
      expect(waits.map(([transition]) => transition)).toEqual(["one", "one", "one", "two", "two"]);
      expect(waits[4]![1]).toBeNull();
    });

    test("failed attempts and the time of the next are there after a restart", async () => {
      const attempts: number[] = [];
      const failing = flow("failing", {
        version: 1,
        attempts: 3,
        backoff: { baseMs: 5_000, jitter: 0 },
      })
        .to("one", ({ attempt }) => {
          attempts.push(attempt);
          throw new Error(`failed ${attempt}`);
        })
        .end();
      const first = await runs.pod("pod-1", [failing]);
      const run = await runs.start(failing, null);
      const waiting = await runs.doing(run, "retrying");
      expect(waiting).toMatchObject({ at: "one", attempt: 2, error: { message: "failed 1" } });
      const { startedAtMs } = (await errorsOf(run.runId))[0]!;
      expect((waiting.doing as { atMs: number }).atMs - startedAtMs!).toBeGreaterThanOrEqual(5_000);
      await runs.stop(first);
      await runs.pod("pod-2", [failing]);
      await runs.pass(3_000);
      expect(attempts).toEqual([1]);
      await runs.pass(3_000);
      await runs.until("the second", () => attempts.length === 2);
      await runs.doing(run, "retrying");
      await runs.pass(11_000);
      expect(await runs.ended(run)).toMatchObject({ status: "failed" });
      expect(attempts).toEqual([1, 2, 3]);
    });

    test("one whose error demands more time before the next attempt gets it", async () => {
      const asking = flow("asking", { version: 1, backoff: soon })
        .to("one", ({ attempt }) => {
          if (attempt === 1) throw retryAfter(5_000, "slow down");
        })
        .end();
      await runs.pod("pod-1", [asking]);
      const run = await runs.start(asking, null);
      const { doing } = await runs.doing(run, "retrying");
      const [error] = await errorsOf(run.runId);
      const atMs = (doing as { atMs: number }).atMs;
      expect(atMs - error!.startedAtMs!).toBeGreaterThanOrEqual(5_000);
      await runs.pass(5_500);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
    });

    test("a snooze is no attempt, and is noted with its reason", async () => {
      const seen: number[] = [];
      const snoozing = flow("snoozing", { version: 1, attempts: 1, backoff: soon })
        .to("one", ({ attempt }) => {
          seen.push(attempt);
          if (seen.length < 3) throw snooze(1, "nothing to do yet");
        })
        .end();
      await runs.pod("pod-1", [snoozing]);
      const run = await runs.start(snoozing, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(seen).toEqual([1, 1, 1]);
      const [, park] = await runs.history(run.runId);
      expect(park).toMatchObject({ type: "park", detail: { message: "nothing to do yet" } });
    });

    test.each([
      ["abort", () => abort("no use"), "failed", { code: "aborted", message: "no use" }],
      [
        "unrecoverable",
        () => unrecoverable("the disk is gone"),
        "failed",
        { code: "aborted", by: "system" },
      ],
      [
        "unrecoverable by the user",
        () => unrecoverable("no such image", { by: "user" }),
        "failed",
        { code: "aborted", by: "user" },
      ],
      [
        "cancel",
        () => cancel("not wanted"),
        "cancelled",
        { code: "cancelled", message: "not wanted" },
      ],
    ] as const)(
      "%s ends the run at once, and its finalizers run first",
      async (_, make, status, error) => {
        const calls: string[] = [];
        const ending = flow("ending", { version: 1 })
          .to("one", () => ({ one: 1 }))
          .to("two", () => {
            calls.push("two");
            throw make();
          })
          .to("three", () => void calls.push("three"))
          .finally(({ outcome, state }) => void calls.push(`${outcome.type} ${state.one}`))
          .end();
        await runs.pod("pod-1", [ending]);
        const run = await runs.start(ending, null);
        expect(await runs.ended(run)).toMatchObject({ status, state: { one: 1 }, error });
        expect(calls).toEqual(["two", `${status} 1`]);
      },
    );

    test("an attempt that takes too long is aborted, and tried again", async () => {
      const reasons: unknown[] = [];
      const slow = flow("slow", { version: 1, backoff: soon })
        .to("quick", () => {})
        .to("one", { timeoutMs: 60 }, ({ attempt, signal }) => {
          if (attempt > 1) return { attempt };
          return new Promise<never>((_, reject) => {
            signal.addEventListener("abort", () => {
              reasons.push((signal.reason as { code: string }).code);
              reject(signal.reason as Error);
            });
          });
        })
        .end();
      await runs.pod("pod-1", [slow]);
      const run = await runs.start(slow, null);
      await runs.seen(run, "the second transition", ({ at }) => at === "one");
      expect(await runs.ended(run)).toMatchObject({ output: { attempt: 2 } });
      expect(reasons).toEqual(["timeout"]);
      expect(await errorsOf(run.runId)).toMatchObject([
        { detail: { error: { code: "timeout", message: "the attempt took longer than 60 ms" } } },
      ]);
    });

    test("one that ignores its signal is abandoned, and what it returns later is dropped", async () => {
      const late: ((value: { late: true }) => void)[] = [];
      const signals: (() => AbortSignal)[] = [];
      const calls: string[] = [];
      const hanging = flow("hanging", { version: 1, attempts: 2, backoff: soon, timeoutMs: 40 })
        .to("one", (context) => {
          signals.push(() => context.signal);
          return new Promise<{ late: true }>((resolve) => late.push(resolve));
        })
        .finally(({ outcome, signal }) => {
          calls.push(`${outcome.type} ${signal.aborted}`);
        })
        .end();
      const pod = await runs.pod("pod-1", [hanging], { graceMs: 20 });
      const run = await runs.start(hanging, null);
      await runs.until("the second attempt", () => late.length === 2);
      late[0]!({ late: true });
      expect(await runs.ended(run)).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "timeout" },
      });
      late[1]!({ late: true });
      await runs.pass(100);
      expect(await runs.get(run.runId)).toMatchObject({ status: "failed", state: {} });
      expect(calls).toEqual(["failed false"]);
      // It is told that it is over whenever it looks, though others run by now.
      expect(signals.map((signal) => signal().aborted)).toEqual([true, true]);
      expect(pod.running).toBe(0);
    });

    test("what it returns within its grace counts", async () => {
      const slow = flow("slow", { version: 1, timeoutMs: 40 })
        .to("one", ({ signal }) => {
          return new Promise<{ one: string }>((resolve) => {
            signal.addEventListener("abort", () => resolve({ one: "in time" }));
          });
        })
        .to("two", ({ signal }) => ({ stopped: signal.aborted }))
        .end();
      await runs.pod("pod-1", [slow]);
      const run = await runs.start(slow, null);
      expect(await runs.ended(run)).toMatchObject({ output: { one: "in time", stopped: false } });
    });

    test("finalizers have attempts of their own, and one that fails for good gives way to the next", async () => {
      const calls: string[] = [];
      const ending = flow("ending", { version: 1, backoff: soon })
        .to("one", () => ({ one: 1 }))
        .finally("first", { attempts: 2 }, ({ attempt }) => {
          calls.push(`first ${attempt}`);
          throw new Error("never");
        })
        .finally("second", () => {
          calls.push("second");
          throw cancel("no");
        })
        .finally("third", () => void calls.push("third"))
        .end();
      await runs.pod("pod-1", [ending]);
      const run = await runs.start(ending, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed", output: { one: 1 } });
      expect(calls).toEqual(["first 1", "first 2", "second", "third"]);
    });

    test.each(unstorable)(
      "a state that is %s fails the run without trying again, and nothing of it is stored",
      async (_, make, code) => {
        let calls = 0;
        const big = flow("big", { version: 1, backoff: soon })
          .to("one", () => ({ one: 1 }))
          .to("two", () => {
            calls++;
            return { big: make() };
          })
          .end();
        await runs.pod("pod-1", [big], { maxResultBytes: 2_000 });
        const run = await runs.start(big, null);
        expect(await runs.ended(run)).toMatchObject({
          status: "failed",
          state: { one: 1 },
          error: { code },
        });
        expect(calls).toBe(1);
      },
    );
  });
}

function nested(depth: number): unknown {
  let made: unknown = 1;
  for (let at = 0; at < depth; at++) made = [made];
  return made;
}
