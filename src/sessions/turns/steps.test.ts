import { describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { agent } from "../agents/agent.ts";
import type { AgentOptions } from "../agents/options.ts";
import type { AgentContext } from "../agents/spec.ts";
import {
  createRunnerHarness,
  replyText,
  type RunnerHarnessOptions,
} from "../contract/turns-harness.ts";
import type { Command } from "../conversation/command.ts";
import type { LiveChunks } from "../runner.ts";
import { createAnswer } from "./answer.ts";
import { turnStepLimits } from "./steps.ts";

type Say = (context: AgentContext, ledger: Ledger) => AsyncGenerator<string>;

/** What has happened outside. A call waits until the test lets it end. */
type Ledger = {
  readonly begun: string[];
  /** Begins, and returns once the test lets it. */
  call(name: string): Promise<string>;
};

/** An agent whose calls of the world outside end when the test says so. */
function stepping(say: Say, options: AgentOptions = {}, more: RunnerHarnessOptions = {}) {
  const clock = movableClock();
  const begun: string[] = [];
  const open = new Map<string, (() => void)[]>();
  const ledger: Ledger = {
    begun,
    call(name) {
      begun.push(name);
      return new Promise((resolve) => {
        open.set(name, [...(open.get(name) ?? []), () => resolve(`${name} is done`)]);
      });
    },
  };
  const spec = agent("helper", options, (context) => say(context, ledger));
  const scene = createRunnerHarness(spec, { clock, ...more });
  const told = (type: Command["type"]) => scene.told.filter((each) => each.type === type);
  return {
    scene,
    clock,
    begun,
    told,
    /** Waits until a call has begun, and lets it end. */
    async end(name: string) {
      await until(`${name} begins`, async () => {
        await clock.advance(0);
        return (open.get(name)?.length ?? 0) > 0;
      });
      for (const each of open.get(name)!) each();
      open.delete(name);
      await clock.advance(1);
    },
    begins: (name: string) =>
      until(`${name} begins`, async () => {
        await clock.advance(0);
        return begun.includes(name);
      }),
    ended: () =>
      until("the turn ends", async () => {
        await clock.advance(10);
        return scene.runner.running().length === 0;
      }),
    text: (attempt: number) =>
      scene.live
        .filter((each) => each.attempt === attempt)
        .map(({ chunks }) => chunks.map(({ delta }) => (delta as string) ?? "").join("")),
  };
}

const twoSteps: Say = async function* ({ step }, { call }) {
  yield `${await step("search", () => call("search"))}. `;
  yield `${await step("order", () => call("order"))}. `;
};

describe("the steps of a turn", () => {
  test("are stored as they end, and a first attempt reads none", async () => {
    const { scene, end, told, ended } = stepping(twoSteps);
    await scene.begin();
    await end("search");
    expect(await scene.steps()).toEqual({ search: "search is done" });
    await end("order");
    await ended();
    expect(replyText(await scene.reply())).toBe("search is done. order is done. ");
    expect(told("turn_steps")).toMatchObject([
      { epoch: 1, attempt: 1, rows: [{ key: "search", seq: 1, kind: "done", forgets: false }] },
      { epoch: 1, attempt: 1, rows: [{ key: "order", seq: 2 }] },
    ]);
    expect(scene.stepReads).toBe(0);
  });

  test("aren't run again by the next attempt, which reads them once", async () => {
    const { scene, end, begins, begun, ended } = stepping(twoSteps);
    await scene.begin();
    await end("search");
    await begins("order");
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await until("it is asked again", () => begun.length === 3);
    await end("order");
    await ended();
    expect(begun).toEqual(["search", "order", "order"]);
    expect(scene.stepReads).toBe(1);
    expect(replyText(await scene.reply())).toBe("search is done. order is done. ");
  });

  test.each([
    { what: "that attempt", epoch: 1, attempt: 2 },
    { what: "a later attempt", epoch: 1, attempt: 3 },
    { what: "a later turn", epoch: 2, attempt: 1 },
  ])("begin none where $what has ended while the pod was paused", async ({ epoch, attempt }) => {
    const { scene, begun, told, ended } = stepping(twoSteps);
    await scene.store([{}]);
    await scene.endElsewhere({ epoch, attempt });
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await ended();
    expect(begun).toEqual([]);
    expect(told("turn_finished")).toEqual([]);
  });

  test("begin in an attempt that follows one which had stored none", async () => {
    const { scene, end, begun, ended } = stepping(twoSteps);
    await scene.store([{}]);
    await scene.endElsewhere({ epoch: 1, attempt: 1 });
    await scene.begin({ epoch: 1, attempt: 2 });
    await end("search");
    await end("order");
    await ended();
    expect(begun).toEqual(["search", "order"]);
  });

  test("of an attempt that was replaced are refused, and end it", async () => {
    const errors: unknown[] = [];
    const { scene, end, begun, told, clock } = stepping(
      async function* ({ step }, { call }) {
        yield "words";
        await step("search", () => call("search")).catch((error: unknown) => errors.push(error));
        await step("order", () => call("order")).catch((error: unknown) => errors.push(error));
      },
      {},
      {
        // It learns of the other only from the answer to its step.
        owner: (command) =>
          command.type === "turn_steps" ? { lastSeq: 1, done: false } : { lastSeq: 1, done: true },
      },
    );
    await scene.begin();
    await end("search");
    await until("the second is refused", () => errors.length === 2);
    await clock.advance(10);
    expect(errors).toMatchObject([{ code: "claim_lost" }, { code: "cancelled" }]);
    expect(begun).toEqual(["search"]);
    expect(told("turn_finished")).toEqual([]);
    expect(scene.runner.running()).toEqual([]);
  });

  test("that end while others are stored are stored together", async () => {
    const free = Promise.withResolvers<void>();
    const { scene, end, told, ended } = stepping(
      async function* ({ step }, { call }) {
        const names = ["a", "b", "c"];
        yield (await Promise.all(names.map((name) => step(name, () => call(name))))).join();
      },
      {},
      {
        async owner(command) {
          if (command.type === "turn_steps") await free.promise;
          return undefined as never;
        },
      },
    );
    await scene.begin();
    for (const name of ["b", "a", "c"]) await end(name);
    free.resolve();
    await ended();
    const stored = told("turn_steps").map(
      (each) => "rows" in each && each.rows.map(({ key }) => key),
    );
    expect(stored).toEqual([["b"], ["a", "c"]]);
  });

  test("are sent again until the owner answers, and stored once", async () => {
    let lost = 0;
    const { scene, end, told, ended, clock, begun } = stepping(
      twoSteps,
      {},
      {
        async owner(command) {
          if (command.type === "turn_steps" && ++lost <= 2) {
            throw new FlotillaError("unknown_outcome", "the answer was lost");
          }
          return undefined as never;
        },
      },
    );
    await scene.begin();
    await end("search");
    await until("it is sent again", async () => {
      await clock.advance(500);
      return lost > 2;
    });
    await end("order");
    await ended();
    const [first, again] = told("turn_steps");
    expect(again).toEqual(first);
    expect(begun).toEqual(["search", "order"]);
  });

  test("are answered within one attempt where the agent is tried again", async () => {
    let tries = 0;
    const { scene, end, begun, ended, clock } = stepping(
      async function* ({ step }, { call }) {
        const found = await step("search", () => call("search"));
        if (++tries === 1) throw new Error("not now");
        yield found;
      },
      { retries: 2, backoff: { baseMs: 100, factor: 2, maxMs: 100 } },
    );
    await scene.begin();
    await end("search");
    await clock.advance(1_000);
    await ended();
    expect(begun).toEqual(["search"]);
    expect(tries).toBe(2);
    expect(await scene.reply()).toMatchObject({ outcome: "completed" });
  });

  test("have the same key in every attempt, and no other turn has it", async () => {
    const keys: string[] = [];
    const { scene, ended } = stepping(async function* ({ step }) {
      await step("pay", ({ key }) => {
        keys.push(key);
        throw new Error("not now");
      }).catch(() => {});
      yield "x";
    });
    for (const [epoch, attempt] of [
      [1, 1],
      [1, 2],
      [2, 1],
    ] as const) {
      await scene.begin({ epoch, attempt });
      await ended();
    }
    expect(keys[0]).toBe(keys[1]);
    expect(keys[2]).not.toBe(keys[0]);
    expect(keys[0]).toBe(`turn/${scene.sessionId}/1/pay`);
  });

  test("are bounded", async () => {
    const { scene, ended } = stepping(async function* ({ step }) {
      const { maxSteps } = turnStepLimits;
      for (let at = 0; at < maxSteps; at++) await step("a", () => at);
      yield await step("a", () => 1).then(String, (error: FlotillaError) => error.code);
    });
    await scene.begin();
    await ended();
    expect(replyText(await scene.reply())).toBe("steps_full");
  });

  test("can't be stored in a transaction of the caller, which the owner has no part in", async () => {
    const { scene, ended } = stepping(async function* ({ step }) {
      const failed = step("pay", ({ store }) => store({}, 1));
      yield await failed.then(String, (error: FlotillaError) => error.code);
    });
    await scene.begin();
    await ended();
    expect(replyText(await scene.reply())).toBe("unsupported");
  });

  test("large ones too are answered from the journal", async () => {
    const large = "x".repeat(100_000);
    let runs = 0;
    const { scene, ended, begins } = stepping(async function* ({ step, attempt }, { call }) {
      const got = await step("large", () => {
        runs++;
        return large;
      });
      if (attempt === 1) await call("hang");
      yield String(got === large);
    });
    await scene.begin();
    await begins("hang");
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await ended();
    expect([runs, replyText(await scene.reply())]).toEqual([1, "true"]);
  });
});

describe("a turn that starts over behind its stored steps", () => {
  test("sends nothing before all that was stored, and that at once", async () => {
    const { scene, end, begins, clock, text, ended } = stepping(async function* (
      { step },
      { call },
    ) {
      for (const name of ["a", "b", "c"]) {
        yield `${await step(name, () => call(name))}. `;
        yield `behind ${name}. `;
      }
    });
    await scene.begin();
    await end("a");
    await end("b");
    await begins("c");
    const seen = text(1).join("");
    expect(seen).toBe("a is done. behind a. b is done. behind b. ");
    scene.live.length = 0;
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await clock.advance(50);
    expect(scene.live).toEqual([]);
    expect(scene.runner.snapshot(scene.sessionId)).toBeUndefined();
    await clock.advance(100);
    expect(text(2)).toEqual([seen]);
    expect(scene.live).toMatchObject([{ epoch: 1, attempt: 2, index: 0 }]);
    await end("c");
    await ended();
    expect(text(2).join("")).toBe(`${seen}c is done. behind c. `);
  });

  test("sends words of its own once all that is stored was asked for", async () => {
    const { scene, end, clock, text, begins } = stepping(async function* ({ step }, { call }) {
      yield `${await step("search", () => call("search"))}. `;
      yield "And so on. ";
      await call("words");
    });
    await scene.begin();
    await end("search");
    await begins("words");
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await clock.advance(150);
    expect(text(2)).toEqual(["search is done. And so on. "]);
  });

  test("doesn't keep its words to itself where it no longer asks for a stored step", async () => {
    const { scene, end, clock, text, begins } = stepping(async function* (
      { step, attempt },
      { call },
    ) {
      if (attempt === 1) await step("old", () => call("old"));
      yield "Words. ";
      await call("more");
    });
    await scene.begin();
    await end("old");
    await begins("more");
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await clock.advance(4_000);
    expect(text(2)).toEqual([]);
    await clock.advance(1_100);
    expect(text(2)).toEqual(["Words. "]);
  });

  test("sends all at its end where nothing is left to run", async () => {
    const { scene, end, begins, text, ended } = stepping(async function* (
      { step, attempt },
      { call },
    ) {
      yield `${await step("search", () => call("search"))}. `;
      if (attempt === 1) await call("hang");
    });
    await scene.begin();
    await end("search");
    await begins("hang");
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await ended();
    expect(text(2).join("")).toBe("search is done. ");
    expect(replyText(await scene.reply())).toBe("search is done. ");
  });

  test("doesn't say that it waits for a permit, which would take words back", async () => {
    const live: LiveChunks[] = [];
    const answer = createAnswer({
      name: { sessionId: "s", epoch: 1, attempt: 2 },
      messageId: "m",
      maxBytes: 1_000,
      clock: movableClock(),
      live: (chunks) => void live.push(chunks),
      held: true,
    });
    answer.reportWait({ ahead: 3 });
    expect(live).toEqual([]);
    answer.release();
    answer.reportWait({ ahead: 3 });
    expect(live).toMatchObject([{ index: 0, chunks: [{ transient: true }] }]);
  });
});

describe("a pod that stops", () => {
  test("hands a turn over at its next step: what runs is stored, and nothing else begins", async () => {
    const { scene, end, begun, told, begins } = stepping(twoSteps);
    await scene.begin();
    await begins("search");
    const stopped = scene.runner.stop({ waitMs: 60_000 });
    await end("search");
    await stopped;
    expect(await scene.steps()).toEqual({ search: "search is done" });
    expect(begun).toEqual(["search"]);
    expect(told("turn_released")).toEqual([{ type: "turn_released", epoch: 1, attempt: 1 }]);
    expect(told("turn_finished")).toEqual([]);
    const order = scene.told.map(({ type }) => type);
    expect(order.indexOf("turn_steps")).toBeLessThan(order.indexOf("turn_released"));
  });

  test("waits for steps that run beside the one that may not begin", async () => {
    const { scene, end, told, begins, clock } = stepping(async function* ({ step }, { call }) {
      const second = step("a", () => call("a")).then(() => step("b", () => call("b")));
      yield (await Promise.all([second, step("long", () => call("long"))])).join();
    });
    await scene.begin();
    await begins("long");
    const stopped = scene.runner.stop({ waitMs: 60_000 });
    await end("a");
    await clock.advance(5_000);
    expect(told("turn_released")).toEqual([]);
    await end("long");
    await stopped;
    expect(await scene.steps()).toEqual({ a: "a is done", long: "long is done" });
    expect(told("turn_released")).toHaveLength(1);
  });

  test("hands over a turn whose code goes on all the same, and stores no answer of it", async () => {
    const { scene, end, told, begins } = stepping(async function* ({ step }, { call }) {
      await step("a", () => call("a"));
      const said = await step("b", () => call("b")).catch(() => "it failed");
      yield said;
    });
    await scene.begin();
    await begins("a");
    const stopped = scene.runner.stop({ waitMs: 60_000 });
    await end("a");
    await stopped;
    expect(told("turn_finished")).toEqual([]);
    expect(told("turn_released")).toHaveLength(1);
  });

  test("stores no step whose inner step it has refused, whatever its code makes of that", async () => {
    const { scene, end, begins, told } = stepping(async function* ({ step }, { call }) {
      yield await step("tool", async (tool) => {
        await tool.step("a", () => call("a"));
        return tool.step("b", () => call("b")).catch(() => "the tool has failed");
      });
    });
    await scene.begin();
    await begins("a");
    const stopped = scene.runner.stop({ waitMs: 60_000 });
    await end("a");
    await stopped;
    expect(await scene.steps()).toEqual({ "tool/a": "a is done" });
    expect(told("turn_released")).toHaveLength(1);
  });

  test("lets a turn end that has no further step", async () => {
    const { scene, end, told, begins } = stepping(async function* ({ step }, { call }) {
      yield await step("a", () => call("a"));
      yield await call("words");
    });
    await scene.begin();
    await begins("a");
    const stopped = scene.runner.stop({ waitMs: 60_000 });
    await end("a");
    await end("words");
    await stopped;
    expect(told("turn_finished")).toMatchObject([{ reply: { outcome: "completed" } }]);
    expect(told("turn_released")).toEqual([]);
  });
});

describe("an agent that is silent", () => {
  test("has time while a step runs, and none more behind it", async () => {
    const { scene, end, clock, begins, ended } = stepping(
      async function* ({ step }, { call }) {
        yield "words";
        yield await step("long", () => call("long"));
        await call("silence");
      },
      { idleTimeoutMs: 2_000 },
    );
    await scene.begin();
    await begins("long");
    for (let waited = 0; waited < 30_000; waited += 1_000) await clock.advance(1_000);
    await end("long");
    await begins("silence");
    await clock.advance(1_000);
    expect(scene.told.filter(({ type }) => type === "turn_finished")).toEqual([]);
    await clock.advance(1_500);
    await ended();
    expect(await scene.reply()).toMatchObject({ outcome: "cut", error: { code: "agent_silent" } });
  });
});

describe("the answer of a turn that has stored a step", () => {
  test("is stored as far as it came, however short it is", async () => {
    const { scene, end, begins, clock, told } = stepping(twoSteps);
    await scene.begin();
    await end("search");
    await begins("order");
    await clock.advance(2_100);
    expect(told("checkpoint")).toHaveLength(1);
    expect(JSON.stringify(told("checkpoint"))).toContain("search is done");
  });

  test("is left to its owner where the next attempt is stopped before it has begun", async () => {
    const { scene, begun, clock, told } = stepping(twoSteps);
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true, stopping: true });
    await clock.advance(100);
    expect([begun, told("turn_finished"), scene.runner.running()]).toEqual([[], [], []]);
  });
});

describe("a turn that is stopped", () => {
  test("begins no further step, and stores what it has", async () => {
    const { scene, end, begun, begins, ended } = stepping(async function* ({ step }, { call }) {
      yield `${await step("a", () => call("a"))}. `;
      yield await step("b", async ({ step: within }) => {
        await call("b");
        return within("c", () => call("c"));
      });
    });
    await scene.begin();
    await end("a");
    await begins("b");
    scene.runner.abort({ sessionId: scene.sessionId, epoch: 1, attempt: 1 }, { keep: true });
    await end("b");
    await ended();
    expect(begun).toEqual(["a", "b"]);
    const reply = await scene.reply();
    expect([reply.outcome, replyText(reply)]).toEqual(["stopped", "a is done. "]);
  });
});
