import { memoryUsage } from "node:process";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { stepsMost, stepsPerCharacter } from "../../test/linear.ts";
import { redactForms } from "./forms.ts";
import { secrecyOf } from "./names.ts";
import { createRedactor, defaultRedactor } from "./redactor.ts";

const hidden = "[redacted]";
const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJlLW9mLWl0";
const input = (value: unknown, redact?: Parameters<typeof createRedactor>[0]) =>
  createRedactor(redact).value(value, "input");

describe("names that look like secrets", () => {
  test.each(
    "password userPassword user_password user-password PASSWORD dbpassword passwd passphrase secret clientSecret client_secret SECRET_KEY apiKey api_key api-key API_KEY X-Api-Key apikey authorization Proxy-Authorization cookie Set-Cookie privateKey private_key accessKey secretAccessKey credentials creditCard credit_card cardNumber cvv passwordHash accessTokens apikey2 apitoken".split(
      " ",
    ),
  )("hide text and numbers: %s", (name) => {
    expect(input({ [name]: "hunter2" })).toEqual({ [name]: hidden });
    expect(input({ [name]: 4_111 })).toEqual({ [name]: hidden });
    expect(input({ deep: [{ [name]: { nested: "hunter2" } }] })).toEqual({
      deep: [{ [name]: hidden }],
    });
  });

  test.each(
    "token accessToken refresh_token id-token CSRF_TOKEN jwt smtpPass token2 authToken_1".split(
      " ",
    ),
  )("hide text, and no counts: %s", (name) => {
    expect(input({ [name]: "hunter2" })).toEqual({ [name]: hidden });
    expect(input({ [name]: 12 })).toEqual({ [name]: 12 });
  });

  test.each(
    "tokens inputTokens maxTokens cachedTokens max_tokens firstTokenMs nextPageToken claimToken cursorToken key keys keyName primaryKey secretary author authorId monkey tokenizer passwordLength secretName apiKeyId accessKeyId cookieConsent compass bypass passenger card cardType".split(
      " ",
    ),
  )("are none of ours, nor those that only sound alike: %s", (name) => {
    expect(secrecyOf(name)).toBeUndefined();
    expect(input({ [name]: "shown" })).toEqual({ [name]: "shown" });
  });

  test("hide the value beside them, as in lists of headers and of an environment", () => {
    const shown = [
      { key: "token", value: 12 },
      { name: "Accept", value: "text/html" },
      { key: "password", value: null },
    ];
    const given = [
      { name: "Authorization", value: "hunter2", enabled: true },
      { key: "DB_PASSWORD", value: ["hunter2"] },
      ...shown,
    ];
    const left = [
      { name: "Authorization", value: hidden, enabled: true },
      { key: "DB_PASSWORD", value: hidden },
      ...shown,
    ];
    expect(input(given)).toEqual(left);
    expect(input(given, ["!input.value"])).toBe(given);
  });

  test("aren't kept where they are long, so that no caller fills the memory with them", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const long = (at: number) => `${at} ${"x".repeat(200_000)}`;
    collect();
    const before = memoryUsage().heapUsed;
    for (let at = 0; at < 500; at++) secrecyOf(Buffer.from(long(at)).toString("latin1"));
    await until("they are gone", async () => {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
      return memoryUsage().heapUsed - before < 50 * 200_000;
    });
    expect(secrecyOf(`${long(1)}Password`)).toBe("all");
  });

  test("leave true, false, null and nothing as they are", () => {
    const value = { password: null, hasSecret: true, token: "", secret: false };
    expect(input(value)).toBe(value);
  });
});

