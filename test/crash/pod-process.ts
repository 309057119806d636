/** One pod in a process of its own, as the crash tests start it. The test holds its strings by IPC. */
import { openSync, writeSync } from "node:fs";
import process from "node:process";
import { type Config, type Logger, type Pod, type PodEvent, startPod } from "flotilla";
import { systemClock } from "../../src/base/clock.ts";
import { type Gate, startGatedPod } from "./gated-pod.ts";
import { handlersFor, type Surroundings } from "./handlers.ts";
import { type NewEntry, openLedger } from "./ledger.ts";
import { handlerWithin } from "./tasks/own-transaction.ts";

export type PodSpec = {
  store: string;
  ledgerPath: string;
  logPath: string;
  /** The tasks that this pod knows. */
  names: readonly string[];
  config: Omit<Config, "store" | "use" | "log">;
  /** Where this pod stops for good, if it is to. */
  gate?: Gate;
  /** What another program than this one is told beside that. */
  given?: unknown;
};

export type ToPod = { open: string; fails: boolean } | { stopHeart: true };
export type FromPod = { ready: string } | { reached: Gate } | { heartStopped: true };

const spec = JSON.parse(process.argv[2]!) as PodSpec;
const tell = (message: FromPod) => void process.send?.(message);

const known = Promise.withResolvers<string>();
let say: (entry: NewEntry) => void = () => {};
/** The gates that are open, and whether what goes through them fails. */
const open = new Map<string, boolean>();
const waiting = new Map<string, (() => void)[]>();

const surroundings: Surroundings = {
  podId: () => known.promise,
  say: (entry) => say(entry),
  opened: (gate, signal) =>
    new Promise((resolve, reject) => {
      const pass = () => (open.get(gate) ? reject(new Error("failed, as ordered")) : resolve());
      if (open.has(gate)) return pass();
      waiting.set(gate, [...(waiting.get(gate) ?? []), pass]);
      signal.addEventListener("abort", () => reject(signal.reason as Error));
    }),
  enqueue: (name, input, options) => pod.enqueue(name, input, options),
};
const handlers = [...handlersFor(surroundings), handlerWithin(spec.store, surroundings)];

const limits = { heartbeatMs: 100, deadAfterMs: 500, ...spec.config };
const config: Config = {
  // On a machine that has other work to do it would claim less, and nothing ahead.
  pressure: false,
  ...limits,
  store: spec.store,
  use: handlers.filter(({ name }) => spec.names.includes(name)),
  log: fileLogger(spec.logPath),
};

function onEvent(event: PodEvent): void {
  switch (event.type) {
    case "beat": {
      const gapMs = event.lagMs + limits.heartbeatMs;
      const lateMs = systemClock.monotonic() - event.atMs;
      // What counts is the limit of the pods that watch this one, which may be shorter than its own.
      if (gapMs > 1.5 * limits.heartbeatMs) say({ event: "gap", gapMs, lateMs });
      break;
    }
    case "leading":
      return say({ event: "leading", leader: event.podId ?? null });
    case "recovered":
      return say({ event: "recovered", tasks: event.tasks });
    case "ended":
      if (event.outcome !== "completed")
        say({ event: "ended", outcome: event.outcome, name: event.name });
      break;
    case "beat_failed":
    case "fired":
    case "claimed":
    case "claim_failed":
    case "contended":
    case "forged":
    case "resent":
    case "store_error":
    case "step":
    case "tokens":
    case "transition":
    case "run_begun":
    case "run_set_aside":
    case "run_ended":
    case "share":
    case "bound":
    case "turn_started":
    case "turn_ended":
    case "record":
    case "log_owned":
    case "log_taken":
    case "record_fenced":
    case "refused":
    case "record_resent":
    case "record_unknown":
    case "log_lost":
      break;
  }
}

// What happens before the pod has its id is said once it has.
const early: NewEntry[] = [];
say = (entry) => void early.push(entry);

let stopHeart = async () => {};
const pod: Pod = await (async () => {
  if (spec.gate === undefined) return startPod(config, { onEvent });
  const onReached = (reached: Gate) => tell({ reached });
  const gated = await startGatedPod(config, { gate: spec.gate, onReached, onEvent });
  stopHeart = gated.stopHeart;
  return gated.pod;
})();

const { podId } = pod;
known.resolve(podId);
say = openLedger(spec.ledgerPath, podId);
say({ event: "hello", pid: process.pid, names: spec.names });
for (const entry of early) say(entry);
tell({ ready: podId });

process.on("message", (message: ToPod) => {
  if ("open" in message) {
    open.set(message.open, message.fails);
    for (const pass of waiting.get(message.open) ?? []) pass();
  } else void stopHeart().then(() => tell({ heartStopped: true }));
});

process.once("SIGTERM", () => {
  void pod.stop().then(() => process.exit(0));
});

// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));

function fileLogger(path: string): Logger {
  const file = openSync(path, "a");
  const line = (level: string) => (fields: object, message: string) =>
    void writeSync(file, `${JSON.stringify({ level, message, ...fields })}\n`);
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}
