import { existsSync } from "node:fs";
import process from "node:process";
import {
  type EnqueueOptions,
  type HandleOptions,
  task,
  type TaskContext,
  type TaskHandler,
} from "flotilla";
import { sleep, systemClock } from "../../src/base/clock.ts";
import { monotonicMs, type NewEntry } from "./ledger.ts";

/** What a handler needs of the process it runs in. */
export type Surroundings = {
  /** The id of its pod, which may claim before the program knows it. */
  podId: () => Promise<string>;
  say: (entry: NewEntry) => void;
  /** Waits until the test opens a gate of this name on this pod. */
  opened: (gate: string, signal: AbortSignal) => Promise<void>;
  enqueue: (name: string, input: object, options: EnqueueOptions) => Promise<unknown>;
};

type Body = (context: TaskContext<any>) => unknown;

const soon = { backoff: { baseMs: 50, jitter: 0 } } satisfies HandleOptions;

/** Every kind of work that the crash tests know, good and bad. */
export function handlersFor({ podId, say, opened, enqueue }: Surroundings): TaskHandler[] {
  const recorded = (name: string, options: HandleOptions, body: Body) =>
    task(name, options, async (context) => {
      const { taskId, token, attempt } = context;
      const run = { task: taskId, name, token, attempt };
      say({ event: "start", ...run });
      let ok = false;
      try {
        await body(context);
        ok = true;
      } finally {
        say({ event: "end", ok, ...run });
      }
      return { pod: await podId(), token };
    });

  const tellAborts = ({ signal, taskId, name, token, attempt }: TaskContext<any>) =>
    signal.addEventListener("abort", () =>
      say({ event: "abort", task: taskId, name, token, attempt }),
    );

  const onFailure = async ({ taskId, name, token, attempt }: TaskContext<any>) => {
    const run = { task: taskId, name, token, attempt };
    say({ event: "start", ...run });
    say({ event: "end", ok: true, ...run });
    return { pod: await podId(), token };
  };

  return [
    // Takes `ms`, and fails the first `failures` attempts.
    recorded("work", soon, async ({ input, attempt, signal }) => {
      if (input.ms > 0) await sleep(systemClock, input.ms, signal);
      if (attempt <= (input.failures ?? 0)) throw new Error(`failure ${attempt}, as ordered`);
    }),
    // The same, but not every pod knows it.
    recorded("rare", soon, ({ input, signal }) => sleep(systemClock, input.ms, signal)),
    // The same, but only pods of the newest deploy know it.
    recorded("fresh", soon, ({ input, signal }) => sleep(systemClock, input.ms, signal)),
    // One due time of a schedule. It sees to the next, twice, as two leaders would.
    recorded("due", { ...soon, attempts: 1_000 }, async ({ input }) => {
      const { at, everyMs, untilMs } = input;
      if (monotonicMs() > untilMs) return;
      const next = () =>
        enqueue("due", { at: at + 1, everyMs, untilMs }, { key: dueKey(at + 1), delayMs: everyMs });
      await Promise.all([next(), next()]);
    }),
    // Runs until the test lets it go, or until it is told to stop. Its later attempts may have another gate.
    recorded("held", soon, async (context) => {
      tellAborts(context);
      const { gate, laterGate = gate } = context.input;
      await opened(context.attempt === 1 ? gate : laterGate, context.signal);
    }),
    // Fails for good, and has a task that follows.
    recorded("tells", { ...soon, attempts: 1, onFailure }, async ({ input, signal }) => {
      await sleep(systemClock, input.ms, signal);
      throw new Error("failed, as ordered");
    }),
    recorded("exits", soon, () => process.exit(3)),
    recorded("kills", soon, () => process.kill(process.pid, "SIGKILL")),
    recorded("throws-text", { ...soon, attempts: 2 }, () => {
      throw "not an error";
    }),
    recorded("throws-nothing", { ...soon, attempts: 2 }, () => {
      throw undefined;
    }),
    recorded("throws-trap", { ...soon, attempts: 2 }, () => {
      throw Object.create(null);
    }),
    recorded("never-settles", { ...soon, attempts: 2, timeoutMs: 100 }, () => {
      return new Promise(() => {});
    }),
    // Takes `ms`, or until there is a file.
    recorded("blocks", soon, ({ input }) =>
      block(input.until === undefined ? hasPassed(input.ms) : () => existsSync(input.until)),
    ),
    recorded("blocks-at-first", soon, ({ token }) => block(hasPassed(token === 1 ? Infinity : 0))),
  ];
}

/** What makes one task of however many ask for the same due time. */
export function dueKey(at: number): string {
  return `due-${at}`;
}

/** Keeps the thread busy, as a loop that never awaits does. */
function block(isOver: () => boolean): void {
  while (!isOver());
}

function hasPassed(ms: number): () => boolean {
  const startedMs = performance.now();
  return () => performance.now() - startedMs >= ms;
}
