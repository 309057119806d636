import { describe, expect, test } from "vitest";
import { checkNats, type NatsConfig, natsConfigIn } from "./config.ts";
import { natsFor } from "./nats.ts";

const check = (config: unknown) => checkNats(config as NatsConfig);
const seed = `SU${"A".repeat(56)}`;

describe("a config of NATS", () => {
  test("has defaults for all but its servers", () => {
    expect(check({ servers: "nats://one" })).toEqual({
      servers: ["one:4222"],
      credentials: undefined,
      tls: undefined,
      namespace: "flotilla",
      use: "bus",
      monitors: [],
      durability: "flushed",
    });
  });

  test("takes what is needed for logs", () => {
    const config = { servers: "one", use: "all", monitor: "http://one:8222", durability: "single" };
    expect(check(config)).toMatchObject({
      use: "all",
      monitors: ["http://one:8222/"],
      durability: "single",
    });
    const monitor = ["http://one:8222", "https://two"];
    expect(check({ ...config, monitor }).monitors).toEqual(["http://one:8222/", "https://two/"]);
  });

  test.each([
    ["one", "one:4222", undefined],
    ["one:4333", "one:4333", undefined],
    ["nats://[::1]:4333", "[::1]:4333", undefined],
    ["tls://one", "one:4222", {}],
  ])("takes the server %s", (server, address, tls) => {
    expect(check({ servers: [server] })).toMatchObject({ servers: [address], tls });
  });

  test.each([
    ["nats://ann:p%40ss@one", { user: "ann", password: "p@ss" }],
    ["nats://secret@one", { token: "secret" }],
  ])(
    "takes the credentials of %s, and leaves them out of what is logged",
    (server, credentials) => {
      const settings = check({ servers: ["nats://two", server] });
      expect(settings).toMatchObject({ credentials, servers: ["two:4222", "one:4222"] });
    },
  );

  test.each([{ file: "a.creds" }, { nkey: seed }, { token: "t" }, { user: "u", password: "p" }])(
    "takes credentials such as %j",
    (credentials) => {
      expect(check({ servers: "one", credentials }).credentials).toEqual(credentials);
    },
  );

  test.each([
    [{}, /nats\.servers must be URLs/],
    [{ servers: [] }, /1 to 100 servers/],
    [{ servers: "ws://one" }, /not ws:/],
    [{ servers: "nats://one/path" }, /one of them isn't/],
    [{ servers: "nats://" }, /one of them isn't/],
    [{ servers: "one", namespace: "Big" }, /namespace must be 1 to 32 lower-case/],
    [{ servers: "one", namespace: "a.b" }, /namespace must be/],
    [{ servers: "one", namespace: "*" }, /namespace must be/],
    [{ servers: "one", namespace: "" }, /namespace must be/],
    [{ servers: "one", namespace: "x".repeat(33) }, /namespace must be/],
    [{ servers: "one", use: "log" }, /nats\.use must be one of bus, all/],
    [{ servers: "one", use: "all", durability: "fast" }, /nats\.durability must be one of flushed/],
    [{ servers: "one", monitor: "one:8222" }, /nats\.monitor must be addresses such as http/],
    [{ servers: "one", monitor: [7] }, /nats\.monitor must be addresses/],
    [{ servers: "one", monitor: "http://a:hunter2@one" }, /without a password/],
    [{ servers: "one", names: "x" }, /unknown option `names`/],
    [{ servers: "one", tls: { caFile: 1 } }, /caFile must be a path/],
    [{ servers: "one", tls: { certFile: "a" } }, /both `certFile` and `keyFile`/],
    [{ servers: "one", tls: { ca: "a" } }, /unknown option `ca`/],
    [{ servers: "one", credentials: {} }, /nats\.credentials must be/],
    [{ servers: "one", credentials: "t" }, /nats\.credentials must be/],
    [{ servers: "one", credentials: { token: "a", nkey: "b" } }, /nats\.credentials must be/],
    [{ servers: "nats://a:b@one", credentials: { token: "t" } }, /give them once/],
  ])("is refused as %j", (config, message) => {
    expect(() => check(config)).toThrow(message);
  });

  test("is refused without a word of its secrets", () => {
    const secret = "hunter2";
    const configs = [
      { servers: `nats://ann:${secret}@one/path` },
      { servers: `ws://ann:${secret}@one` },
      { servers: "one", credentials: { nkey: secret } },
      { servers: "one", credentials: { password: secret } },
    ];
    for (const config of configs) {
      const refused = (() => {
        try {
          return check(config);
        } catch (error) {
          return String(error);
        }
      })();
      expect(refused).toMatch(/invalid|must/);
      expect(refused).not.toContain(secret);
    }
  });

  test("is refused for a SQLite file, whose processes are on one machine", () => {
    const config = { servers: "one" };
    expect(() => natsFor("sqlite:a.db", config)).toThrow(/needs a store on Postgres/);
    expect(() => natsFor("sqlite:a.db", { ...config, use: "all" })).toThrow(/on Postgres/);
    expect(natsFor("postgres://db/app", config).namespace).toBe("flotilla");
  });

  test("is taken for a SQLite file where one server keeps the logs", () => {
    const config = { servers: "one", use: "all", durability: "single" } as const;
    expect(natsFor("sqlite:a.db", config)).toMatchObject({ use: "all", durability: "single" });
  });

  test.each([
    [undefined, undefined],
    ["", undefined],
    [" , ", undefined],
    ["nats://one, two:4333", { servers: ["nats://one", "two:4333"] }],
    [
      "one,two?use=all&namespace=app&monitor=http://one:8222&monitor=http://two:8222",
      {
        servers: ["one", "two"],
        use: "all",
        namespace: "app",
        monitor: ["http://one:8222", "http://two:8222"],
      },
    ],
    ["one?durability=replicas", { servers: ["one"], durability: "replicas" }],
  ])("is read from the environment as %j", (text, config) => {
    expect(natsConfigIn(text)).toEqual(config);
  });

  test("is refused in the environment with an option that isn't known", () => {
    expect(() => natsConfigIn("one?uses=all")).toThrow(/unknown option "uses" .* known are/);
  });
});
