import type { ChildProcess } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { Gate } from "./gated-pod.ts";
import { monotonicMs } from "./ledger.ts";
import type { FromPod, ToPod } from "./pod-process.ts";
import { pauseFor, until } from "./until.ts";

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

/** A pod in a process of its own, and the strings that the test holds. */
export type PodProcess = {
  readonly podId: string;
  readonly pid: number;
  /** Its way to the store. */
  readonly store: string;
  readonly exited: Promise<Exit>;
  readonly alive: boolean;
  /** Lets the `held` tasks go that wait for this gate. */
  open(gate: string, how?: { fails: boolean }): void;
  /** Its beats stop, while all the rest of it goes on. */
  stopHeart(): Promise<void>;
  /** Resolves when the pod has stopped at the gate it was started with. */
  reached(): Promise<Gate>;
  /** Resolves when none of its threads runs any more. */
  pause(): Promise<void>;
  /** Pauses it at a moment when it doesn't hold the write lock, so that the others can go on. */
  pauseOutsideWrites(): Promise<void>;
  resume(): void;
  kill(): Promise<Exit>;
  terminate(): Promise<Exit>;
};

/** What was done to a pod, and when. Open where it wasn't undone. */
export type Fault = {
  readonly kind: "kill" | "pause" | "terminate" | "exit" | "cut off";
  readonly podId: string;
  readonly fromMs: number;
  toMs: number;
};

const startLimitMs = 90_000;
const pauseAgainMs = 10;

/** Waits until a process that was just started is a pod, and gives the strings to hold it by. */
export async function startedPod(
  child: ChildProcess,
  {
    store,
    faults,
    writable,
    onExit,
  }: { store: string; faults: Fault[]; writable: () => Promise<boolean>; onExit: () => void },
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
  const pause = async () => {
    fault("pause", "SIGSTOP");
    await until("the process has stopped", () => !alive || isStopped(child.pid!));
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
    store,
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
    pause,
    async pauseOutsideWrites() {
      for (;;) {
        await pause();
        if (await writable()) return;
        resume();
        await pauseFor(pauseAgainMs);
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

/** A signal is delivered a moment after it is sent; where there is no /proc, that moment has passed. */
function isStopped(pid: number): boolean {
  if (!existsSync("/proc/self/stat")) return true;
  return / T \d/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}

function lateAfter(ms: number, message: string): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(message)), ms).unref();
  });
}
