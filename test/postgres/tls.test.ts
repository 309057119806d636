import { mkdtempSync, chmodSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { connect, startPod, type Store, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { openStore } from "../../src/store/open.ts";
import { type Certificates, makeCertificates } from "./certificates.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

let made: Certificates;
let server: PostgresServer;
let folder: string;
/** The server by the name that its certificate is for. */
let url: string;

beforeAll(async () => {
  made = makeCertificates();
  folder = mkdtempSync(join(tmpdir(), "flotilla-tls-"));
  chmodSync(folder, 0o755);
  const rules = join(folder, "pg_hba.conf");
  // Ada comes with a password and over TLS or not at all.
  writeFileSync(
    rules,
    "hostssl all ada 127.0.0.1/32 scram-sha-256\nhost all ada all reject\nhost all postgres 127.0.0.1/32 trust\n",
  );
  server = await startPostgres({
    settings: {
      ssl: "on",
      ssl_cert_file: made.certificate,
      ssl_key_file: made.key,
      hba_file: rules,
    },
  });
  await ask("create role ada login password 's3cret'");
  await ask("create database app owner ada");
  url = `postgres://ada@localhost:${server.port}/app`;
});
afterAll(async () => {
  await server.stop();
  made.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function ask(text: string): Promise<pg.QueryResult> {
  const client = new pg.Client(server.url);
  await client.connect();
  try {
    return await client.query(text);
  } finally {
    await client.end();
  }
}

const double = task("double", {}, ({ input }: { input: number }) => input * 2);
const settings = { use: [double], log: silentLogger, heartbeatMs: 100, deadAfterMs: 500 };
const refusal = (store: Store) => openStore(store).then(String, (error: unknown) => error);

describe("a Postgres store over TLS", () => {
  test.each(["require", "verify-full"])("works by URL: sslmode=%s", async (mode) => {
    const store = `${url.replace("ada@", "ada:s3cret@")}?sslmode=${mode}&sslrootcert=${made.authority}`;
    await using flotilla = connect(store);
    expect(await flotilla.pods()).toEqual([]);
  });

  test("works by options, on the pod's thread too, with a password that a function knows", async () => {
    let asked = 0;
    const password = async () => (asked++, "s3cret");
    await using pod = await startPod({
      ...settings,
      store: { url, ssl: { ca: made.ca }, password },
    });
    expect(await pod.waitFor(await pod.enqueue(double, 21))).toBe(42);
    expect(asked).toBeGreaterThan(2);
    // A heartbeat whose connection is cut asks for the password again.
    const before = asked;
    await ask("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ada'");
    expect(await pod.waitFor(await pod.enqueue(double, 4))).toBe(8);
    await until("passwords to be asked for", () => asked > before);
    const { rows } = await ask(
      "select bool_and(ssl) as all_tls from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'ada'",
    );
    expect(rows).toEqual([{ all_tls: true }]);
  });

  test.each<[string, () => Store, RegExp]>([
    [
      "an authority that isn't the server's",
      () => `${url}?sslmode=verify-full&sslrootcert=${made.stranger}`,
      /its certificate isn't signed by a trusted authority: name the authority/,
    ],
    ["no authority", () => ({ url, ssl: true }), /name the authority with `sslrootcert=<file>`/],
    [
      "a name that the certificate isn't for",
      () => ({ url: url.replace("localhost", "127.0.0.1"), ssl: { ca: made.ca } }),
      /its certificate is for another host/,
    ],
    [
      "an authority's file that is missing",
      () => `${url}?sslmode=verify-full&sslrootcert=/nowhere.pem`,
      /isn't there .*nowhere.pem/,
    ],
    [
      "a wrong password",
      () => ({ url, ssl: { ca: made.ca }, password: "wrong" }),
      /the password is wrong/,
    ],
    ["no TLS where it is demanded", () => ({ url, ssl: false }), /refuses this user/],
    [
      "TLS to a server that has none",
      () => ({ url: inject("postgresUrl"), ssl: true }),
      /it offers no TLS/,
    ],
  ])("is refused with %s", async (_, store, message) => {
    const refused = await refusal(store());
    expect(refused).toMatchObject({ code: "store_unavailable" });
    expect(String(refused)).toMatch(message);
    expect(String(refused)).not.toContain("s3cret");
  });

  test("takes a function for a password that throws as a connection that failed", async () => {
    const password = () => Promise.reject(new Error("the vault is closed"));
    const refused = await refusal({ url, ssl: { ca: made.ca }, password });
    expect(refused).toMatchObject({ code: "store_unavailable" });
    expect(String(refused)).toMatch(/the vault is closed/);
  });
});
