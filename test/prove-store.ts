import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { engineOf, engineQuery, refusalOf, tryEngine } from "../src/store/postgres/engine.ts";
import { type CheckedStore, checkStore } from "../src/store/postgres/config.ts";
import { openPlain, type PlainConnection } from "../src/store/postgres/inspect.ts";

export type Proof = {
  readonly passed: number;
  readonly failed: number;
  /** What the suites leave out on such a server. */
  readonly leftOut: number;
  /** What was found out, a line each. */
  readonly facts: readonly string[];
  /** For the table of docs/stores.md. */
  readonly row: string;
};

/** Of all stores that a suite has open at once, with their listeners and heartbeats. */
const connectionsNeeded = 60;
const trips = 20;

/** As in `contract/kinds.ts`, which only vitest can load. */
const ours = `select nspname as name from pg_namespace
  where nspname like 'flotilla\\_test\\_%'
    and obj_description(oid, 'pg_namespace') like 'made by \`npm run test:store\` of Flotilla%'
    and pg_has_role(nspowner, 'usage')`;

/** What is found out of a server before the suites are run there. */
export type Survey = {
  readonly engine: string;
  readonly pooler: string;
  readonly tripMs: number;
};

/** Runs the suites on a server. Throws if it can't be tried, with what is missing. */
export async function proveStore(url: string, files: readonly string[] = []): Promise<Proof> {
  const store = checkStore(url);
  const { engine, pooler, tripMs } = await surveyStore(url);
  const hints = pooler === "transaction" || store.unproven === true ? "no" : "yes";
  const counts = runSuites(url, files, hints);
  const after = await openPlain(store);
  try {
    await dropLeft(after);
  } finally {
    await after.end();
  }
  const { passed, failed, leftOut } = counts;
  const how = store.unproven ? "unproven=1" : pooler === "none" ? "directly" : `pooler: ${pooler}`;
  const isClean = failed === 0 && passed > 0;
  const verdict = !isClean ? "failed" : files.length === 0 ? "proven" : `${files.join(", ")} alone`;
  const today = new Date().toISOString().slice(0, 10);
  return {
    ...counts,
    facts: [
      `engine: ${engine}`,
      `pooler: ${pooler}`,
      `round trip: ${tripMs.toFixed(2)} ms`,
      `passed: ${passed}, failed: ${failed}, left out: ${leftOut}`,
    ],
    row: `| ${engine} | ${verdict} | ${today}, ${how}: ${passed} passed, ${failed} failed, ${leftOut} left out |`,
  };
}

/**
 * Looks whether the suites can be run on a server, and drops what a run that was stopped has left there.
 * Throws with what is missing.
 */
export async function surveyStore(url: string): Promise<Survey> {
  const store = checkStore(url);
  const connection = await openPlain(store);
  try {
    const engine = await engineThere(connection, store);
    await checkWritable(connection);
    const pooler = store.pooler ?? (await poolerThere(connection));
    const tripMs = await tripThere(connection);
    await checkRights(connection);
    await checkConnections(connection);
    await dropLeft(connection);
    return { engine, pooler, tripMs };
  } finally {
    await connection.end();
  }
}

async function engineThere({ ask }: PlainConnection, store: CheckedStore): Promise<string> {
  const { unproven = false } = store;
  const [row] = await ask(`select ${engineQuery}`);
  const engine = engineOf({ version: row!["version"], hasDsql: row!["has_dsql"] });
  const lacks = engine.kind === "other" && !unproven ? await tryEngine(ask) : [];
  const refusal = refusalOf(engine, { unproven, lacks });
  if (refusal) throw refusal;
  return engine.name;
}

async function poolerThere({ ask, processId }: PlainConnection): Promise<string> {
  const [row] = await ask("select pg_backend_pid() as pid");
  return processId === row!["pid"] ? "none" : "transaction";
}

async function tripThere({ ask }: PlainConnection): Promise<number> {
  const took: number[] = [];
  for (let nth = 0; nth < trips; nth++) {
    const startedMs = performance.now();
    await ask("select 1");
    took.push(performance.now() - startedMs);
  }
  return took.toSorted((a, b) => a - b)[trips / 2]!;
}

async function checkWritable({ ask }: PlainConnection): Promise<void> {
  const [row] = await ask("select current_setting('transaction_read_only') as read_only");
  if (row!["read_only"] === "off") return;
  throw new Error("the server takes no writes, as a standby doesn't: name the primary");
}

async function checkRights({ ask }: PlainConnection): Promise<void> {
  const [row] = await ask(
    "select has_database_privilege(current_database(), 'create') as may, current_user as role, current_database() as name",
  );
  if (row!["may"]) return;
  throw new Error(
    `the role ${row!["role"]} may not create schemas: grant create on database ${row!["name"]} to ${row!["role"]}`,
  );
}

/** The least of what the server, the database and the role still allow. */
async function checkConnections({ ask }: PlainConnection): Promise<void> {
  const [row] = await ask(
    `select least(
        current_setting('max_connections', true)::integer
          - coalesce(current_setting('superuser_reserved_connections', true), '0')::integer - count(*),
        (select nullif(datconnlimit, -1) from pg_database where datname = current_database())
          - count(*) filter (where datname = current_database()),
        (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user)
          - count(*) filter (where usename = current_user))::integer as free
      from pg_stat_activity`,
  );
  // Not every server tells.
  if (row!["free"] === null) return;
  const free = Number(row!["free"]);
  if (free >= connectionsNeeded) return;
  throw new Error(
    `the suites need ${connectionsNeeded} connections, and ${Math.max(free, 0)} are free: raise max_connections or the limit of the database or the role, or close others`,
  );
}

/** Drops what a run that was stopped has left. Schemas without the mark aren't ours. */
async function dropLeft({ ask }: PlainConnection): Promise<void> {
  for (const { name } of await ask(ours)) await ask(`drop schema ${name} cascade`);
}

function runSuites(url: string, files: readonly string[], hints: "yes" | "no") {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-proof-"));
  const report = join(folder, "report.json");
  try {
    spawnSync(
      "npx",
      [
        "vitest",
        "run",
        "--project=named",
        "--reporter=default",
        "--reporter=json",
        `--outputFile.json=${report}`,
        ...files,
      ],
      {
        stdio: ["ignore", "inherit", "inherit"],
        env: { ...process.env, FLOTILLA_TEST_STORE: url, FLOTILLA_TEST_HINTS: hints },
      },
    );
    const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, numFailedTestSuites } =
      JSON.parse(readFileSync(report, "utf8"));
    // A file that couldn't be run has no tests to fail.
    const failed = Math.max(numFailedTests, numFailedTestSuites > 0 ? 1 : 0);
    return { passed: numPassedTests, failed, leftOut: numPendingTests + numTodoTests };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
