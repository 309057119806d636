import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { readMonitor } from "../../bus/nats/monitor.ts";
import {
  type LocalServer,
  monitorUrl,
  natsUrl,
  startServer,
  untilServing,
} from "./nats-servers.ts";
import { checkNatsClients, natsServerProgram } from "./nats-program.ts";
import { stillRuns, type LocalProcess, startProcess, stopProcess } from "./processes.ts";

/** Three NATS servers and three pods on this machine, as a folder remembers them. */
export type LocalCluster = {
  readonly servers: readonly (LocalProcess & { readonly url: string; readonly monitor: string })[];
  readonly pods: readonly (LocalProcess & { readonly url: string })[];
};

export type ClusterOptions = {
  /** Where configs, logs and streams are kept. */
  folder: string;
  /** The first of twelve ports. */
  port: number;
  /** The Postgres of the pods. */
  store: string;
  /** The config file that pods are told of, if any. */
  config?: string | undefined;
  clock: Clock;
};

/** What is known of one process of a cluster. */
export type ClusterMember = {
  readonly name: string;
  readonly kind: "server" | "pod";
  readonly pid: number;
  readonly url: string;
  readonly state: "up" | "not ready" | "down";
  readonly about: string;
};

const members = [0, 1, 2];
const podLimitMs = 60_000;
const lookEveryMs = 200;
const logLines = 5;

/** Starts servers, then pods, and waits until all are ready. What was started is stopped if one fails. */
export async function startCluster(options: ClusterOptions): Promise<LocalCluster> {
  const { port, clock } = options;
  const folder = resolve(options.folder);
  checkNatsClients();
  const program = natsServerProgram();
  const known = readCluster(folder);
  if (known && all(known).some(stillRuns)) {
    throw new FlotillaError(
      "conflict",
      `a cluster of ${folder} is up already: \`flotilla cluster status\` shows it, \`flotilla cluster down\` ends it`,
    );
  }
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const servers = members.map((nth) => ({
    name: `n${nth + 1}`,
    folder: join(folder, `n${nth + 1}`),
    port: port + nth,
    routePort: port + 3 + nth,
    monitorPort: port + 6 + nth,
  }));
  let cluster: LocalCluster = { servers: [], pods: [] };
  const keep = (next: LocalCluster) => {
    cluster = next;
    writeCluster(folder, cluster);
  };
  try {
    for (const server of servers) {
      const started = startServer(program, server, servers);
      const known = { ...started, url: natsUrl(server), monitor: monitorUrl(server) };
      keep({ ...cluster, servers: [...cluster.servers, known] });
    }
    await untilServing(servers, cluster.servers, { clock });
    for (const nth of members) {
      const at = { name: `pod${nth + 1}`, port: port + 9 + nth, folder };
      const started = startPodProcess(at, servers, options);
      keep({ ...cluster, pods: [...cluster.pods, started] });
    }
    await Promise.all(cluster.pods.map((pod) => untilReady(pod, folder, clock)));
    // The streams that pods have made elect their leaders meanwhile.
    await untilServing(servers, cluster.servers, { clock });
    return cluster;
  } catch (error) {
    await stopCluster(folder, { clock });
    throw error;
  }
}

function startPodProcess(
  { name, port, folder }: { name: string; port: number; folder: string },
  servers: readonly LocalServer[],
  { store, config }: ClusterOptions,
): LocalProcess & { url: string } {
  const monitors = servers.map((each) => `monitor=${monitorUrl(each)}`);
  const nats = `${servers.map(natsUrl).join(",")}?use=all&${monitors.join("&")}`;
  const flags = ["--port", String(port), "--data-dir", join(folder, name)];
  const log = join(folder, `${name}.log`);
  rmSync(log, { force: true });
  const started = startProcess({
    name,
    // The same command by which this one was started, wherever it is installed.
    command: [
      process.execPath,
      ...process.execArgv,
      process.argv[1]!,
      "serve",
      ...flags,
      ...(config === undefined ? [] : ["--config", resolve(config)]),
    ],
    log,
    // A URL among the arguments would show its password to every user of the machine.
    env: { ...process.env, FLOTILLA_STORE: store, FLOTILLA_NATS: nats },
  });
  return { ...started, url: `http://127.0.0.1:${port}` };
}

