import process from "node:process";
import { expect, test, vi } from "vitest";
import { type ErrorCode, FlotillaError } from "../base/errors.ts";
import { exitCodeOf, explain } from "./exit-codes.ts";

/** What is printed on standard error. */
function printed(thrown: unknown, json = false): string {
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  try {
    explain(thrown, { json });
    return write.mock.calls.map(([text]) => String(text)).join("");
  } finally {
    write.mockRestore();
  }
}

test("an error's text can't move the cursor or hide parts of itself", () => {
  const message = "no\u001b[2J such\u202e task";
  const shown = "no\\x1b[2J such\\u{202e} task";
  expect(printed(new FlotillaError("not_found", message))).toBe(`flotilla: ${shown}\n`);
  expect(printed(new Error(message))).toContain(shown);
  expect(printed(message)).toBe(`flotilla: ${shown}\n`);
});

test.each([404, "later", undefined, null])("the unknown code %j is an ordinary failure", (code) => {
  const error = new FlotillaError(code as unknown as ErrorCode, "no");
  expect(exitCodeOf(error)).toBe(1);
  expect(JSON.parse(printed(error, true))).toMatchObject({ error: { code: "unavailable" } });
});
