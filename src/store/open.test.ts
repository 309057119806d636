import { describe, expect, test } from "vitest";
import { openStore, sqlitePath, withoutSecrets } from "./open.ts";

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
    expect(sqlitePath(url)).toBe(path);
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
    expect(() => sqlitePath(url)).toThrow(
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
    "postgres://ada:s3cret@host:5432/app",
    "postgres://ada:s3cret@host/app?sslpassword=s3cret",
    "postgresql://ada:p@s3cret@host/app",
    "postgres://ada:a/s3cret@host/app",
    "postgres://s3cret@host",
    "postgres://host/app?user=ada&password=s3cret",
  ])("of a database we don't know is refused without its password: %s", async (url) => {
    const error = await openStore(url).then(
      () => undefined,
      (thrown: Error) => thrown,
    );
    expect(error).toMatchObject({ name: "FlotillaError", code: "unsupported" });
    expect(error!.message).toContain("postgres");
    expect(error!.message).toContain("host");
    expect(error!.message).not.toContain("s3cret");
    expect(withoutSecrets(url)).not.toContain("s3cret");
  });
});
