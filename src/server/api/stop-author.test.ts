import { expect, test } from "vitest";
import { stopperOf } from "./sessions.ts";

test.each([
  ["user", { user: "ada" }, { author: "ada", by: "user" }],
  ["server", { keyId: "1", user: "ada" }, { author: "ada", by: "user" }],
  ["server", { keyId: "1", keyName: "billing" }, { author: "billing", by: "key" }],
  ["server", { keyId: "1" }, { author: "key", by: "key" }],
  ["local", {}, { author: "local", by: "user" }],
] as const)("the author of a stop is known of a caller that is a %s with %o", (kind, more, who) => {
  expect(stopperOf({ kind, tenant: "default", verbs: new Set(), ...more })).toEqual(who);
});
