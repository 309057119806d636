import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { part } from "../parts.ts";
import { freePort } from "../free-ports.ts";
import { unprivileged } from "./user.ts";

export type PgBouncer = {
  /** The way to a database through the pooler, by its direct URL. */
  through(url: string): string;
  stop(): Promise<void>;
};

export type PgBouncerOptions = {
  /** A URL of the server, as its superuser. */
  server: string;
  /** As in pgbouncer.ini. */
  settings?: Readonly<Record<string, string | number>>;
};

/** PgBouncer between us and a server, in transaction mode with few connections if not said otherwise. */
export async function startPgBouncer({
  server,
  settings = {},
}: PgBouncerOptions): Promise<PgBouncer> {
  const program = part("pgbouncer");
  const folder = mkdtempSync(join(tmpdir(), "flotilla-pgbouncer-"));
  const { hostname, port: serverPort, username } = new URL(server);
  const port = Number(settings["listen_port"] ?? (await freePort()));
  const given = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "trust",
    auth_file: join(folder, "users"),
    pool_mode: "transaction",
    default_pool_size: 3,
    max_client_conn: 200,
    ...settings,
  };
  const lines = Object.entries(given).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(join(folder, "users"), `"${username}" ""\n`);
  writeFileSync(
    join(folder, "pgbouncer.ini"),
    `[databases]\n* = host=${hostname} port=${serverPort}\n[pgbouncer]\n${lines.join("\n")}\n`,
  );
  const user = unprivileged();
  if (user) {
    chownSync(folder, user.uid, user.gid);
    chmodSync(folder, 0o755);
  }
  const pooler = spawn(program, ["-q", join(folder, "pgbouncer.ini")], {
    ...user,
    cwd: folder,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  pooler.stderr.setEncoding("utf8").on("data", (chunk: string) => (said += chunk));
  const exited = once(pooler, "exit");
  const killAtExit = () => pooler.kill("SIGKILL");
  process.once("exit", killAtExit);
  await answering(port, () => (pooler.exitCode === null ? undefined : said));
  return {
    through: (url) => url.replace(/@[^/]+\//, `@127.0.0.1:${port}/`),
    async stop() {
      pooler.kill("SIGKILL");
      await exited;
      process.off("exit", killAtExit);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function answering(port: number, died: () => string | undefined): Promise<void> {
  const deadlineMs = performance.now() + 30_000;
  for (;;) {
    const said = died();
    if (said !== undefined) throw new Error(`pgbouncer ended: ${said}`);
    const socket = connect(port, "127.0.0.1");
    const open = await Promise.race([
      once(socket, "connect").then(() => true),
      once(socket, "error").then(() => false),
    ]).catch(() => false);
    socket.destroy();
    if (open) return;
    if (performance.now() > deadlineMs) throw new Error("pgbouncer doesn't answer");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
