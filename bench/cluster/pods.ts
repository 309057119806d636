import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { built } from "../../test/built.ts";
import { openLogReader } from "../../test/cluster/log-reader.ts";
import { makeBuild } from "../../test/make-build.ts";
import { diskFolder } from "../folder.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import { logOf } from "../../src/sessions/log/placement.ts";
import { pause } from "./appender.ts";
import type { ClusterSite } from "./works.ts";

/** Three `flotilla serve` of the built package, whose logs are on the servers of a site. */
export type Pods = {
  /** The URL of their Postgres. */
  readonly store: string;
  readonly logs: number;
  /** Those that run. */
  readonly running: readonly BenchPod[];
  start(): Promise<BenchPod>;
  /** The pod that owns each log, by the last message of its stream. */
  owners(): Promise<readonly (string | null)[]>;
  /** The texts of turns that the agent `slow` was called for, in any pod, once for each call. */
  called(): readonly string[];
  /** Runs a command with the config of the pods, and returns what it prints. */
  command(args: readonly string[]): Promise<string>;
  /** Has their Postgres away for a while, and resolves when it is back. */
  takePostgresAway(forMs: number): Promise<void>;
  close(): Promise<void>;
};

export type BenchPod = {
  readonly podId: string;
  readonly url: string;
  readonly pid: number;
  signal(signal: NodeJS.Signals): void;
  /** Resolves with its exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
};

export type PodsOptions = {
  /** How long a turn of the agent `slow` takes. Default 1,000. */
  readonly turnMs?: number;
  /** `bus`: logs are in Postgres at first. Default: on the servers of the site. */
  readonly use?: "bus" | "all";
};

const podLimitMs = 60_000;
const ownedLimitMs = 60_000;
const lookEveryMs = 50;
const shownLines = 5;
/** What pods' streams begin with, by default. */
export const namespace = "flotilla";

export async function openPods(
  { nats, logs, options }: ClusterSite,
  { turnMs = 1_000, use = "all" }: PodsOptions = {},
): Promise<Pods> {
  await using opening = new AsyncDisposableStack();
  await makeBuild();
  const folder = mkdtempSync(join(diskFolder(), "flotilla-bench-pods-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", remove);
  opening.defer(remove);
  const postgres = await startBenchPostgres();
  opening.defer(() => postgres.stop());
  const store = await postgres.fresh();
  const reader = await openLogReader(nats, namespace);
  opening.defer(() => reader.close());
  const callsFile = join(folder, "calls");
  writeFileSync(callsFile, "");
  writeFileSync(join(folder, "flotilla.config.mjs"), configOf({ callsFile, turnMs, logs }));
  const monitors = nats.servers.map(({ monitorUrl }) => `monitor=${monitorUrl}`);
  const env = {
    ...process.env,
    FLOTILLA_STORE: store,
    FLOTILLA_NATS: `${nats.urls.join(",")}?use=${use}&${monitors.join("&")}`,
  };
  const children = new Set<ChildProcess>();
  const killAll = () => children.forEach((child) => child.kill("SIGKILL"));
  process.once("exit", killAll);
  opening.defer(async () => {
    const all = [...children].map((child) => once(child, "exit"));
    killAll();
    await Promise.all(all);
    process.off("exit", killAll);
  });
  const running: BenchPod[] = [];
  let started = 0;

  const start = async (): Promise<BenchPod> => {
    const path = join(folder, `pod${++started}.log`);
    const output = openSync(path, "a");
    const flags = ["serve", "--port", "0", "--data-dir", join(folder, `pod${started}`)];
    const child = spawn(process.execPath, [built.command, ...flags], {
      cwd: folder,
      env,
      stdio: ["ignore", output, output],
    });
    closeSync(output);
    children.add(child);
    const ended = new Promise<number | string>((resolve) => {
      child.once("exit", (code, signal) => {
        children.delete(child);
        resolve(code ?? signal ?? "unknown");
      });
    });
    const endMs = performance.now() + podLimitMs;
    for (;;) {
      const told = readFileSync(path, "utf8");
      const url = /listens on (http:\/\/\S+)/.exec(told)?.[1];
      const podId = /"pod":"([^"]+)"[^\n]*"pod started"/.exec(told)?.[1];
      if (url !== undefined && podId !== undefined) {
        const pod: BenchPod = {
          podId,
          url,
          pid: child.pid!,
          signal: (signal) => void child.kill(signal),
          ended,
        };
        running.push(pod);
        void ended.then(() => running.splice(running.indexOf(pod), 1));
        return pod;
      }
      if (!children.has(child) || performance.now() > endMs) {
        const lines = told.trim().split("\n").slice(-shownLines);
        throw new Error(`a pod didn't start: ${lines.join(" | ")}`);
      }
      await pause(lookEveryMs);
    }
  };

  // A server that was just killed, or a stream without a leader, tells nothing for a while.
  const owners: Pods["owners"] = async () => {
    const endMs = performance.now() + ownedLimitMs;
    for (;;) {
      const heads = await reader.heads().catch(() => []);
      if (heads.length > 0) return heads.map(({ owner }) => owner);
      if (performance.now() > endMs) throw new Error("the servers don't tell who owns the logs");
      await pause(lookEveryMs);
    }
  };

  await Promise.all([start(), start(), start()]);
  await makeSessions(running[0]!.url, ["the-first-makes-the-logs"]);
  if (use === "all") {
    const counts = countsOf(running, await allOwned(running, owners, { isSpread: true }));
    options.progress(`three pods serve ${counts.join(", ")} logs`);
  }
  const stack = opening.move();
  return {
    store,
    logs,
    running,
    start,
    owners,
    called: () => readFileSync(callsFile, "utf8").split("\n").slice(0, -1),
    command: (args) => runCommand(args, { cwd: folder, env }),
    takePostgresAway: (forMs) => postgres.away(forMs),
    close: () => stack.disposeAsync(),
  };
}

