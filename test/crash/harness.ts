import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { connect, type Flotilla } from "flotilla";
import type { Gate } from "./gated-pod.ts";
import { type Entry, monotonicMs, readLedgers } from "./ledger.ts";
import type { FromPod, PodSpec, ToPod } from "./pod-process.ts";
import { installWitness, readWitness, type Transition } from "./witness.ts";

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

/** A pod in a process of its own, and the strings that the test holds. */
export type PodProcess = {
  readonly podId: string;
  readonly pid: number;
  readonly exited: Promise<Exit>;
  readonly alive: boolean;
  /** Lets the `held` tasks go that wait for this gate. */
  open(gate: string, how?: { fails: boolean }): void;
  /** Its beats stop, while all the rest of it goes on. */
  stopHeart(): Promise<void>;
  /** Resolves when the pod has stopped at the gate it was started with. */
  reached(): Promise<Gate>;
  pause(): void;
  /** Pauses it at a moment when it doesn't hold the write lock, so that the others can go on. */
  pauseOutsideWrites(): Promise<void>;
  resume(): void;
  kill(): Promise<Exit>;
  terminate(): Promise<Exit>;
};

/** What was done to a pod, and when. Open where it wasn't undone. */
export type Fault = {
  readonly kind: "kill" | "pause" | "terminate" | "exit";
  readonly podId: string;
  readonly fromMs: number;
  toMs: number;
};

export type Fleet = {
  readonly store: string;
  readonly flotilla: Flotilla;
  readonly faults: readonly Fault[];
  readonly pods: readonly PodProcess[];
  start(spec?: Partial<Pick<PodSpec, "names" | "config" | "gate">>): Promise<PodProcess>;
  /** Plain SQL on the file, past everything that is tested. */
  sql(text: string, ...values: (string | number | null)[]): Record<string, any>[];
  ledger(): Entry[];
  /** Every change of status or token that was ever committed, in order. */
  transitions(): Transition[];
};

const script = fileURLToPath(new URL("./pod-process.ts", import.meta.url));
const compileCache = fileURLToPath(new URL("../../node_modules/.cache/pods", import.meta.url));
const startLimitMs = 30_000;

