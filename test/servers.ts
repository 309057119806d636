/**
 * Proves the versions of Postgres that are supported, from npm packages: directly and through PgBouncer in
 * transaction mode, as a role that may create schemas and nothing else. Prints the rows of docs/stores.md.
 *
 *     npm run test:servers [-- versions and files]
 */
import process from "node:process";
import pg from "pg";
import { npmPrograms, type PackagedVersion, packagedVersions } from "./postgres/packaged.ts";
import { startPgBouncer } from "./postgres/pgbouncer.ts";
import { startPostgres } from "./postgres/server.ts";
import { proveStore } from "./prove-store.ts";

const args = process.argv.slice(2).filter((each) => each !== "--");
const known = Object.keys(packagedVersions);
const wanted = args.filter((each) => known.includes(each));
const files = args.filter((each) => !known.includes(each));
const rows: string[] = [];

for (const version of wanted.length > 0 ? wanted : known) {
  const programs = npmPrograms(Number(version) as PackagedVersion);
  if (typeof programs !== "string") {
    rows.push(`| Postgres ${version} | not run | ${programs.none} |`);
    process.exitCode = 1;
    continue;
  }
  process.env["FLOTILLA_TEST_POSTGRES"] = programs;
  const server = await startPostgres({ settings: { fsync: "off", full_page_writes: "off" } });
  try {
    const client = new pg.Client(server.url);
    await client.connect();
    await client.query("create role tester login");
    await client.query("grant create on database postgres to tester");
    await client.end();
    const url = server.url.replace("//postgres@", "//tester@");
    const pooler = await startPgBouncer({ server: url });
    try {
      for (const each of [url, pooler.through(url)]) {
        const { row, failed, passed } = await proveStore(each, files);
        rows.push(row);
        if (failed > 0 || passed === 0) process.exitCode = 1;
      }
    } finally {
      await pooler.stop();
    }
  } finally {
    await server.stop();
  }
}
console.log(`\n${rows.join("\n")}`);
