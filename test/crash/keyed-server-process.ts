/** A pod and its server in a process of their own, run as the command line runs them, with keys and tokens. */
import { openSync, writeSync } from "node:fs";
import { connect } from "node:net";
import process from "node:process";
import { agent, type Config, type Logger, task } from "flotilla";
import { runUntilSignal } from "../../src/cli/run-pod.ts";
import { resolveConfig } from "../../src/runtime/config.ts";
import type { ServerConfig } from "../../src/runtime/server-config.ts";
import type { FromPod, PodSpec } from "./pod-process.ts";
import { until } from "./until.ts";

export type KeyedGiven = { readonly port: number; readonly server: ServerConfig };

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: KeyedGiven };
const { port, server } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
let podId = "";

const clerk = agent("clerk", async function* ({ messages }) {
  yield { type: "text-start", id: "t" } as const;
  yield { type: "text-delta", id: "t", delta: `message ${messages.length}` } as const;
  yield { type: "text-end", id: "t" } as const;
});
const work = task("work", {}, () => "done");

const config: Config = {
  heartbeatMs: 200,
  deadAfterMs: 2_000,
  shutdownMs: 4_000,
  pressure: false,
  dataDir: false,
  onUnhandledRejection: "exit",
  sessions: { logs: 4 },
  ...spec.config,
  store: spec.store,
  use: [clerk, work],
  server: { ...server, port },
  log: fileLogger(spec.logPath),
  onStart: (pod) => void (podId = pod.podId),
};

// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));

const ended = runUntilSignal({
  settings: resolveConfig(config),
  flags: {},
  work: true,
  serve: true,
  live: false,
});
const isUp = async () => podId !== "" && (await listens());
await Promise.race([ended, until("the server listens and has a pod", isUp)]);
tell({ ready: podId });
await ended;
process.exit(0);

function listens(): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

function fileLogger(path: string): Logger {
  const file = openSync(path, "a");
  const line = (level: string) => (fields: object, message: string) =>
    void writeSync(file, `${JSON.stringify({ level, message, ...fields })}\n`);
  return { debug: () => {}, info: line("info"), warn: line("warn"), error: line("error") };
}
