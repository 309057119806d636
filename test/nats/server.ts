import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { part } from "../parts.ts";
import { freePorts } from "../free-ports.ts";

export type NatsServer = {
  readonly name: string;
  readonly url: string;
  readonly port: number;
  /** Where it tells of itself over HTTP, such as `/varz` and `/healthz`. */
  readonly monitorUrl: string;
  /** The folder that its config, log and store live in. */
  readonly folder: string;
  readonly pid: number;
  /** What it has logged so far. */
  log(): string;
  /** Ends it without any goodbye, or as the signal says. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Stops or continues its process, or has it do what the signal says. */
  signal(signal: NodeJS.Signals): void;
  /** Starts it again on the same ports and the same store. */
  start(): Promise<void>;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
};

export type NatsCluster = {
  readonly servers: readonly NatsServer[];
  readonly urls: readonly string[];
  stop(): Promise<void>;
};

export type NatsServerOptions = {
  /** Keeps streams. Default false. */
  jetStream?: boolean;
  /** When streams are flushed. Default `always`: before each acknowledgement. */
  syncInterval?: string;
  /** How much of the disk streams may take. Default `16GB`. */
  maxFileStore?: string;
  /** More of the server's own configuration, such as users and TLS. */
  config?: string;
  /** The host that clients are told to connect to. Default `127.0.0.1`. */
  host?: string;
  /** Where its folder is made. Default: the system's place for temporary files. */
  within?: string;
  /** The address that it listens on. Default `127.0.0.1`. */
  address?: string;
  /** A program that its process is started by, with its arguments, such as `["nsenter", …]`. */
  under?: readonly string[];
};

/** Where the servers of a cluster are. */
export type NatsPlaces = {
  /** What the nth server has of its own. */
  options(nth: number): Pick<NatsServerOptions, "address" | "host" | "under" | "within">;
  /** The URL that one server reaches the routes of another by. */
  route?(from: number, to: number, url: string): Promise<string>;
};

const startMs = 120_000;

