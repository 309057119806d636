import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { readMonitor } from "../../bus/nats/monitor.ts";
import { stillRuns, type LocalProcess, startProcess } from "./processes.ts";

/** A NATS server on this machine that keeps streams, in a folder of its own. */
export type LocalServer = {
  readonly name: string;
  readonly folder: string;
  readonly port: number;
  readonly monitorPort: number;
  /** Where it meets the others. A server alone has none. */
  readonly routePort?: number;
};

const startLimitMs = 60_000;
const lookEveryMs = 100;
const logLines = 5;

export function natsUrl({ port }: LocalServer): string {
  return `nats://127.0.0.1:${port}`;
}

export function monitorUrl({ monitorPort }: LocalServer): string {
  return `http://127.0.0.1:${monitorPort}`;
}

/** Starts a server that flushes before it acknowledges, with routes to all of its cluster. */
export function startServer(
  program: string,
  server: LocalServer,
  all: readonly LocalServer[],
): LocalProcess {
  const { name, folder } = server;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const config = join(folder, "server.conf");
  writeFileSync(config, configOf(server, all), { mode: 0o600 });
  return startProcess({ name, command: [program, "-c", config], log: join(folder, "output") });
}

function configOf({ name, folder, ...ports }: LocalServer, all: readonly LocalServer[]): string {
  const at = (file: string) => JSON.stringify(join(folder, file));
  const routes = all.map(({ routePort }) =>
    JSON.stringify(`nats-route://127.0.0.1:${String(routePort)}`),
  );
  // Where it takes free ports, it writes down which.
  const told = ports.port < 0 ? `ports_file_dir: ${JSON.stringify(folder)}\n` : "";
  return `server_name: ${name}
${told}listen: "127.0.0.1:${ports.port}"
http: "127.0.0.1:${ports.monitorPort}"
log_file: ${at("log")}
max_payload: 8MB
jetstream {
  store_dir: ${at("store")}
  sync_interval: always
  max_memory_store: 64MB
  max_file_store: 16GB
}
${
  ports.routePort === undefined
    ? ""
    : `cluster {
  name: flotilla
  listen: "127.0.0.1:${ports.routePort}"
  routes: [${routes.join(", ")}]
}
`
}`;
}

/** Resolves once all servers are healthy and streams can be made. Rejects with what one of them has logged. */
export async function untilServing(
  servers: readonly LocalServer[],
  processes: readonly LocalProcess[],
  { clock }: { clock: Clock },
): Promise<void> {
  const endMs = clock.monotonic() + startLimitMs;
  for (;;) {
    const serving = await Promise.all(servers.map((each) => isServing(each, servers, clock)));
    if (serving.every(Boolean)) return;
    const ended = servers.find((_, nth) => !stillRuns(processes[nth]!));
    if (ended || clock.monotonic() > endMs) {
      const slow = ended ?? servers[serving.indexOf(false)]!;
      throw new FlotillaError(
        "unavailable",
        `the NATS server ${slow.name} ${ended ? "has ended" : "doesn't get ready"}: ${lastLog(slow)}`,
      );
    }
    await sleep(clock, lookEveryMs);
  }
}

async function isServing(
  server: LocalServer,
  all: readonly LocalServer[],
  clock: Clock,
): Promise<boolean> {
  const page = (path: string) => readMonitor(`${monitorUrl(server)}${path}`, { clock });
  try {
    await page("/healthz");
    if (all.length === 1) return true;
    // Only with a leader of them all can a stream be made.
    const { meta_cluster: cluster } = (await page("/jsz")) as {
      meta_cluster?: { leader?: string; cluster_size?: number };
    };
    return Boolean(cluster?.leader) && cluster?.cluster_size === all.length;
  } catch {
    return false;
  }
}

function lastLog({ folder }: LocalServer): string {
  for (const file of ["log", "output"]) {
    try {
      const lines = readFileSync(join(folder, file), "utf8").trim().split("\n");
      if (lines.join("") !== "") return lines.slice(-logLines).join(" | ");
    } catch {
      // It has written none.
    }
  }
  return `it has logged nothing in ${folder}`;
}
