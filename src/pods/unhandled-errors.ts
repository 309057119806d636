import { AsyncLocalStorage } from "node:async_hooks";
import process from "node:process";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

/** The task or turn that user code belongs to, even after that has ended. */
export type Origin = {
  readonly by: "handler" | "agent";
  /** What is linked to the tasks that the code enqueues. */
  readonly from: { readonly id: string; readonly what: "session" | "run" | "task" };
  /** Log fields of the task, or of the turn. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly log: Logger;
};

const origins = new AsyncLocalStorage<Origin>();

/** Runs a handler or an agent so that unhandled rejections and new tasks can be attributed to it. */
export function runWithOrigin<Result>(origin: Origin, run: () => Result): Result {
  return origins.run(origin, run);
}

/** The task, run or session whose code runs now. Undefined outside of handlers and agents. */
export function currentOrigin(): Origin["from"] | undefined {
  return origins.getStore()?.from;
}

/** The same with its log fields, which name it. */
export function currentWork(): Pick<Origin, "from" | "fields"> | undefined {
  return origins.getStore();
}

let watchers = 0;

/**
 * Logs unhandled rejections of handlers and agents with their task or turn, while a pod runs. Node
 * would end the process, and with it all other work of the pod. Other rejections are left to Node,
 * or to the program's own listener. Returns a function that stops it.
 */
export function watchUnhandledRejections(): () => void {
  if (watchers++ === 0) process.on("unhandledRejection", onRejection);
  let stopped = false;
  return () => {
    if (stopped) return;
    stopped = true;
    if (--watchers === 0) process.off("unhandledRejection", onRejection);
  };
}

function onRejection(reason: unknown): void {
  const origin = origins.getStore();
  if (origin === undefined) {
    // Without a listener Node would have thrown it as an uncaught exception.
    if (process.listenerCount("unhandledRejection") === 1) throw reason;
    return;
  }
  const { by, fields, log } = origin;
  const stack = reason instanceof Error ? reason.stack : undefined;
  log.error(
    { ...fields, by, error: messageOf(reason), ...(stack && { stack }) },
    "unhandled rejection in a handler or agent",
  );
}
