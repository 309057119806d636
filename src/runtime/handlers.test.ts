import { describe, expect, test } from "vitest";
import { task } from "../tasks/task.ts";
import { handlersByName, selectHandlers } from "./handlers.ts";

const mail = task("mail", {}, () => 1);
const charge = task("charge", { onFailure: () => {} }, () => 1);
const names = (handlers: ReadonlyMap<string, unknown>) => [...handlers.keys()];

describe("the handlers of a pod", () => {
  test("are those of the program, with what follows their failures", () => {
    expect(names(handlersByName([mail, charge]))).toEqual(["mail", "charge", "charge:failed"]);
    expect(names(selectHandlers([mail, charge], undefined))).toEqual([
      "mail",
      "charge",
      "charge:failed",
    ]);
  });

  test.each([
    { only: ["mail"], left: ["mail"] },
    { only: ["charge"], left: ["charge", "charge:failed"] },
    { only: ["charge:failed"], left: ["charge:failed"] },
    { only: ["charge:failed", "charge", "charge"], left: ["charge", "charge:failed"] },
  ])("are only those that `only` names: $only", ({ only, left }) => {
    expect(names(selectHandlers([mail, charge], only))).toEqual(left);
  });

  test.each([
    { only: [], message: "only must name at least one task" },
    { only: "mail" as never, message: "only must name at least one task" },
    { only: ["mial"], message: 'has no handler for "mial", did you mean "mail"?' },
    { only: [5 as never], message: "has no handler for 5" },
  ])("are refused where `only` names what there isn't: $only", ({ only, message }) => {
    expect(() => selectHandlers([mail, charge], only)).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        message: expect.stringContaining(message),
      }),
    );
  });

  test("are refused where what follows a failure takes the name of another, or is too long", () => {
    const taken = task("charge:failed", {}, () => 1);
    expect(() => handlersByName([charge, taken])).toThrow(
      'two handlers for the task "charge:failed"',
    );
    const long = "x".repeat(194);
    expect(() => task(long, { onFailure: () => {} }, () => 1)).toThrow("193 characters at most");
    expect(() => task("a", { onFailure: 5 as never }, () => 1)).toThrow("must be a function");
    expect(() => task("a", { slots: 0 }, () => 1)).toThrow("slots must be a whole number from 1");
  });
});
