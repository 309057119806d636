import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../src/base/contract/movable-clock.ts";
import { type Client, createClient } from "../../src/client/index.ts";
import { built } from "../built.ts";
import { type Running, start } from "../command.ts";
import { freePort } from "../free-ports.ts";
import { builtPage } from "./page-build.ts";
import { type Proxy, startProxy } from "./proxy.ts";

/** A server in a process of its own, on a store of its own, and a proxy that browsers reach it by. */
export type ChatServer = {
  /** Where browsers go: through the proxy. */
  readonly url: string;
  /** The server itself. */
  readonly direct: string;
  readonly proxy: Proxy;
  /** A program beside the browsers, on the server itself. */
  readonly program: Client;
  /** Lets an agent go on that holds there. */
  open(gate: string): void;
  /** What the server counts of this. */
  metric(name: string): Promise<number>;
  kill(): Promise<void>;
  /** On the port and the store it had. */
  restart(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const config = built.program(join(import.meta.dirname, "script-process.ts"));
const startMs = 120_000;

/** `pages`: the folders of those that it serves, by where; the chat, if none are named. */
export async function startChatServer(pages?: Record<string, string>): Promise<ChatServer> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-browser-"));
  const served = pages ?? { "/chat": await builtPage("chat") };
  const env = { PAGES: JSON.stringify(served), GATES: folder };
  const store = `sqlite:${join(folder, "chat.db")}`;
  // One that the system gives to no connection while the server is down.
  const port = await freePort();
  let running: Running;

  const serve = async (): Promise<void> => {
    const flags = ["--config", config, "--store", store, "--port", String(port)];
    const started = start(["serve", "--log-level", "warn", ...flags], { cwd: folder, env });
    running = started;
    const said = await Promise.race([
      until("the server listens", () => / on (http\S+)/.exec(started.output.stdout)?.[1], startMs),
      started.ended,
    ]);
    if (typeof said !== "string") {
      rmSync(folder, { recursive: true, force: true });
      throw new Error(`the server ended: ${said.stderr}`);
    }
  };
  const kill = async (): Promise<void> => {
    running.child.kill("SIGKILL");
    await running.ended;
  };

  await serve();
  const proxy = await startProxy(() => port);
  const direct = `http://127.0.0.1:${port}`;
  const program = createClient({ url: direct, user: "program" });
  return {
    direct,
    url: `http://127.0.0.1:${proxy.port}`,
    proxy,
    program,
    open: (gate) => writeFileSync(join(folder, gate), ""),
    async metric(name) {
      const text = await (await fetch(`${direct}/metrics`)).text();
      return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
    },
    kill,
    restart: serve,
    async [Symbol.asyncDispose]() {
      program.close();
      await proxy.close();
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
