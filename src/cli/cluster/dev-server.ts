import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { findDev } from "../dev-file.ts";
import { checkNatsClients, natsServerProgram } from "./nats-program.ts";
import { type LocalServer, natsUrl, startServer, untilServing } from "./nats-servers.ts";
import { stillRuns, type LocalProcess, stopProcess } from "./processes.ts";

/** The one NATS server of a `flotilla dev --nats`. */
export type DevServer = {
  /** What `FLOTILLA_NATS` would say of it. */
  readonly nats: string;
  stop(): Promise<void>;
};

const portsLimitMs = 10_000;
const lookEveryMs = 50;
/** The server takes free ones, and writes them down. */
const anyPort = -1;

/**
 * Starts one server in a folder that keeps its streams, for one's own machine: what it has acknowledged is in
 * one copy. A server that an earlier `flotilla dev` left behind is used, because two would share its files.
 */
export async function startDevServer(
  given: string,
  { clock }: { clock: Clock },
): Promise<DevServer> {
  checkNatsClients();
  const folder = resolve(given);
  const left = readState(folder);
  if (left && stillRuns(left.process) && (await findDev())) {
    throw new FlotillaError(
      "conflict",
      `another \`flotilla dev --nats\` uses ${folder}: end it first, or run this one in another folder`,
    );
  }
  const found = left && stillRuns(left.process) ? left : await start(folder, clock);
  const { process, server } = found;
  const stop = async () => {
    await stopProcess(process, { clock });
    rmSync(stateFile(folder), { force: true });
  };
  try {
    await untilServing([server], [process], { clock });
  } catch (error) {
    await stop();
    throw error;
  }
  return { nats: `${natsUrl(server)}?use=all&durability=single`, stop };
}

type State = { readonly process: LocalProcess; readonly server: LocalServer };

async function start(folder: string, clock: Clock): Promise<State> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const old of globSync(join(folder, "*.ports"))) rmSync(old, { force: true });
  const asked = { name: "dev", folder, port: anyPort, monitorPort: anyPort };
  const process = startServer(natsServerProgram(), asked, [asked]);
  const endMs = clock.monotonic() + portsLimitMs;
  for (;;) {
    const ports = readPorts(folder, process.pid);
    if (ports) {
      const state = { process, server: { ...asked, ...ports } };
      writeFileSync(stateFile(folder), JSON.stringify(state), { mode: 0o600 });
      return state;
    }
    if (clock.monotonic() > endMs || !stillRuns(process)) {
      await stopProcess(process, { clock });
      throw new FlotillaError("unavailable", `the NATS server in ${folder} didn't start: see log`);
    }
    await sleep(clock, lookEveryMs);
  }
}

function readPorts(
  folder: string,
  pid: number,
): Pick<State["server"], "port" | "monitorPort"> | undefined {
  const [path] = globSync(join(folder, `*_${pid}.ports`));
  if (path === undefined) return undefined;
  try {
    const { nats, monitoring } = JSON.parse(readFileSync(path, "utf8")) as Record<string, string[]>;
    const portOf = (urls: string[] | undefined) => Number(new URL(urls![0]!).port);
    return { port: portOf(nats), monitorPort: portOf(monitoring) };
  } catch {
    // It is being written.
    return undefined;
  }
}

function stateFile(folder: string): string {
  return join(folder, "server.json");
}

function readState(folder: string): State | undefined {
  try {
    return JSON.parse(readFileSync(stateFile(folder), "utf8")) as State;
  } catch {
    return undefined;
  }
}