describe("well-known forms of secrets", () => {
  const pem = `-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----`;
  test.each([
    ["Bearer abc123def456", "Bearer [redacted]"],
    ["Authorization: Basic YWRhOmh1bnRlcjI=", "Authorization: [redacted]"],
    ["with basic YWRhOmh1bnRlcjI= it works", "with basic [redacted] it works"],
    ["key sk-proj-4f9a8b7c6d5e4f3a2b1c.", "key [redacted]."],
    ["sk_live_4eC39HqLyjWDarjtT1zdp7dc", hidden],
    ["whsec_a+b/c0123456789abcdef=", hidden],
    ["x-bearer abc123def456", "x-bearer [redacted]"],
    ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", hidden],
    ["fl_3q2-7w8xYt0Zs_4bN1mKjHgFdSaPoIuYtReWqLkJhGf", hidden],
    ["AKIAIOSFODNN7EXAMPLE is it", "[redacted] is it"],
    [`a ${jwt} b`, "a [redacted] b"],
    [`before ${pem} after`, "before [redacted] after"],
    ["-----BEGIN PRIVATE KEY-----\nMIIEow, and no end", hidden],
    ["postgres://ada:hunter2@db.example/shop", "postgres://ada:[redacted]@db.example/shop"],
    ["redis://:p@ss@cache:6379", "redis://:[redacted]@cache:6379"],
    ["GET /x?api_key=abcdef&page=2", "GET /x?api_key=[redacted]&page=2"],
    ["Server=db;Password=hunter2;Port=1", "Server=db;Password=[redacted];Port=1"],
    [
      'failed: {"password":"hunter2","user":"ada"}',
      'failed: {"password":"[redacted]","user":"ada"}',
    ],
    ['{\\"apiKey\\":\\"hunter2\\"}', '{\\"apiKey\\":\\"[redacted]\\"}'],
    [
      JSON.stringify({ password: `it's "so" \\ so\\`, user: "ada" }),
      '{"password":"[redacted]","user":"ada"}',
    ],
    [
      JSON.stringify(JSON.stringify({ password: `it's "so" \\ so\\`, user: "ada" })),
      JSON.stringify('{"password":"[redacted]","user":"ada"}'),
    ],
    [
      JSON.stringify({ password: 4711, secret: { of: ["a]", 'b"}'] }, otp: [1, 2], id: [3] }),
      '{"password":"[redacted]","secret":"[redacted]","otp":"[redacted]","id":[3]}',
    ],
    [
      JSON.stringify(JSON.stringify({ cvc: -4.7e1, secret: { of: ['b"}'] }, id: 3 })),
      JSON.stringify('{"cvc":"[redacted]","secret":"[redacted]","id":3}'),
    ],
    ['{"secret":{"of":["a", "and no end', '{"secret":"[redacted]"'],
    ['"password":"hunter2 and no end\nnext', '"password":"[redacted]\nnext'],
    ["{ secret: 'correct horse' }", "{ secret: '[redacted]' }"],
    ["Cookie: sid=1; theme=dark\nHost: a", "Cookie: [redacted]\nHost: a"],
  ])("are taken out of texts: %s", (text, left) => {
    expect(redactForms(text)).toBe(left);
    expect(redactForms(left)).toBe(left);
  });

  test.each([
    "the bearer understands basic understanding and basics",
    "sk-learn-and-other-libraries are fine",
    "https://example.com:8080/path?page=2&q=me@example.com",
    "send `Authorization: Bearer <key>`",
    "inputTokens=1200 outputTokens=300 maxTokens: '4096'",
    '{"token":12,"tokens":[1,2],"password":"","at":"12:30"}',
    "a task's key=order-1234",
    "0198f6c2-7d7c-7000-8000-000000000000",
  ])("aren't seen where there are none: %s", (text) => {
    expect(redactForms(text)).toBe(text);
  });

  test("are taken out of names as well, and no two names become one", () => {
    expect(input({ [jwt]: 1, other: 2, [`${jwt}x`]: 3 })).toEqual({
      "[redacted] 1": 1,
      other: 2,
      "[redacted] 3": 3,
    });
  });

  test("take no longer than the text is long, however many there are", () => {
    for (const part of [
      jwt,
      "Bearer abc123def456 ",
      "password=hunter2&",
      "-eyJ",
      "-----BEGIN ",
      '"secret":[',
      '"secret":"',
      '"id":1,',
    ]) {
      const text = part.repeat(Math.floor(200_000 / part.length));
      expect(stepsPerCharacter(redactForms, text)).toBeLessThan(stepsMost);
    }
  });
});

