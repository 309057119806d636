/**
 * Proves the versions of Postgres that are supported, from npm packages: directly and through PgBouncer in
 * transaction mode, as a role that may create schemas and nothing else. Prints the rows of docs/stores.md.
 *
 *     npm run test:servers [-- versions, ways and files]
 *
 * A way is `directly` or `pooled`; without one it is both.
 */
import process from "node:process";
import pg from "pg";
import { npmPrograms, type PackagedVersion, packagedVersions } from "./postgres/packaged.ts";
import { startPgBouncer } from "./postgres/pgbouncer.ts";
import { startPostgres } from "./postgres/server.ts";
import { proveStore } from "./prove-store.ts";

const args = process.argv.slice(2).filter((each) => each !== "--");
const known = Object.keys(packagedVersions);
const allWays = ["directly", "pooled"];
const wanted = args.filter((each) => known.includes(each));
const ways = args.filter((each) => allWays.includes(each));
const files = args.filter((each) => !known.includes(each) && !allWays.includes(each));
const goes = (way: string) => ways.length === 0 || ways.includes(way);
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
      const urls = [
        ...(goes("directly") ? [url] : []),
        ...(goes("pooled") ? [pooler.through(url)] : []),
      ];
      for (const each of urls) {
        const { row, failed, passed } = await proveStore(each, files);
        console.log(row);
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
