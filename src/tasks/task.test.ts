import { describe, expect, test } from "vitest";
import { z } from "zod";
import { task } from "./task.ts";

const refused = (message: string | RegExp) =>
  expect.objectContaining({
    code: "invalid_option",
    message:
      typeof message === "string"
        ? expect.stringContaining(message)
        : expect.stringMatching(message),
  });

describe("naming a task", () => {
  test.each(["mail", "Mail.v2", "a:b/c-d_e", "0", "x".repeat(200)])("takes %s", (name) => {
    expect(task(name).name).toBe(name);
  });
  test.each(["", " ", "a b", "-a", ".a", "é", "x".repeat(201), "a\n", 5, undefined, null])(
    "refuses %j",
    (name) => {
      expect(() => task(name as string)).toThrow(refused("a task's name is 1 to 200"));
    },
  );
});

describe("a contract", () => {
  test("carries no code, and makes handlers with defaults", () => {
    const input = z.object({ to: z.string() });
    const mail = task("mail", { input });
    expect(mail).not.toHaveProperty("run");
    const handler = mail.handle(() => 1);
    expect(handler).toMatchObject({
      name: "mail",
      input,
      options: { attempts: 3, timeoutMs: 900_000, backoff: {} },
    });
  });

  test("refuses options that belong to the handler, and names those that it takes", () => {
    // @ts-expect-error a contract has no attempts
    expect(() => task("mail", { attempts: 3 })).toThrow(refused("unknown option `attempts`"));
  });

  test("refuses an input or an output that is no schema", () => {
    expect(() => task("mail", { input: { to: "text" } as never })).toThrow(
      refused(`task "mail": input must be a Standard Schema`),
    );
    expect(() => task("mail", { output: null as never })).toThrow(refused("output must be"));
  });

  test.each([
    [{ atempts: 3 }, "unknown option `atempts`, did you mean `attempts`?"],
    [{ timeout: 3 }, "did you mean `timeoutMs`?"],
    [{ attempts: 0 }, "attempts must be a whole number from 1 to 1000, not 0"],
    [{ attempts: 1.5 }, "attempts must be"],
    [{ timeoutMs: -1 }, "timeoutMs must be"],
    [{ backoff: { base: 5 } }, "backoff: unknown option `base`, did you mean `baseMs`?"],
    [{ backoff: { factor: 0.5 } }, "backoff.factor must be a number from 1 to 100"],
    [{ backoff: { jitter: -1 } }, "backoff.jitter must be"],
  ])("refuses handlers with %j", (options, message) => {
    expect(() => task("mail").handle(options as object, () => 1)).toThrow(refused(message));
    expect(() => task("mail", options as object, () => 1)).toThrow(refused(message));
  });

  test("refuses a handler that is no function", () => {
    expect(() => task("mail").handle({}, "x" as never)).toThrow(refused("must be a function"));
    expect(() => task("mail").handle({}, undefined as never)).toThrow(
      refused("must be a function"),
    );
  });
});
