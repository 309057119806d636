import { writeSync } from "node:fs";
import process from "node:process";
import { parentPort, Worker, workerData } from "node:worker_threads";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { threadFile } from "../base/package-files.ts";
import { storeForThread, openForHeartbeat, type Store } from "../store/open.ts";
import { type Heartbeat, type HeartbeatOptions, startHeartbeat } from "./heartbeat.ts";
import type { Observation } from "./liveness.ts";

type ThreadData = Pick<
  HeartbeatOptions,
  "podId" | "heartbeatMs" | "stallBeats" | "metadata" | "host" | "watchedTables"
> & {
  store: Store;
  /** True if the password is a function, which lives on the main thread. */
  asksPassword: boolean;
  signs: SharedArrayBuffer;
};

type ThreadMessage = { seen: Observation } | { error: string } | { ask: "password" };
type ThreadOrder = "stop" | { password: string } | { refused: string };
type ThreadPulse = { pulse: string };

const aliveSlot = 0;
const abandonedSlot = 1;

/** The main thread's side of the memory that the heartbeat thread reads. */
export type VitalSignsWriter = {
  readonly memory: SharedArrayBuffer;
  reportAlive(): void;
  abandonCallsUpTo(call: number): void;
};

export function createVitalSigns(): VitalSignsWriter {
  const memory = new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT);
  const slots = new BigInt64Array(memory);
  return {
    memory,
    reportAlive: () => void Atomics.add(slots, aliveSlot, 1n),
    abandonCallsUpTo: (call) => void Atomics.store(slots, abandonedSlot, BigInt(call)),
  };
}

/** Starts the heartbeat on its own thread, with its own connection. */
export function startHeartbeatThread(
  options: Omit<HeartbeatOptions, "database" | "clock" | "signs" | "onStall"> & {
    store: Store;
    signs: VitalSignsWriter;
  },
): Heartbeat {
  const { podId, heartbeatMs, stallBeats, metadata = {}, host, watchedTables = [] } = options;
  const { store, password } = storeForThread(options.store);
  const data: ThreadData = {
    podId,
    heartbeatMs,
    stallBeats,
    store,
    asksPassword: password !== undefined,
    metadata,
    host,
    watchedTables,
    signs: options.signs.memory,
  };
  let stopped = false;
  let lastPulse: ThreadPulse | undefined;
  let cancelRestart = () => {};
  const start = () => {
    const worker = new Worker(threadFile("heartbeat-thread"), {
      workerData: data,
      // Flags of the program, such as --input-type, may not fit this file. Node 22 would warn in
      // each thread that its SQLite is experimental.
      execArgv: ["--disable-warning=ExperimentalWarning"],
    });
    worker.on("message", (message: ThreadMessage) => {
      if ("seen" in message) options.onBeat(message.seen);
      else if ("error" in message) options.onError(message.error);
      else void sendPassword(worker, password!);
    });
    worker.on("error", (error) => options.onError(`the heartbeat thread died: ${error.message}`));
    // A pod without a heartbeat looks dead to the others, so a thread that died is replaced.
    worker.once("exit", () => {
      if (!stopped) cancelRestart = systemClock.after(heartbeatMs, () => (running = start()));
    });
    if (lastPulse) worker.postMessage(lastPulse);
    return worker;
  };
  let running = start();
  return {
    setPulse(pulse) {
      lastPulse = { pulse };
      running.postMessage(lastPulse);
    },
    async stop() {
      stopped = true;
      cancelRestart();
      if (running.threadId === -1) return;
      const exited = new Promise<void>((resolve) => running.once("exit", () => resolve()));
      running.postMessage("stop");
      await exited;
    },
  };
}

async function sendPassword(
  worker: Worker,
  password: () => string | Promise<string>,
): Promise<void> {
  let order: ThreadOrder;
  try {
    order = { password: await password() };
  } catch (error) {
    order = { refused: messageOf(error) };
  }
  worker.postMessage(order);
}

// Not awaited: `require` of the package loads this file too, and rejects modules with a top-level
// await. An error still ends the thread.
if (parentPort && isThreadData(workerData)) void beatOnThisThread(parentPort, workerData);

function isThreadData(data: unknown): data is ThreadData {
  return typeof data === "object" && data !== null && "heartbeatMs" in data;
}

async function beatOnThisThread(
  parent: NonNullable<typeof parentPort>,
  data: ThreadData,
): Promise<void> {
  const slots = new BigInt64Array(data.signs);
  const post = (message: ThreadMessage) => parent.postMessage(message);
  const passwordWaiters: ((order: ThreadOrder) => void)[] = [];
  const password = (): Promise<string> =>
    new Promise((resolve, reject) => {
      passwordWaiters.push((order) => {
        if (typeof order === "object" && "password" in order) resolve(order.password);
        else reject(new Error(typeof order === "object" ? order.refused : "the pod is stopping"));
      });
      post({ ask: "password" });
    });
  const { store } = data;
  const database = await openForHeartbeat(
    { store, ...(data.asksPassword && { password }) },
    { heartbeatMs: data.heartbeatMs },
  );
  const heartbeat = startHeartbeat({
    ...data,
    database,
    clock: systemClock,
    signs: {
      aliveCount: () => Number(Atomics.load(slots, aliveSlot)),
      abandonedUpTo: () => Number(Atomics.load(slots, abandonedSlot)),
    },
    onBeat: (seen) => post({ seen }),
    onError: (error) => post({ error }),
    onStall: () => {
      // Written synchronously: a thread's `process.stderr` goes through the main thread, which is
      // blocked.
      writeSync(
        2,
        `flotilla: the event loop of pod ${data.podId} has been blocked for ${data.stallBeats} heartbeats; ending the process so that its tasks go on elsewhere\n`,
      );
      process.kill(process.pid, "SIGKILL");
    },
  });
  parent.on("message", (order: ThreadOrder | ThreadPulse) => {
    if (typeof order === "object" && "pulse" in order) return heartbeat.setPulse(order.pulse);
    if (order !== "stop") return passwordWaiters.shift()?.(order);
    for (const answer of passwordWaiters) answer(order);
    void heartbeat.stop().then(async () => {
      await database.close();
      parent.close();
    });
  });
}