/** One SQLite file in a folder of its own, and the processes on it. All gone when the test is over. */
export async function createFleet(): Promise<Fleet> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-crash-"));
  const path = join(folder, "store.db");
  const store = `sqlite:${path}`;
  const flotilla = connect(store);
  const children = new Set<ChildProcess>();
  const pods: PodProcess[] = [];
  const faults: Fault[] = [];
  // A stopped process doesn't see that its parent is gone, so it is ended whatever happens.
  const killAll = () => children.forEach((child) => child.kill("SIGKILL"));
  process.once("exit", killAll);
  onTestFinished(async () => {
    const gone = [...children].map(
      (child) => new Promise((resolve) => child.once("exit", resolve)),
    );
    killAll();
    await Promise.all(gone);
    process.off("exit", killAll);
    plain?.close();
    await flotilla.close();
    if (process.env["FLOTILLA_CRASH_KEEP"]) console.log(`kept ${folder}`);
    else rmSync(folder, { recursive: true, force: true });
  });

  let plain: DatabaseSync | undefined;
  await flotilla.stats();
  plain = new DatabaseSync(path, { timeout: 30_000 });
  installWitness(plain);

  const start: Fleet["start"] = async ({ names = ["work"], config = {}, gate } = {}) => {
    const stem = join(folder, `pod-${pods.length + 1}-${monotonicMs()}`);
    const logPath = `${stem}.log`;
    const spec: PodSpec = {
      store,
      ledgerPath: `${stem}.ledger`,
      logPath,
      names,
      config,
      ...(gate && { gate }),
    };
    const output = openSync(`${stem}.out`, "a");
    const child = spawn(
      process.execPath,
      ["--conditions=flotilla:source", script, JSON.stringify(spec)],
      {
        stdio: ["ignore", output, output, "ipc"],
        // Pods start by the dozen, and most of a start is compiling the same files again.
        env: { ...process.env, NODE_COMPILE_CACHE: compileCache },
      },
    );
    closeSync(output);
    children.add(child);
    const pod = await startedPod(child, {
      faults,
      writable: () => isWritable(path),
      onExit: () => children.delete(child),
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${readFileSync(`${stem}.out`, "utf8")}`);
    });
    pods.push(pod);
    return pod;
  };

  return {
    store,
    flotilla,
    faults,
    pods,
    start,
    sql: (text, ...values) => plain.prepare(text).all(...values),
    ledger: () => readLedgers(folder),
    transitions: () => readWitness(plain),
  };
}

async function startedPod(
  child: ChildProcess,
  { faults, writable, onExit }: { faults: Fault[]; writable: () => boolean; onExit: () => void },
): Promise<PodProcess> {
  let alive = true;
  const exited = new Promise<Exit>((resolve) => {
    child.once("exit", (code, signal) => {
      alive = false;
      onExit();
      resolve({ code, signal });
    });
  });
  const heard = <Message extends FromPod>(is: (message: FromPod) => message is Message) =>
    new Promise<Message>((resolve) => {
      child.on("message", (message: FromPod) => {
        if (is(message)) resolve(message);
      });
    });
  const reached = heard((message) => "reached" in message);
  const ready = await Promise.race([
    heard((message) => "ready" in message),
    exited.then((exit) => Promise.reject(new Error(`a pod ended: ${JSON.stringify(exit)}`))),
    lateAfter(startLimitMs, "a pod didn't start"),
  ]);
  const podId = ready.ready;
  void exited.then(() => {
    faults.push({ kind: "exit", podId, fromMs: monotonicMs(), toMs: Infinity });
  });

  const fault = (kind: Fault["kind"], signal: NodeJS.Signals) => {
    faults.push({ kind, podId, fromMs: monotonicMs(), toMs: Infinity });
    child.kill(signal);
  };
  const resume = () => {
    const pause = faults.findLast((each) => each.podId === podId && each.kind === "pause");
    if (pause) pause.toMs = monotonicMs();
    child.kill("SIGCONT");
  };
  const send = (message: ToPod) => void child.send(message);
  return {
    podId,
    pid: child.pid!,
    exited,
    get alive() {
      return alive;
    },
    open: (gate, { fails } = { fails: false }) => send({ open: gate, fails }),
    async stopHeart() {
      const stopped = heard((message) => "heartStopped" in message);
      send({ stopHeart: true });
      await stopped;
    },
    reached: async () => (await reached).reached,
    pause: () => fault("pause", "SIGSTOP"),
    async pauseOutsideWrites() {
      for (;;) {
        fault("pause", "SIGSTOP");
        if (writable()) return;
        resume();
        await pauseFor(lookEveryMs);
      }
    },
    resume,
    kill() {
      fault("kill", "SIGKILL");
      return exited;
    },
    terminate() {
      fault("terminate", "SIGTERM");
      return exited;
    },
  };
}

/** Whether the write lock can be had within a time in which every running process gives it back. */
function isWritable(path: string): boolean {
  const db = new DatabaseSync(path, { timeout: 150 });
  try {
    db.exec("begin immediate; rollback");
    return true;
  } catch {
    return false;
  } finally {
    db.close();
  }
}

const lookEveryMs = 10;

/** Waits for something to become true. The limit is for a machine with much else to do. */
export async function until<Value>(
  what: string,
  condition: () => Value | Promise<Value>,
  limitMs = 45_000,
): Promise<NonNullable<Value>> {
  const deadlineMs = monotonicMs() + limitMs;
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<Value>;
    if (monotonicMs() > deadlineMs) throw new Error(`after ${limitMs} ms still not: ${what}`);
    await pauseFor(lookEveryMs);
  }
}

export function pauseFor(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function lateAfter(ms: number, message: string): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(message)), ms).unref();
  });
}
