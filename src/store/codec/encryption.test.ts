import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encryption } from "./encryption.ts";

const one = Buffer.alloc(32, 1).toString("base64");
const two = Buffer.alloc(32, 2).toString("hex");

describe("encryption", () => {
  const codec = encryption({ keys: { one } });

  test("gives back every text, and nothing of it is in what is stored", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 2_000 }), (text) => {
        const wellFormed = text.toWellFormed();
        expect(codec.decode(codec.encode(wellFormed))).toBe(wellFormed);
      }),
    );
    expect(codec.encode('{"card":"4242 4242"}')).toMatch(/^one:[A-Za-z0-9+/]+=*$/);
  });

  test("stores the same text differently each time", () => {
    expect(codec.encode("{}")).not.toBe(codec.encode("{}"));
  });

  test("writes by another key after 65,536 values, in another process too, and by another nonce each time", () => {
    const partOf = (stored: string, from: number, to: number) =>
      Buffer.from(stored.slice("one:".length), "base64").toString("hex", from, to);
    const fresh = encryption({ keys: { one } });
    const stored = Array.from({ length: 65_537 }, () => fresh.encode(""));
    const salts = stored.map((each) => partOf(each, 0, 12));
    expect(new Set(salts.slice(0, -1)).size).toBe(1);
    expect(salts.at(-1)).not.toBe(salts[0]);
    expect(new Set(stored.map((each) => partOf(each, 12, 24))).size).toBe(stored.length);
    expect(partOf(encryption({ keys: { one } }).encode(""), 0, 12)).not.toBe(salts[0]);
  });

  test("reads values of more keys than it keeps", () => {
    const stored = Array.from({ length: 1_100 }, (_, at) =>
      encryption({ keys: { one } }).encode(String(at)),
    );
    for (let time = 0; time < 2; time++) {
      expect(stored.map((each) => codec.decode(each))).toEqual(stored.map((_, at) => String(at)));
    }
  });

  test("reads what earlier keys wrote, and writes by the one in use", () => {
    const before = codec.encode("old");
    const rotated = encryption({ keys: { one, two } });
    expect(rotated.decode(before)).toBe("old");
    expect(rotated.encode("new")).toMatch(/^two:/);
    expect(encryption({ keys: { one, two }, use: "one" }).encode("new")).toMatch(/^one:/);
  });

  test.each([
    ["another key of the same name", () => codec.encode("text"), { one: two }, "authenticate"],
    ["a key that is missing", () => codec.encode("text"), { two }, 'no key "one"'],
    ["a value that is cut off", () => codec.encode("text").slice(0, 20), { one }, "cut off"],
    [
      "a value under another key's name",
      () => codec.encode("text").replace("one:", "two:"),
      { one, two: one },
      "authenticate",
    ],
    ["a value that was changed", () => changed(codec.encode("some text")), { one }, "authenticate"],
    ["text that isn't its own", () => "nothing", { one }, 'no key ""'],
  ] as [string, () => string, Record<string, string>, string][])(
    "refuses %s",
    (_, stored, keys, said) => {
      expect(() => encryption({ keys }).decode(stored())).toThrow(said);
    },
  );

  test.each([
    ["no keys", {}, "name at least one key"],
    ["a short key", { one: Buffer.alloc(16).toString("base64") }, "openssl rand"],
    ["a key that isn't text", { one: 7 as unknown as string }, "openssl rand"],
    ["a name with a colon", { "a:b": one }, "must be 1 to 40 letters"],
  ])("says what to do about %s", (_, keys, said) => {
    expect(() => encryption({ keys: keys as Record<string, string> })).toThrow(said);
  });

  test("refuses a key to use that isn't there", () => {
    expect(() => encryption({ keys: { one }, use: "two" })).toThrow("isn't in `keys`");
  });
});

/** One bit of its last byte is another. */
function changed(stored: string): string {
  const [name, text] = stored.split(":");
  const bytes = Buffer.from(text!, "base64");
  bytes[bytes.length - 1]! ^= 1;
  return `${name}:${bytes.toString("base64")}`;
}
