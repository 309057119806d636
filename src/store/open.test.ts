import { describe, expect, test } from "vitest";
import { silentLogger } from "../base/log.ts";
import { encryption } from "./codec/encryption.ts";
import { openStore, locateStore, storedTextOf, withoutSecrets } from "./open.ts";

describe("a store's URL", () => {
  test.each([
    ["sqlite:flotilla.db", "flotilla.db"],
    ["sqlite:./data/flotilla.db", "./data/flotilla.db"],
    ["sqlite:/var/lib/app.db", "/var/lib/app.db"],
    ["sqlite:///var/lib/app.db", "/var/lib/app.db"],
    ["sqlite://flotilla.db", "flotilla.db"],
    ["SQLite:flotilla.db", "flotilla.db"],
    ["file:flotilla.db", "flotilla.db"],
    ["file:///var/lib/app.db", "/var/lib/app.db"],
    ["flotilla.db", "flotilla.db"],
    ["/var/lib/app.db", "/var/lib/app.db"],
    ["./a b/app.db", "./a b/app.db"],
  ])("%s names the file %s", (url, path) => {
    expect(locateStore(url)).toEqual({ kind: "sqlite", path });
  });

  test.each([
    "",
    "sqlite:",
    "sqlite://",
    "file:",
    "file:a.db?mode=ro",
    "mysql://host/db",
    "http://host",
    "redis:x",
  ])("that names no file we can open is refused: %j", (url) => {
    expect(() => locateStore(url)).toThrow(
      expect.objectContaining({
        code: "unsupported",
        message: expect.stringContaining("use sqlite:<file>"),
      }),
    );
  });

  test.each([":memory:", "sqlite::memory:", "sqlite://:memory:"])(
    "can't name a store in memory, which its threads couldn't share: %s",
    async (url) => {
      await expect(openStore(url)).rejects.toMatchObject({ code: "unsupported" });
    },
  );

  test.each([
    ["postgres://host/app", "postgres://host/app", "flotilla"],
    ["postgresql://host/app?schema=jobs", "postgresql://host/app", "jobs"],
    [
      "postgres://host/app?sslmode=require&schema=jobs",
      "postgres://host/app?sslmode=require",
      "jobs",
    ],
    [
      "postgres://host/app?schema=jobs&sslmode=require",
      "postgres://host/app?sslmode=require",
      "jobs",
    ],
  ])("of Postgres may name a schema: %s", (url, plain, schema) => {
    expect(locateStore(url)).toEqual({ kind: "postgres", store: { url: plain, schema } });
  });

  test.each([
    "mysql://ada:s3cret@host:5432/app",
    "mysql://ada:s3cret@host/app?sslpassword=s3cret",
    "mysql://ada:p@s3cret@host/app",
    "mysql://ada:a/s3cret@host/app",
    "mysql://s3cret@host",
    "mysql://host/app?user=ada&password=s3cret",
  ])("of a database we don't know is refused without its password: %s", async (url) => {
    const error = await openStore(url).then(
      () => undefined,
      (thrown: Error) => thrown,
    );
    expect(error).toMatchObject({ name: "FlotillaError", code: "unsupported" });
    expect(error!.message).toContain("mysql");
    expect(error!.message).toContain("host");
    expect(error!.message).not.toContain("s3cret");
    expect(withoutSecrets(url)).not.toContain("s3cret");
  });
});

test("why stored values can't be decoded is logged once by all parts that share a codec", () => {
  const key = "07".repeat(32);
  const stored = storedTextOf({ codec: encryption({ keys: { old: key } }) })!.encode("{}");
  const codec = encryption({ keys: { new: key } });
  const lines: object[] = [];
  const log = { ...silentLogger, error: (fields: object) => void lines.push(fields) };
  // A part without a logger takes no line from the others.
  for (const part of [{ codec }, { codec, log }, { codec, log }]) {
    const text = storedTextOf(part)!;
    expect([text.decode(stored), text.decode(stored)]).toEqual([stored, stored]);
  }
  expect(lines).toEqual([{ reason: 'there is no key "old"' }]);
});
