import { describe, expect, test } from "vitest";
import { contextValue } from "./context.ts";
import { checkMiddleware, runAround } from "./middleware.ts";
import type { Middleware, Next, TaskContext } from "../model.ts";

const context = { name: "a", input: 1 } as TaskContext<unknown>;
const around = (middleware: Middleware[], run: (context: TaskContext<unknown>) => unknown) =>
  runAround(middleware, context, run);

describe("middleware around a run", () => {
  test("goes in order, and sees what comes back", async () => {
    const order: string[] = [];
    const layer =
      (name: string): Middleware =>
      async (_, next) => {
        order.push(`${name} in`);
        const result = await next();
        order.push(`${name} out`);
        return `${name}(${String(result)})`;
      };
    const result = await around([layer("a"), layer("b")], () => order.push("run") && "x");
    expect(result).toBe("a(b(x))");
    expect(order).toEqual(["a in", "b in", "run", "b out", "a out"]);
  });

  test("sees the error, and may pass it on, replace it or make a result of it", async () => {
    const fails = () => Promise.reject(new Error("broken"));
    const seen: unknown[] = [];
    const watches: Middleware = async (_, next) => {
      try {
        return await next();
      } catch (error) {
        seen.push((error as Error).message);
        throw error;
      }
    };
    await expect(around([watches], fails)).rejects.toThrow("broken");
    const mends: Middleware = (_, next) => next().catch(() => "mended");
    expect(await around([mends, watches], fails)).toBe("mended");
    const renames: Middleware = (_, next) => next().catch(() => Promise.reject(new Error("other")));
    await expect(around([renames, watches], fails)).rejects.toThrow("other");
    expect(seen).toEqual(["broken", "broken", "broken"]);
  });

  test("that throws before it goes on keeps the handler from running", async () => {
    let runs = 0;
    const refuses: Middleware = () => {
      throw new Error("no");
    };
    await expect(around([refuses], () => runs++)).rejects.toThrow("no");
    expect(runs).toBe(0);
  });

  test("catches a handler that throws without a promise", async () => {
    const result = around([(_, next) => next().catch((error: unknown) => error)], () => {
      throw new Error("at once");
    });
    expect(await result).toEqual(new Error("at once"));
  });

  const named = (name: string, layer: Middleware): Middleware =>
    Object.defineProperty(layer, "name", { value: name });

  test.each([
    ["never goes on", named("lazy", () => "cached"), 0, '"lazy" returned without calling `next`'],
    [
      "goes on twice",
      named("eager", async (_, next) => [await next(), await next()]),
      1,
      '"eager" called `next` twice',
    ],
    [
      "goes on twice and hides it",
      named("sly", async (_, next) => [await next(), await next().catch(() => 0)]),
      1,
      '"sly" called `next` twice',
    ],
    [
      "goes on twice and awaits neither",
      (_: unknown, next: Next) => {
        void next();
        void next();
      },
      1,
      "called `next` twice",
    ],
    [
      "doesn't wait",
      named("hasty", (_, next) => void next()),
      1,
      '"hasty" returned without waiting for `next`',
    ],
  ] as [string, Middleware, number, string][])(
    "that %s is refused, and the handler runs no second time",
    async (_, layer, expected, message) => {
      let runs = 0;
      let ended = 0;
      const run = async () => {
        runs++;
        await new Promise((resolve) => setImmediate(resolve));
        ended++;
        throw new Error("nobody listens");
      };
      const answer = around([layer], () => run().catch(() => "late"));
      await expect(answer).rejects.toMatchObject({
        code: "invalid_middleware",
        message: expect.stringContaining(message),
      });
      // What was begun has ended by now, so no handler goes on behind the attempt's back.
      expect([runs, ended]).toEqual([expected, expected]);
    },
  );

  test("that gives up on the handler ends only when the handler has", async () => {
    let release = () => {};
    let ended = false;
    const impatient: Middleware = (_, next) =>
      Promise.race([next(), Promise.reject(new Error("too slow"))]);
    const answer = around([impatient], async () => {
      await new Promise<void>((resolve) => (release = resolve));
      ended = true;
      throw new Error("nobody listens");
    });
    await new Promise((resolve) => setImmediate(resolve));
    release();
    await expect(answer).rejects.toThrow("too slow");
    expect(ended).toBe(true);
  });

  test("that goes on after its end runs nothing", async () => {
    let runs = 0;
    let late: Next | undefined;
    const stores: Middleware = (_, next) => void (late = next);
    await expect(around([stores], () => runs++)).rejects.toThrow("without calling `next`");
    await expect(late!()).rejects.toMatchObject({ code: "invalid_middleware" });
    expect(runs).toBe(0);
  });

  test.each([[{}], [[1]], [[() => 1, undefined]], [Array.from({ length: 101 }, () => () => 1)]])(
    "is refused where it isn't a list of functions",
    (given) => {
      expect(() => checkMiddleware(given)).toThrow(
        expect.objectContaining({ code: "invalid_option" }),
      );
    },
  );
});

describe("a value that middleware gives to a run", () => {
  test("is there for that run, and for no other", async () => {
    const user = contextValue<{ id: number }>("user");
    const signsIn: Middleware = (given, next) => {
      user.set(given, { id: 5 });
      return next();
    };
    expect(await around([signsIn], (given) => user.get(given).id)).toBe(5);
    const other = { name: "b" } as TaskContext<unknown>;
    expect(() => user.get(other)).toThrow('no middleware has set `user` for the task "b"');
    const same = contextValue<string>("user");
    expect(() => same.get(context)).toThrow("`user`");
  });
});