async function untilReady(
  pod: LocalCluster["pods"][number],
  folder: string,
  clock: Clock,
): Promise<void> {
  const endMs = clock.monotonic() + podLimitMs;
  const told = () => textOf(join(folder, `${pod.name}.log`));
  // A server answers before its pod has started, and says where once it has.
  const isReady = async () =>
    told().includes(`listens on ${pod.url}`) && (await healthOf(pod.url, clock)) !== undefined;
  while (!(await isReady())) {
    const hasEnded = !stillRuns(pod);
    if (hasEnded || clock.monotonic() > endMs) {
      const lines = told().trim().split("\n");
      throw new FlotillaError(
        "unavailable",
        `${pod.name} ${hasEnded ? "has ended" : "doesn't get ready"}: ${lines.slice(-logLines).join(" | ")}`,
      );
    }
    await sleep(clock, lookEveryMs);
  }
}

/** What all processes of a folder's cluster say of themselves. Undefined: there is none. */
export async function clusterStatus(
  folder: string,
  { clock }: { clock: Clock },
): Promise<ClusterMember[] | undefined> {
  const cluster = readCluster(resolve(folder));
  if (!cluster) return undefined;
  const servers = cluster.servers.map(async (server): Promise<ClusterMember> => {
    const { name, pid, url, monitor } = server;
    const member = { name, kind: "server", pid, url } as const;
    if (!stillRuns(server)) return { ...member, state: "down", about: "" };
    const page = (path: string) =>
      readMonitor(`${monitor}${path}`, { clock }).catch(() => undefined);
    const told = (await page("/varz")) as { version?: string } | undefined;
    // Whether all of its streams are current changes from moment to moment.
    const isHealthy = (await page("/healthz?js-server-only=true")) !== undefined;
    const about = told?.version === undefined ? "" : `nats-server ${told.version}`;
    return { ...member, state: isHealthy ? "up" : "not ready", about };
  });
  const pods = cluster.pods.map(async (pod): Promise<ClusterMember> => {
    const { name, pid, url } = pod;
    const member = { name, kind: "pod", pid, url } as const;
    if (!stillRuns(pod)) return { ...member, state: "down", about: "" };
    const health = await healthOf(url, clock);
    if (health === undefined) return { ...member, state: "not ready", about: "" };
    const about = `nats ${health.nats ?? "unknown"}${health.archive === "away" ? ", the database is away" : ""}`;
    return { ...member, state: "up", about };
  });
  return Promise.all([...servers, ...pods]);
}

/** Ends what a cluster of a folder consists of, pods first. Returns how many processes ran. */
export async function stopCluster(folder: string, { clock }: { clock: Clock }): Promise<number> {
  const path = resolve(folder);
  const cluster = readCluster(path);
  if (!cluster) return 0;
  const running = all(cluster).filter(stillRuns).length;
  // A pod hands its logs on, which needs servers.
  await Promise.all(cluster.pods.map((each) => stopProcess(each, { clock })));
  await Promise.all(cluster.servers.map((each) => stopProcess(each, { clock })));
  rmSync(stateFile(path), { force: true });
  return running;
}

async function healthOf(
  url: string,
  clock: Clock,
): Promise<{ nats?: string; archive?: string } | undefined> {
  try {
    return (await readMonitor(`${url}/health/ready`, { clock })) as { nats?: string };
  } catch {
    return undefined;
  }
}

function all({ servers, pods }: LocalCluster): LocalProcess[] {
  return [...servers, ...pods];
}

function stateFile(folder: string): string {
  return join(folder, "cluster.json");
}

function writeCluster(folder: string, cluster: LocalCluster): void {
  const written = `${stateFile(folder)}.new`;
  writeFileSync(written, JSON.stringify(cluster, null, 2), { mode: 0o600 });
  renameSync(written, stateFile(folder));
}

function readCluster(folder: string): LocalCluster | undefined {
  if (!existsSync(stateFile(folder))) return undefined;
  try {
    const { servers, pods } = JSON.parse(textOf(stateFile(folder))) as Partial<LocalCluster>;
    if (Array.isArray(servers) && Array.isArray(pods)) return { servers, pods };
  } catch {
    // Said below.
  }
  throw new FlotillaError(
    "invalid_option",
    `${stateFile(folder)} isn't what \`flotilla cluster up\` writes: remove it, and end what it has started by hand`,
  );
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
