import { describe, expect, test } from "vitest";
import {
  withoutPool,
  checkStore,
  forThread,
  type PostgresPool,
  type PostgresStore,
} from "./config.ts";

const url = "postgres://ada@db.example/app";
const pool = (options: object): PostgresPool => ({
  connect: () => Promise.reject(new Error("not called")),
  on: () => {},
  options,
});

describe("a Postgres store", () => {
  test("by URL may name our options in it, which the driver isn't shown", () => {
    expect(
      checkStore(`${url}?schema=jobs&sslmode=verify-full&connections=2&lockTimeoutMs=500`),
    ).toEqual({
      url: `${url}?sslmode=verify-full`,
      schema: "jobs",
      connections: 2,
      lockTimeoutMs: 500,
    });
  });

  test("takes options over its URL", () => {
    const store = checkStore({
      url: `${url}?schema=jobs&sslmode=disable&sslrootcert=/a.pem&application_name=x`,
      schema: "work",
      ssl: { ca: "…" },
    });
    expect(store).toEqual({ url: `${url}?application_name=x`, schema: "work", ssl: { ca: "…" } });
  });

  test("by URL may name what is the driver's", () => {
    const driver =
      "host=/run&connect_timeout=10&statement_timeout=5&options=-c%20a.b=c&keepalives=1";
    expect(checkStore(`${url}?${driver}`).url).toBe(`${url}?${driver}`);
  });

  test.each<[unknown, RegExp]>([
    [{}, /an object with `url: "postgres:…"` or a `pool`/],
    [{ url: "sqlite:flotilla.db" }, /an object with `url/],
    [{ url, conections: 4 }, /unknown option `conections`, did you mean `connections`/],
    [{ url, connections: 0 }, /store.connections must be a whole number from 1/],
    [{ url: `${url}?connections=many` }, /store.connections must be a whole number.*"many"/],
    [{ url: `${url}?conections=4` }, /unknown parameter `conections`.*did you mean `connections`/],
    [{ url, statementTimeoutMs: "30s" }, /store.statementTimeoutMs must be a whole number/],
    [{ url, pooler: "statement" }, /store.pooler must be one of none, session, transaction/],
    [{ url, ssl: "require" }, /store.ssl must be true, false or an object/],
    [{ url, password: 5 }, /store.password must be a text or a function/],
    [{ url, schema: "a-b" }, /schema must be a lower-case name/],
    [{ pool: { query() {} } }, /store.pool must be a pool of `pg`/],
    [pool({}), /a pool is given as `{ pool }`/],
  ])("that makes no sense is refused: %j", (store, message) => {
    expect(() => checkStore(store as PostgresStore)).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        message: expect.stringMatching(new RegExp(message.source.replace("…", ".*"))),
      }),
    );
  });
});

describe("a connection of our own beside a caller's pool", () => {
  test("is opened as the pool opens its", () => {
    const options = { host: "db", port: 6543, user: "a b", database: "my app", password: "p" };
    expect(withoutPool({ pool: pool({ ...options, max: 3 }), schema: "jobs" })).toEqual({
      url: "postgres:///my%20app?host=db&port=6543&user=a+b",
      password: "p",
      schema: "jobs",
    });
    expect(withoutPool({ pool: pool({ connectionString: url, ssl: true }) })).toEqual({
      url,
      ssl: true,
    });
  });

  test("is opened with a URL that is given beside it", () => {
    expect(withoutPool({ pool: pool({ host: "db" }), url })).toEqual({ url });
  });
});

describe("a store for another thread", () => {
  test("leaves a function that knows the password behind", () => {
    const password = () => "p";
    expect(forThread({ url, password, ssl: { ca: "…" } })).toEqual({
      store: { url, ssl: { ca: "…" } },
      password,
    });
  });

  test("keeps a key that the driver has hidden", () => {
    const ssl = Object.defineProperty({ ca: "…" }, "key", { value: "k", enumerable: false });
    expect(forThread({ url, ssl }).store.ssl).toEqual({ ca: "…", key: "k" });
  });

  test("is refused with a function that can't go there", () => {
    expect(() => forThread({ url, ssl: { checkServerIdentity: () => undefined } })).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        message: expect.stringContaining("a thread of its own"),
      }),
    );
  });
});
