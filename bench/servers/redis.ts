import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { getParts, missing, part, parts } from "../../test/parts.ts";
import { freePort } from "../../test/free-ports.ts";
import { diskFolder } from "../folder.ts";
import type { Server } from "./server.ts";

export type RedisKeeps = "nothing" | "everything";

const settings: Readonly<Record<RedisKeeps, Readonly<Record<string, string>>>> = {
  nothing: { appendonly: "no", save: "" },
  everything: { appendonly: "yes", appendfsync: "always", save: "" },
};

/** A throw-away Redis on a free port of the loopback, that keeps nothing or everything over a crash. */
export async function startBenchRedis(keeps: RedisKeeps): Promise<Server> {
  // A bench runs by itself, so that nothing else installs packages meanwhile.
  const failure = getParts([parts.redis]);
  if (failure !== undefined) throw missing([parts.redis], failure);
  const program = part("redis");
  const folder = mkdtempSync(join(diskFolder(), "flotilla-redis-"));
  const port = await freePort();
  const given = { port: String(port), bind: "127.0.0.1", dir: folder, ...settings[keeps] };
  const args = Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]);
  const server = spawn(program, args, { stdio: "ignore" });
  const exited = once(server, "exit");
  process.once("exit", () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  await answering(port);
  const version = /v=(\S+)/.exec(execFileSync(program, ["--version"], { encoding: "utf8" }))?.[1];
  const shown = Object.entries(settings[keeps]).map(([name, value]) => `${name} ${value || '""'}`);
  const fresh = async () => {
    await ask(port, "FLUSHALL SYNC");
    return `redis://127.0.0.1:${port}`;
  };
  return {
    about: `Redis ${version} (${shown.join(", ")})`,
    pid: server.pid!,
    fresh,
    // There is one place in it, so it is filled anew each time.
    async filled(_key, fill) {
      const url = await fresh();
      await fill(url);
      return url;
    },
    async drop() {
      await ask(port, "FLUSHALL SYNC");
    },
    async stop() {
      server.kill("SIGKILL");
      await exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function answering(port: number): Promise<void> {
  const deadlineMs = performance.now() + 20_000;
  for (;;) {
    try {
      await ask(port, "PING");
      return;
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** One command on a connection of its own; resolves when it is answered. */
function ask(port: number, command: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(`${command}\r\n`));
    socket.once("error", reject);
    socket.once("data", (answer) => {
      socket.destroy();
      const text = answer.toString();
      if (text.startsWith("-")) reject(new Error(`Redis: ${text.trim()}`));
      else resolve();
    });
  });
}
