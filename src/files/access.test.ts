import { expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { hourMs } from "../base/durations.ts";
import type { Database } from "../store/database.ts";
import { createFileAccess } from "./access.ts";

const withSecret = (secret: string) =>
  ({ read: () => Promise.resolve([{ secret }]) }) as unknown as Database;

test("an access opens the files of one session for an hour at least, and then none", async () => {
  const clock = movableClock();
  const files = createFileAccess({ database: withSecret("one"), clock });
  const { access, expiresAtMs } = await files.grant("acme", "s");
  expect((await files.grant("acme", "s")).access).toBe(access);
  expect(await files.check(access)).toEqual({ tenant: "acme", sessionId: "s", expiresAtMs });
  await clock.advance(hourMs);
  expect(await files.check(access)).toBeDefined();
  await clock.advance(hourMs);
  expect(await files.check(access)).toBeUndefined();
  const { access: later } = await files.grant("acme", "s");
  expect(await files.check(later)).toBeDefined();
  const elsewhere = createFileAccess({ database: withSecret("another"), clock });
  expect(await elsewhere.check(later)).toBeUndefined();
});
