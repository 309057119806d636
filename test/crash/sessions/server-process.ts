/** A pod and its server in a process of their own, run as the command line runs them. */
import { openSync, writeSync } from "node:fs";
import { connect } from "node:net";
import process from "node:process";
import { agent, type Config, type Logger, throttle } from "flotilla";
import { runUntilSignal } from "../../../src/cli/run-pod.ts";
import { resolveConfig } from "../../../src/runtime/config.ts";
import { monotonicMs } from "../ledger.ts";
import type { FromPod, PodSpec, ToPod } from "../pod-process.ts";
import { createScript } from "./script.ts";
import { speak } from "./speech.ts";
import { until } from "../until.ts";

export type ServerGiven = {
  readonly host: string;
  readonly port: number;
  /** Keys that callers need. None: programs of this machine need none. */
  readonly apiKeys: readonly string[];
  /** The most answers of `remote` that pods want at once, all together. */
  readonly remoteMax?: number;
  /** Where the agent `remote` is, for those pods that have one. */
  readonly agentUrl?: string;
  /** Whether this pod has the agents in code. */
  readonly agents: boolean;
};

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: ServerGiven };
const { host, port, apiKeys, agentUrl, agents, remoteMax } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
let podId = "";
const script = createScript(spec.ledgerPath.replace(/ledger$/, "calls"), () => podId);

/** An answer may be held until a test has seen what it waits for. */
const patient = { idleTimeoutMs: 300_000 };
const scripted = (name: string) =>
  agent(name, patient, ({ messages, sessionId: session, epoch, attempt, signal }) =>
    script.answer({ agent: name, session, epoch, attempt, messages, signal }),
  );
const stepping = agent("stepping", patient, (context) => {
  const { messages, sessionId: session, epoch, attempt, signal, step } = context;
  return script.answerInSteps({
    agent: "stepping",
    session,
    epoch,
    attempt,
    messages,
    signal,
    step,
  });
});
const steered = agent("steered", { ...patient, during: "steer" }, (context) => {
  const { messages, sessionId: session, epoch, attempt, signal, step, steering } = context;
  const asked = { agent: "steered", session, epoch, attempt, messages, signal };
  return script.answerSteered({ ...asked, step, steering });
});
const speaking = agent("speaking", (context) => {
  const { sessionId: session, epoch, attempt } = context;
  script.called({ agent: "speaking", session, epoch, attempt });
  return speak(context);
});
function remote(url: string) {
  const options = { url, allowPrivate: true };
  if (remoteMax === undefined) return agent("remote", options);
  // What a pod that is gone held goes to others soon.
  const times = { leaseMs: 3_000, callTimeoutMs: 2_000, graceMs: 500 };
  const shared = throttle("remote", {
    initial: remoteMax,
    max: remoteMax,
    ...times,
    latency: false,
  });
  return agent("remote", { ...options, throttle: shared });
}
const config: Config = {
  heartbeatMs: 200,
  deadAfterMs: 2_000,
  shutdownMs: 4_000,
  pressure: false,
  dataDir: false,
  sessions: { logs: 4 },
  ...spec.config,
  store: spec.store,
  use: [
    ...(agents ? [scripted("local"), stepping, steered, speaking] : []),
    ...(agentUrl ? [remote(agentUrl)] : []),
  ],
  server: { host, port, ...(apiKeys.length > 0 && { apiKeys }) },
  log: fileLogger(spec.logPath),
  onStart: (pod) => void (podId = pod.podId),
};

process.on("message", (message: ToPod) => {
  if ("open" in message) script.open(message.open);
});
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));

const ended = runUntilSignal({
  settings: resolveConfig(config),
  flags: {},
  work: true,
  serve: true,
  live: false,
});
// It listens before its pod has started, and is known by what that is called.
const isUp = async () => podId !== "" && (await listens());
await Promise.race([ended, until("the server listens and has a pod", isUp)]);
tell({ ready: podId });
await ended;
process.exit(0);

function listens(): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

function fileLogger(path: string): Logger {
  const file = openSync(path, "a");
  const line = (level: string) => (fields: object, message: string) => {
    const said = { atMs: monotonicMs(), pod: podId, level, message, ...fields };
    writeSync(file, `${JSON.stringify(said)}\n`);
  };
  return { debug: () => {}, info: line("info"), warn: line("warn"), error: line("error") };
}