/** Runs the command of the built package. Rejects with what it says if it fails. */
export async function runCommand(
  args: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv },
): Promise<string> {
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, [built.command, ...args], options);
  return stdout;
}

/** Waits until each log is owned by a pod that runs, and if that is wanted, each pod has its part of them. */
export async function allOwned(
  running: readonly BenchPod[],
  owners: Pods["owners"],
  { isSpread = false } = {},
): Promise<readonly (string | null)[]> {
  const endMs = performance.now() + ownedLimitMs;
  for (;;) {
    const found = await owners();
    const counts = countsOf(running, found);
    const least = isSpread ? Math.floor(found.length / running.length) : 0;
    const isOwned = counts.reduce((sum, count) => sum + count, 0) === found.length;
    if (isOwned && counts.every((count) => count >= least)) return found;
    if (performance.now() > endMs) {
      throw new Error(`of ${found.length} logs the pods that run own ${counts.join(", ")}`);
    }
    await pause(lookEveryMs);
  }
}

/** How many logs each pod owns. */
export function countsOf(
  running: readonly BenchPod[],
  owners: readonly (string | null)[],
): readonly number[] {
  return running.map(({ podId }) => owners.filter((owner) => owner === podId).length);
}

/** A session in each log. */
export function sessionPerLog(prefix: string, logs: number): readonly string[] {
  const found: string[] = [];
  for (let at = 0; found.filter(Boolean).length < logs; at++) {
    const session = `${prefix}-${at}`;
    found[logOf(session, logs)] ??= session;
  }
  return found;
}

/** Makes sessions, with an agent or as plain logs. */
export async function makeSessions(
  url: string,
  sessionIds: readonly string[],
  agents: readonly string[] = [],
): Promise<void> {
  for (const sessionId of sessionIds) {
    const made = await post(`${url}/v1/sessions`, { sessionId, agents, users: ["ada"] });
    if (made.status !== 201) throw new Error(`no session ${sessionId}: ${await made.text()}`);
    await made.arrayBuffer();
  }
}

export function post(url: string, body: unknown): Promise<Response> {
  return fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** The agent talks for as long as a turn is to take, and notes each call before it begins. */
function configOf(given: { callsFile: string; turnMs: number; logs: number }): string {
  return `
import { appendFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { agent, defineConfig } from ${JSON.stringify(built.index)};

const { callsFile, turnMs, logs } = ${JSON.stringify(given)};

export default defineConfig({
  sessions: { logs },
  shutdownMs: 60_000,
  use: [
    agent("slow", async function* ({ messages }) {
      const text = messages.at(-1).parts[0].text;
      appendFileSync(callsFile, text + "\\n");
      for (let chunk = 1; chunk <= 10; chunk++) {
        yield "chunk " + chunk + " ";
        await wait(turnMs / 10);
      }
    }),
  ],
});
`;
}
