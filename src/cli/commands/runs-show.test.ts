import { expect, test } from "vitest";
import { runError, unrecoverable } from "../../flows/decide/thrown.ts";
import { errorText } from "./runs-show.ts";

test("an error names whose fault it was, where that is known", () => {
  const error = (by: "system" | "user") => runError(unrecoverable("no such card", { by }));
  expect(errorText(error("user"))).toBe("aborted by the user: no such card");
  expect(errorText(error("system"))).toBe("aborted by the system: no such card");
  expect(errorText(runError(new Error("oops")))).toBe("handler_failed: oops");
});
