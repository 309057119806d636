import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "../../test/free-ports.ts";
import { diskFolder } from "../folder.ts";
import { cpuMsOf } from "./cpu.ts";
import type { Place } from "./place.ts";

export type RestateSettings = {
  /** Default: what Restate has by default. */
  readonly partitions?: number;
};

// By default no more than 1,000 invocations are under way, and the bench leaves 10,000 open.
const openRuns = 20_000;
const startLimitMs = 60_000;

/** Restate's single server, with a process and data of its own for every phase. */
export function restatePlace({ partitions }: RestateSettings): Place {
  const program = restateProgram();
  const shown =
    partitions === undefined ? "24 partitions, its default" : `${partitions} partitions`;
  let running: { server: ChildProcess; folder: string } | undefined;
  const end = async () => {
    if (!running) return;
    const { server, folder } = running;
    running = undefined;
    if (server.exitCode === null && server.signalCode === null) {
      server.kill("SIGKILL");
      await once(server, "exit");
    }
    rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", () => {
    running?.server.kill("SIGKILL");
    if (running) rmSync(running.folder, { recursive: true, force: true });
  });

  const fresh = async (): Promise<string> => {
    await end();
    const folder = mkdtempSync(join(diskFolder(), "flotilla-restate-"));
    const [ingress, admin, fabric, service] = await Promise.all([
      freePort(),
      freePort(),
      freePort(),
      freePort(),
    ]);
    const server = spawn(program, ["--no-logo"], {
      cwd: folder,
      stdio: "ignore",
      env: {
        ...process.env,
        RESTATE_BASE_DIR: folder,
        RESTATE_NODE_NAME: "bench",
        RESTATE_LISTEN_MODE: "tcp",
        RESTATE_BIND_IP: "127.0.0.1",
        RESTATE_BIND_PORT: String(fabric),
        RESTATE_INGRESS__BIND_PORT: String(ingress),
        RESTATE_ADMIN__BIND_PORT: String(admin),
        RESTATE_DISABLE_TELEMETRY: "true",
        RESTATE_LOG_FILTER: "error",
        RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT: String(openRuns),
        ...(partitions && { RESTATE_DEFAULT_NUM_PARTITIONS: String(partitions) }),
      },
    });
    running = { server, folder };
    await Promise.all([
      healthy(`http://127.0.0.1:${admin}/health`, server),
      healthy(`http://127.0.0.1:${ingress}/restate/health`, server),
    ]);
    return `http://127.0.0.1:${ingress}/?admin=${admin}&service=${service}`;
  };
  return {
    about: `Restate (${shown}; concurrent-invocations-limit ${openRuns.toLocaleString("en-US")})`,
    fresh,
    // What it holds can't be copied while it runs, so it is filled each time.
    async filled(_key, fill) {
      const url = await fresh();
      await fill(url);
      return url;
    },
    drop: end,
    cpuMs: () => (running ? cpuMsOf(running.server.pid!) : undefined),
    stop: end,
  };
}

/** The program itself, which npm has put into a package of this machine's kind. */
function restateProgram(): string {
  const require = createRequire(import.meta.url);
  const kind = `@restatedev/restate-server-${process.platform}-${process.arch}`;
  return require.resolve(`${kind}/bin/restate-server`);
}

async function healthy(url: string, server: ChildProcess): Promise<void> {
  const deadlineMs = performance.now() + startLimitMs;
  for (;;) {
    const answer = await fetch(url).catch(() => undefined);
    if (answer?.ok) return;
    if (server.exitCode !== null) throw new Error(`Restate ended with ${server.exitCode}`);
    if (performance.now() > deadlineMs)
      throw new Error(`Restate isn't up after ${startLimitMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