/** A NATS server of our own, on free ports of the loopback, in a temporary folder. */
export async function startNats(options: NatsServerOptions = {}): Promise<NatsServer> {
  const port = await freePorts(2);
  const server = createServer("n1", { port, monitorPort: port + 1 }, options);
  try {
    await server.start();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

/** Three servers with routes to each other, which keep streams unless `jetStream` is false. */
export async function startNatsCluster(
  options: NatsServerOptions = {},
  places: NatsPlaces = { options: () => ({}) },
): Promise<NatsCluster> {
  const { jetStream = true, ...rest } = options;
  const first = await freePorts(9);
  const all = [0, 1, 2];
  const listens = all.map((nth) => `${places.options(nth).address ?? loopback}:${first + 6 + nth}`);
  const servers = await Promise.all(
    all.map(async (nth) => {
      const ways = all.map(async (to) => {
        const url = `nats-route://${listens[to]}`;
        return to === nth ? url : ((await places.route?.(nth, to, url)) ?? url);
      });
      // What servers tell each other of their addresses would lead past the ways that were given.
      const hidden = places.route ? `no_advertise: true\n  advertise: "${loopback}:1"` : "";
      const cluster = `cluster {
  name: tests
  listen: "${listens[nth]}"
  routes: [${(await Promise.all(ways)).map((route) => JSON.stringify(route)).join(", ")}]
  ${hidden}
}`;
      const config = [cluster, rest.config ?? ""].join("\n");
      const at = { port: first + nth, monitorPort: first + 3 + nth };
      const own = { ...rest, ...places.options(nth), jetStream, config };
      return createServer(`n${nth + 1}`, at, own);
    }),
  );
  const stop = async () => {
    await Promise.all(servers.map((each) => each.stop()));
  };
  try {
    await Promise.all(servers.map((each) => each.start()));
    await meshed(servers);
    if (jetStream) await allHealthy(servers);
    return { servers, urls: servers.map(({ url }) => url), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

const loopback = "127.0.0.1";

type Ports = { readonly port: number; readonly monitorPort: number };

function createServer(
  name: string,
  { port, monitorPort }: Ports,
  options: NatsServerOptions,
): NatsServer {
  const { jetStream = false, config = "", within = tmpdir(), under = [] } = options;
  const { address = loopback, host = address } = options;
  const { syncInterval = "always", maxFileStore = "16GB" } = options;
  const program = part("nats");
  const folder = mkdtempSync(join(within, "flotilla-nats-"));
  const at = (file: string) => join(folder, file);
  const monitorUrl = `http://${address}:${monitorPort}`;
  const store = `jetstream {
  store_dir: ${JSON.stringify(at("store"))}
  sync_interval: ${syncInterval}
  max_memory_store: 256MB
  max_file_store: ${maxFileStore}
}`;
  writeFileSync(
    at("server.conf"),
    [
      `server_name: ${name}`,
      `listen: "${address}:${port}"`,
      `http: "${address}:${monitorPort}"`,
      "max_payload: 8MB",
      `log_file: ${JSON.stringify(at("log"))}`,
      ...(jetStream ? [store] : []),
      config,
      "",
    ].join("\n"),
  );
  let child: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();
  const killAtExit = () => child?.kill("SIGKILL");
  const log = () => {
    try {
      return readFileSync(at("log"), "utf8");
    } catch {
      return "";
    }
  };
  const kill = async (signal: NodeJS.Signals = "SIGKILL") => {
    child?.kill(signal);
    // One that was stopped can't end before it goes on.
    child?.kill("SIGCONT");
    await exited;
    child = undefined;
    process.off("exit", killAtExit);
  };
  return {
    name,
    url: `nats://${host}:${port}`,
    port,
    monitorUrl,
    folder,
    get pid() {
      return child!.pid!;
    },
    log,
    kill,
    signal: (signal) => void child?.kill(signal),
    async start() {
      const [first, ...args] = [...under, program, "-c", at("server.conf")];
      const started = spawn(first!, args, { stdio: "ignore" });
      child = started;
      exited = once(started, "exit");
      process.once("exit", killAtExit);
      let hasEnded = false;
      void exited.then(() => (hasEnded = true));
      await until(`the NATS server ${name}`, async () => {
        if (hasEnded) throw new Error(`the NATS server ${name} has ended: ${log()}`);
        return await accepts(address, port);
      });
    },
    async stop() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function meshed(servers: readonly NatsServer[]): Promise<void> {
  await until("routes between all servers", async () => {
    const peers = await Promise.all(
      servers.map(async ({ monitorUrl }) => {
        const { routes } = (await asked(`${monitorUrl}/routez`)) as {
          routes?: { remote_name?: string }[];
        };
        return new Set(routes?.map((route) => route.remote_name)).size;
      }),
    );
    return peers.every((count) => count >= servers.length - 1);
  });
}

/** Healthy servers have a leader of all streams, so that one can be made. */
async function allHealthy(servers: readonly NatsServer[]): Promise<void> {
  await until("a leader of the cluster", async () => {
    const all = await Promise.all(
      servers.map(({ monitorUrl }) => asked(`${monitorUrl}/jsz`).catch(() => ({}))),
    );
    const leaders = all.map(
      (each) => (each as { meta_cluster?: { leader?: string } }).meta_cluster,
    );
    const health = await Promise.all(
      servers.map(({ monitorUrl }) => fetch(`${monitorUrl}/healthz`).then(({ ok }) => ok)),
    );
    return leaders.every((each) => Boolean(each?.leader)) && health.every(Boolean);
  });
}

async function asked(url: string): Promise<unknown> {
  return (await fetch(url)).json();
}

function accepts(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, address);
    // It speaks first, once it takes clients.
    socket.once("data", () => (socket.destroy(), resolve(true)));
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
  });
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + startMs;
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`${what} didn't come up in ${startMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
