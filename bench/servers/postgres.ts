import { rmSync } from "node:fs";
import process from "node:process";
import pg from "pg";
import { startPostgres } from "../../test/postgres/server.ts";
import { diskFolder } from "../folder.ts";
import type { Server, StatementTime } from "./server.ts";

const settings = {
  fsync: "on",
  synchronous_commit: "on",
  shared_buffers: "512MB",
  max_connections: 200,
};

/** A throw-away Postgres. With `counting` it notes how long each statement takes, which costs a little. */
export async function startBenchPostgres({ counting = false } = {}): Promise<
  Server & { away(forMs: number): Promise<void> }
> {
  const preload = counting
    ? {
        shared_preload_libraries: "pg_stat_statements",
        "pg_stat_statements.track_planning": "on",
        "pg_stat_statements.track": "all",
      }
    : {};
  const within = diskFolder();
  const server = await startPostgres({ settings: { ...settings, ...preload }, within });
  process.once("exit", () => rmSync(server.folder, { recursive: true, force: true }));
  let admin = await connectAs(server.url);
  if (counting) await admin.query("create extension pg_stat_statements");
  const { rows } = await admin.query<{ version: string }>(
    "select current_setting('server_version') as version",
  );
  const shown = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const templates = new Map<string, string>();
  let made = 0;

  let busy: Promise<unknown> = Promise.resolve();
  const create = (template = "template1"): Promise<string> => {
    const name = `bench_${++made}`;
    const creating = busy.then(async () => {
      await patiently(() => admin.query(`create database ${name} template ${template}`));
      await admin.query("checkpoint");
      return `${server.url.slice(0, server.url.lastIndexOf("/"))}/${name}`;
    });
    // One at a time, since there is one connection.
    busy = creating.catch(() => {});
    return creating;
  };
  const busiest = async (): Promise<StatementTime[]> => {
    const { rows: found } = await admin.query<StatementTime>(
      `select query as text, calls::float8 as calls, rows::float8 as rows,
         total_exec_time + total_plan_time as ms
       from pg_stat_statements where calls > 0 order by ms desc limit 10`,
    );
    await admin.query("select pg_stat_statements_reset()");
    return found;
  };
  return {
    about: `PostgreSQL ${rows[0]!.version.split(" ")[0]} (${shown.join(", ")}, rest default)`,
    pid: server.pid,
    fresh: () => create(),
    async filled(key, fill) {
      if (!templates.has(key)) {
        const url = await create();
        await fill(url);
        await settle(url);
        templates.set(key, nameOf(url));
      }
      return create(templates.get(key));
    },
    async drop(url) {
      await admin.query(`drop database ${nameOf(url)} with (force)`);
    },
    ...(counting && { busiest }),
    /** Kills it, and starts it again after a while. */
    async away(forMs) {
      await server.kill();
      await new Promise((resolve) => setTimeout(resolve, forMs));
      await server.start();
      admin = await connectAs(server.url);
    },
    async stop() {
      await admin.end();
      await server.stop();
    },
  };
}

/**
 * What a server that has had time would have done by itself: the same for every system. It looks at
 * no table that is empty, since a table that is known to be empty is read whole from then on, however
 * much it has later.
 */
async function settle(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query<{ name: string }>(
    `select format('%I.%I', schemaname, relname) as name from pg_stat_user_tables
     where pg_relation_size(relid) > 0`,
  );
  for (const { name } of rows) await client.query(`vacuum analyze ${name}`);
  await client.query("checkpoint");
  await client.end();
}

async function connectAs(url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  // A server that is killed ends the connection.
  client.on("error", () => {});
  await client.connect();
  return client;
}

function nameOf(url: string): string {
  return url.slice(url.lastIndexOf("/") + 1);
}

/** A database can be copied once the last connection to it is really gone. */
async function patiently<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      const inUse = error instanceof Error && "code" in error && error.code === "55006";
      if (!inUse || tries === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
