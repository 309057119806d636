import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import pg from "pg";
import { freePort } from "../free-ports.ts";
import { serverPrograms } from "./binaries.ts";
import { type Unprivileged, unprivileged } from "./user.ts";

export type PostgresServer = {
  /** Of a superuser, on the database `postgres`. */
  readonly url: string;
  readonly port: number;
  /** The folder that its data lives in. */
  readonly folder: string;
  /** The process that all others of the server come from. */
  readonly pid: number;
  /** Ends it and removes its data. */
  stop(): Promise<void>;
  /** Ends it without any goodbye, by SIGKILL or, as an immediate shutdown does, by SIGQUIT. */
  kill(signal?: "SIGKILL" | "SIGQUIT"): Promise<void>;
  /** Starts it again on the same data and the same port. */
  start(): Promise<void>;
  /** Has another server follow this one, whose commits wait for it from then on. */
  startStandby(): Promise<PostgresServer & { promote(): Promise<void> }>;
};

export type PostgresServerOptions = {
  /** As in postgresql.conf. */
  settings?: Readonly<Record<string, string | number>>;
  env?: Readonly<Record<string, string>>;
  /** Where its folder is made. Default: the system's place for temporary files. */
  within?: string;
  /** The address that it listens on. Default `127.0.0.1`. */
  address?: string;
  /** A program that its process is started by as this user, with its arguments. */
  under?: (user: Unprivileged | undefined) => readonly string[];
};

const loopback = "127.0.0.1";
const usualSettings = { max_connections: 300 };

/**
 * A Postgres server of our own: a throw-away cluster in a temporary folder on a free port of the
 * loopback, run by a user without privileges. One that is running already is never touched.
 */
export function startPostgres(options: PostgresServerOptions = {}): Promise<PostgresServer> {
  return startServer(options, undefined);
}

async function startServer(
  options: PostgresServerOptions,
  /** The port of the server that it is a standby of. */
  primaryPort: number | undefined,
): Promise<PostgresServer> {
  const { settings = {}, env = {}, within = tmpdir(), address = loopback, under } = options;
  const programs = serverPrograms();
  const folder = mkdtempSync(join(within, "flotilla-postgres-"));
  const data = join(folder, "data");
  const user = unprivileged();
  if (user) {
    chownSync(folder, user.uid, user.gid);
    chmodSync(folder, 0o700);
  }
  const as: SpawnOptions = { ...user, cwd: folder };
  const run = (program: string, args: string[]) => {
    const { status, stderr, error } = spawnSync(join(programs, program), args, {
      ...as,
      encoding: "utf8",
      stdio: "pipe",
    });
    if (status !== 0) throw new Error(`${program} failed: ${error?.message ?? stderr}`);
  };
  if (primaryPort === undefined) {
    run("initdb", ["-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"]);
  } else {
    const from = ["-h", "127.0.0.1", "-p", String(primaryPort), "-U", "postgres"];
    run("pg_basebackup", ["-D", data, ...from, "-R", "-X", "stream", "-c", "fast", "-N"]);
  }
  // By itself it knows callers of this machine alone.
  if (address !== loopback) appendFileSync(join(data, "pg_hba.conf"), "host all all all trust\n");
  const port = await freePort();
  const url = `postgres://postgres@${address}:${port}/postgres`;
  const given = Object.entries({ ...usualSettings, listen_addresses: address, ...settings });
  const args = ["-D", data, "-p", String(port), "-k", folder];
  for (const [name, value] of given) args.push("-c", `${name}=${value}`);
  let server: ChildProcess;
  let exited: Promise<unknown>;
  const launch = () => {
    const [program, ...rest] = [...(under?.(user) ?? []), join(programs, "postgres"), ...args];
    server = spawn(program!, rest, {
      ...(under ? { cwd: folder } : as),
      env: { ...process.env, ...env },
      stdio: "ignore",
    });
    exited = once(server, "exit");
  };
  const killAtExit = () => server.kill("SIGKILL");
  process.once("exit", killAtExit);
  const start = async () => {
    // What a killed server leaves behind holds its memory for a moment, and keeps the next one out.
    for (let tries = 1; ; tries++) {
      launch();
      const up = await Promise.race([ready(url).then(() => true), exited.then(() => false)]);
      if (up) return;
      if (tries === startTries) throw new Error("the Postgres server doesn't start");
      await moment();
    }
  };
  await start();
  return {
    url,
    port,
    folder,
    get pid() {
      return server.pid!;
    },
    start,
    async startStandby() {
      const standby = await startServer(options, port);
      await asked(url, "alter system set synchronous_standby_names = '*'");
      await asked(url, "select pg_reload_conf()");
      const isSynchronous = "select 1 from pg_stat_replication where sync_state = 'sync'";
      while ((await asked(url, isSynchronous)).length === 0) await moment();
      return Object.assign(standby, {
        promote: async () => void (await asked(standby.url, "select pg_promote()")),
      });
    },
    async kill(signal = "SIGKILL") {
      server.kill(signal);
      await exited;
    },
    async stop() {
      server.kill("SIGINT");
      await exited;
      process.off("exit", killAtExit);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const startTries = 100;

/** Asks by connecting, since not every package of the server brings `pg_isready`. */
async function ready(url: string): Promise<void> {
  const deadlineMs = performance.now() + 60_000;
  for (;;) {
    const client = new pg.Client(url);
    client.on("error", () => {});
    try {
      await client.connect();
      await client.end();
      return;
    } catch (error) {
      if (isRefusal(error)) return;
      if (performance.now() > deadlineMs) throw error;
      await moment();
    }
  }
}

async function asked(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

function moment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 100));
}

/** A server that refuses a connection is up, unless it says that it is only starting. */
function isRefusal(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return /^[0-9A-Z]{5}$/.test(code) && code !== "57P03";
}
