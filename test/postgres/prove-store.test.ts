import process from "node:process";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { schemaMark, temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openStore } from "../../src/store/open.ts";
import { surveyStore } from "../prove-store.ts";

const role = `prover_${process.pid}`;

let url: string;
let database: string;
let remove: () => Promise<void>;
let admin: pg.Client;
/** The database as the role without rights. */
let asProver: string;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  database = new URL(url).pathname.slice(1);
  admin = new pg.Client(url);
  await admin.connect();
  await admin.query(`create role ${role} login`);
  asProver = url.replace("//postgres@", `//${role}@`);
});
afterEach(async () => {
  await admin.query(`drop owned by ${role} cascade; drop role ${role}`);
  await admin.end();
  await remove();
});

const mayCreate = () => admin.query(`grant create on database ${database} to ${role}`);

/** The schemas that aren't the server's own. */
async function schemas(): Promise<string[]> {
  const { rows } = await admin.query(`select nspname as name from pg_namespace
    where nspname !~ '^pg_|^information_schema$|^public$' order by name`);
  return rows.map((row) => row.name as string);
}

describe("before the suites are run on a server that is named", () => {
  test("what a stopped run has left is dropped by its mark, and nothing else", async () => {
    await mayCreate();
    const made = async (name: string, { mark, owner = role }: { mark?: string; owner?: string }) =>
      admin.query(`create schema ${name} authorization ${owner};
        create table ${name}.kept (id integer);
        comment on schema ${name} is ${mark === undefined ? "null" : pg.escapeLiteral(mark)}`);
    await (await openStore(url)).close();
    await made("flotilla_test_1_1", { mark: schemaMark });
    await made("flotilla_test_1_2", { mark: schemaMark });
    await made("flotilla_test_mine", {});
    await made("flotilla_test_noted", { mark: "ours, keep it" });
    await made("copied_mark", { mark: schemaMark });
    await made("flotillaxtest_1", { mark: schemaMark });
    await made("flotilla_test_2_1", { mark: schemaMark, owner: "postgres" });

    await surveyStore(asProver);
    const others = ["copied_mark", "flotilla", "flotilla_test_mine", "flotilla_test_noted"];
    expect(await schemas()).toEqual(
      [...others, "flotilla_test_2_1", "flotillaxtest_1"].toSorted((a, b) => (a < b ? -1 : 1)),
    );
  });

  test("it says what the server is, and how far away", async () => {
    await mayCreate();
    const { engine, pooler, tripMs } = await surveyStore(asProver);
    expect(engine).toMatch(/^Postgres \d+/);
    expect(pooler).toBe("none");
    expect(tripMs).toBeGreaterThan(0);
  });

  test("a role that may not create schemas is told what to grant", async () => {
    await expect(surveyStore(asProver)).rejects.toThrow(
      `the role ${role} may not create schemas: grant create on database ${database} to ${role}`,
    );
    expect(await schemas()).toEqual([]);
  });

  test.each([
    ["of the role", `alter role ${role} connection limit 10`],
    ["of the database", "alter database $1 connection limit 10"],
  ])("too few connections %s are counted beside what is needed", async (_, limit) => {
    await mayCreate();
    await admin.query(limit.replace("$1", database));
    await expect(surveyStore(asProver)).rejects.toThrow(
      /the suites need 60 connections, and \d are free: raise/,
    );
    expect(await schemas()).toEqual([]);
  });

  test("a server that takes no writes is named", async () => {
    await mayCreate();
    await admin.query(`alter role ${role} set default_transaction_read_only = on`);
    await expect(surveyStore(asProver)).rejects.toThrow(/takes no writes, as a standby doesn't/);
  });
});
