import { execFileSync, type SpawnOptions, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { serverPrograms } from "./binaries.ts";

export type PostgresServer = {
  /** Of a superuser, on the database `postgres`. */
  readonly url: string;
  stop(): Promise<void>;
};

/**
 * A Postgres server of our own: a throw-away cluster in a temporary folder on a free port of the
 * loopback, run by a user without privileges. One that is running already is never touched.
 */
export async function startPostgres(): Promise<PostgresServer> {
  const programs = serverPrograms();
  const folder = mkdtempSync(join(tmpdir(), "flotilla-postgres-"));
  const data = join(folder, "data");
  const user = unprivileged();
  if (user) {
    chownSync(folder, user.uid, user.gid);
    chmodSync(folder, 0o700);
  }
  const as: SpawnOptions = { ...user, cwd: folder };
  const run = (program: string, args: string[]) => {
    const { status, stderr } = spawnSync(join(programs, program), args, {
      ...as,
      encoding: "utf8",
      stdio: "pipe",
    });
    if (status !== 0) throw new Error(`${program} failed: ${stderr}`);
  };
  run("initdb", ["-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"]);
  const port = await freePort();
  const server = spawn(
    join(programs, "postgres"),
    [
      "-D",
      data,
      "-p",
      String(port),
      "-k",
      folder,
      "-c",
      "listen_addresses=127.0.0.1",
      "-c",
      "max_connections=300",
    ],
    { ...as, stdio: "ignore" },
  );
  const exited = once(server, "exit");
  const stop = async () => {
    server.kill("SIGINT");
    await exited;
    rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", () => server.kill("SIGKILL"));
  await ready(programs, port);
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop };
}

async function ready(programs: string, port: number): Promise<void> {
  const deadlineMs = performance.now() + 60_000;
  for (;;) {
    try {
      execFileSync(join(programs, "pg_isready"), ["-q", "-h", "127.0.0.1", "-p", String(port)]);
      return;
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** Postgres refuses to run as root. */
function unprivileged(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve((address as { port: number }).port));
    });
  });
}
