import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdirSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Build } from "../beside.ts";
import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { dial } from "./dial.ts";
import type { FillerParams } from "./filler.ts";
import { sendFrame } from "./frames.ts";
import type { Site } from "./site.ts";

export type RestartWork = { readonly sessions: number };

const root = fileURLToPath(new URL("../../", import.meta.url));
// Inside the project, so that what it imports is found.
const builtIn = (checkout = root) => `${checkout}/node_modules/.cache/flotilla-bench/`;

/**
 * A server is killed and started again on a store with many sessions: from the start of its process to
 * the first ack. What runs is `flotilla serve` as it is published, which is built for this.
 */
export async function measureRestart(site: Site, { sessions }: RestartWork): Promise<Work[]> {
  const { progress } = site.options;
  const toAck = collect("sessions.restart_s", "s", "lower");
  const toListen = collect("sessions.restart.listening_s", "s", "lower");
  const ofNode = collect("sessions.restart.node_s", "s", "lower");
  progress("building the program");
  for (const each of site.builds) await build(each);
  await takeTurns(site, site.builds, async (each, round) => {
    const { key, checkout } = each;
    const store = await site.place.filled(`${key} sessions ${sessions}`, (empty) =>
      fill(site, each, { store: empty, sessions }),
    );
    const session = `kept-${Math.floor(sessions / 2)}`;
    // One that is killed leaves logs behind that have an owner.
    await firstAck(builtIn(checkout), store, session, 1);
    const found = await firstAck(builtIn(checkout), store, session, 2);
    const nodeMs = await emptyProcess(builtIn(checkout));
    await site.place.drop(store);
    toAck.add(key, { value: found.ackedMs / 1_000 });
    toListen.add(key, { value: found.listeningMs / 1_000 });
    ofNode.add(key, { value: nodeMs / 1_000 });
    progress(
      `sessions.restart, round ${round} of ${site.rounds}: ${key} first ack after ${(found.ackedMs / 1_000).toFixed(2)} s, ` +
        `listening after ${(found.listeningMs / 1_000).toFixed(2)} s, of which Node alone ${nodeMs.toFixed(0)} ms; ` +
        `${sessions} sessions`,
    );
  });
  return [toAck.work, toListen.work, ofNode.work];
}

async function fill(site: Site, { checkout }: Build, params: FillerParams): Promise<void> {
  site.options.progress(`storing ${params.sessions} sessions`);
  await startRole(new URL("./filler.ts", import.meta.url), params, { checkout }).result;
}

/** Starts a server, sends one message as soon as it listens, and kills it. */
async function firstAck(built: string, store: string, session: string, ref: number) {
  const startedMs = performance.now();
  const args = ["serve", "--port", "0", "--store", store, "--log-level", "warn"];
  const server = start(built, [`${built}bin/flotilla.js`, ...args]);
  const gone = new Promise<never>((_, reject) => {
    server.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  gone.catch(() => {});
  const url = await Promise.race([listening(server), gone]);
  const listeningMs = performance.now() - startedMs;
  const answer = Promise.withResolvers<void>();
  const socket = await dial(`${url.replace(/^http/, "ws")}/v1/socket?user=ada`, (frame) => {
    if (frame.type === "ack") answer.resolve();
    if (frame.type === "error") answer.reject(new Error(JSON.stringify(frame)));
  });
  socket.send(sendFrame(session, ref));
  await Promise.race([answer.promise, gone]);
  const ackedMs = performance.now() - startedMs;
  socket.removeAllListeners("close");
  const ended = new Promise((resolve) => server.once("exit", resolve));
  server.kill("SIGKILL");
  await ended;
  return { listeningMs, ackedMs };
}

function listening(server: ChildProcess): Promise<string> {
  let said = "";
  return new Promise((resolve) => {
    server.stdout!.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      const url = /http:\/\/[\d.:]+/.exec(said)?.[0];
      if (url !== undefined) resolve(url);
    });
  });
}

/** How long a Node that does nothing takes to start and end. */
async function emptyProcess(built: string): Promise<number> {
  const startedMs = performance.now();
  const child = start(built, ["--eval", "0"]);
  await new Promise((resolve) => child.once("exit", resolve));
  return performance.now() - startedMs;
}

const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) child.kill("SIGKILL");
});

function start(built: string, args: readonly string[]): ChildProcess {
  const child = spawn(process.execPath, args, {
    cwd: built,
    stdio: ["ignore", "pipe", process.stderr],
  });
  started.add(child);
  child.once("exit", () => started.delete(child));
  return child;
}

async function build({ checkout = root }: Build): Promise<void> {
  const built = builtIn(checkout);
  mkdirSync(built, { recursive: true });
  for (const file of ["package.json", "bin/flotilla.js"])
    cpSync(`${checkout}/${file}`, `${built}${file}`);
  const { bundle }: typeof import("../../build/bundle.ts") = await import(
    `${checkout}/build/bundle.ts`
  );
  const { packageEntries }: typeof import("../../build/entries.ts") = await import(
    `${checkout}/build/entries.ts`
  );
  await bundle(packageEntries(), `${built}dist`);
}
