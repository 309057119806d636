import { expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { errorFromWire } from "./http.ts";

test.each([
  [404, "unavailable"],
  [null, "unavailable"],
  ["not_found", "not_found"],
  ["of_a_newer_server", "of_a_newer_server"],
])("the code %j of an answer is %s", (code, shown) => {
  const error = errorFromWire({ code: code as string, message: 5 as unknown as string });
  expect(error).toBeInstanceOf(FlotillaError);
  expect(error).toMatchObject({ code: shown, message: "5" });
});