describe("paths of the config", () => {
  const value = { card: { number: "4111", kind: "visa" }, people: [{ ssn: "1" }, { ssn: "2" }] };

  test.each<[string[], unknown]>([
    [["input.card"], { ...value, card: hidden }],
    [["input.card.number"], { ...value, card: { number: hidden, kind: "visa" } }],
    [["*.card"], { ...value, card: hidden }],
    [["**.ssn"], { ...value, people: [{ ssn: hidden }, { ssn: hidden }] }],
    [["input.people.ssn"], { ...value, people: [{ ssn: hidden }, { ssn: hidden }] }],
    [["input.*.number"], { ...value, card: { number: hidden, kind: "visa" } }],
    [["result.card", "*.ssn", "input.card.number.more"], value],
    [["input"], hidden],
    [["**"], hidden],
  ])("hide what they lead to: %s", (redact, left) => {
    expect(input(value, redact)).toEqual(left);
  });

  test("that begin with ! show what would be hidden", () => {
    const given = { token: jwt, other: { token: "x" } };
    expect(input(given, ["!input.token"])).toEqual({ token: jwt, other: { token: hidden } });
    expect(input(given, ["**.token", "!**.other"])).toEqual({
      token: hidden,
      other: { token: "x" },
    });
  });

  test.each([
    [["card"], /begins with input, .*write \*\*\.card/],
    [["inputs.card"], /did you mean input/],
    [["input..card"], /isn't a path/],
    [[""], /isn't a path/],
    [["input." + "x".repeat(200)], /isn't a path/],
    [[7], /not number/],
    ["input.card", /must be false, or a list/],
    [Array.from({ length: 101 }, () => "input"), /at most 100/],
  ])("that are none are refused: %s", (redact, message) => {
    expect(() => createRedactor(redact as never)).toThrow(message);
    expect(() => createRedactor(redact as never)).toThrow(FlotillaError);
  });

  test("are none where redact is false: everything is shown", () => {
    const given = { password: "hunter2", text: `Bearer ${jwt}` };
    expect(input(given, false)).toBe(given);
    expect(
      createRedactor(false)
        .with([["input"]])
        .value(given, "input"),
    ).toBe(given);
  });
});

describe("patterns of the config", () => {
  test("are taken out of texts, and hide what is under a name that they match", () => {
    const redact = [/\b\d{3}-\d{2}-\d{4}\b/, /^acct_/i];
    expect(input({ note: "ssn 123-45-6789.", acct_no: "x", more: ["ACCT_1 y"] }, redact)).toEqual({
      note: "ssn [redacted].",
      acct_no: hidden,
      more: ["[redacted]1 y"],
    });
  });

  test.each([
    /token/i,
    /\b\d{13,19}\b/,
    /ACME-[A-Z0-9]+/,
    /[A-Z]{2}\d{2}[A-Z0-9]{11,30}/,
    /(?:visa|amex|jcb)-\d{4}/g,
    /(?<![\w-])x{1,100}y?/s,
    /\p{L}{3}-\d+|\u{1F600}+/u,
    /[\]\\[]+/,
  ])("that are quick are taken: %s", (pattern) => {
    expect(() => createRedactor([pattern])).not.toThrow();
    const text = "visa-1234 ACME-99 " + "a-1].x".repeat(20_000);
    const redactor = createRedactor([pattern]);
    expect(stepsPerCharacter(redactor.text, text)).toBeLessThan(stepsMost);
  });

  test.each([
    [/(a+)+$/, /repeats/],
    [/(?:a|a)*b/, /repeats a group/],
    [/(a|b){2}/, /repeats a group/],
    [/(x)\1/, /refers to what it has matched/],
    [/(?<q>x)\k<q>/, /refers to what it has matched/],
    [/.*secret/, /without a limit before its end/],
    [/a+b/, /without a limit before its end/],
    [/(?=a*)b/, /without a limit before its end/],
    [/a{0,100}b{0,100}c/, /more than 500 ways/],
    [/a{3000}/, /over 2000 characters/],
    [/a*/, /matches the empty text/],
    [/|a/, /matches the empty text/],
    [new RegExp("a", "v"), /flag v/],
    [new RegExp("a".repeat(501)), /longer than 500/],
  ])("that may be slow, or match nothing, are refused: %s", (pattern, message) => {
    expect(() => createRedactor([pattern])).toThrow(message);
    expect(() => createRedactor([pattern])).toThrow(FlotillaError);
  });
});

describe("any value", () => {
  test("comes back as it is where it has no secrets, and is never changed itself", () => {
    const value = Object.freeze({ a: Object.freeze([1, "two", { three: null }]) });
    expect(defaultRedactor.value(value, "result")).toBe(value);
    const secret = Object.freeze({ a: Object.freeze({ password: "x" }), b: value });
    const left = defaultRedactor.value(secret, "result") as typeof secret;
    expect(left).toEqual({ a: { password: hidden }, b: value });
    expect(left.b).toBe(value);
    expect(secret.a.password).toBe("x");
  });

  test("50 deep is redacted like any other", () => {
    let value: unknown = { password: "hunter2", text: `Bearer ${jwt}` };
    for (let depth = 0; depth < 50; depth++) value = depth % 2 ? { inner: value } : [value];
    const left = JSON.stringify(defaultRedactor.value(value, "input"));
    expect(left).toContain(hidden);
    expect(left).not.toMatch(/hunter2|eyJ/);
  });

  test("in a circle, too deep or unreadable is hidden from there on", () => {
    const circle: Record<string, unknown> = { name: "a" };
    circle["self"] = [circle];
    expect(input(circle)).toEqual({ name: "a", self: [hidden] });
    let deep: unknown = "hunter2";
    for (let depth = 0; depth < 10_000; depth++) deep = [deep];
    expect(JSON.stringify(input(deep))).not.toContain("hunter2");
    const throwing = {
      get field(): string {
        throw new Error("hunter2");
      },
    };
    expect(input(throwing)).toBe(hidden);
    const twice: unknown[] = ["a"];
    expect(input([twice, twice])).toEqual([["a"], ["a"]]);
  });

  test("that sets __proto__ keeps that as a field", () => {
    const value = JSON.parse('{"__proto__":{"password":"x"},"a":1}') as object;
    expect(JSON.stringify(input(value))).toBe('{"__proto__":{"password":"[redacted]"},"a":1}');
  });

  test("that is an error is shown without the secrets in its message, stack and cause", () => {
    const plain = new Error("no paper");
    expect(input(plain)).toBe(plain);
    const cause = new Error("postgres://ada:hunter2@db/x");
    const left = JSON.stringify(input({ failed: new Error("Bearer abc123def456", { cause }) }));
    expect(left).toContain("Bearer [redacted]");
    expect(left).toContain("ada:[redacted]@db");
    expect(left).not.toMatch(/hunter2|abc123def456/);
  });

  test("never makes it throw, keeps its secret inside, and stays JSON", () => {
    const secret = "hunter2-0123456789";
    const planted = fc
      .tuple(fc.constantFrom("password", "api_key", "x-secret", "Cookie"), fc.json({ maxDepth: 3 }))
      .map(([name, json]) => ({ [name]: secret, more: JSON.parse(json) as unknown }));
    const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
      tree: fc.oneof(
        { depthSize: "medium" },
        planted,
        fc.jsonValue(),
        fc.anything({ withDate: true, withMap: true, withBigInt: false, withNullPrototype: true }),
        fc.array(tie("tree"), { maxLength: 4 }),
        fc.dictionary(fc.string(), tie("tree"), { maxKeys: 4 }),
      ),
    }));
    fc.assert(
      fc.property(tree, (value) => {
        const left = input(value, ["input.more.*", "**.ssn", /x{1,3}y/]);
        expect(JSON.stringify(left) ?? "").not.toContain(secret);
      }),
      { numRuns: 300 },
    );
  });

  test("of any text never makes it throw, and what is left has nothing left to hide", () => {
    const pieces = fc.constantFrom(
      "Bearer ",
      "sk-",
      "eyJ",
      ".",
      "-----BEGIN PRIVATE KEY-----",
      "://",
      ":",
      "@",
      "password=",
      "'",
      '"',
      "\\",
      "\n",
      " ",
      "a1b2c3d4e5f6a7b8c9d0",
      "Cookie: ",
    );
    fc.assert(
      fc.property(fc.array(fc.oneof(pieces, fc.string()), { maxLength: 40 }), (parts) => {
        const once = redactForms(parts.join(""));
        expect(redactForms(once).length).toBeLessThanOrEqual(once.length + hidden.length * 40);
      }),
      { numRuns: 300 },
    );
  });
});
