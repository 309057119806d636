import { AsyncLocalStorage } from "node:async_hooks";
import process from "node:process";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

/** The task whose handler some code belongs to, also after that handler has ended. */
export type Origin = {
  readonly taskId: string;
  readonly name: string;
  readonly podId: string;
  readonly log: Logger;
};

const origins = new AsyncLocalStorage<Origin>();

/** Runs a handler so that promises it leaves behind are known to be its. */
export function runAs<Result>(origin: Origin, run: () => Result): Result {
  return origins.run(origin, run);
}

let watchers = 0;

/**
 * A promise that a handler leaves behind and that rejects is logged with its task, while somebody
 * watches. Node would end the process, and with it every other task of the pod. What isn't a handler's
 * is left to Node, or to the program's own listener. Gives what ends the watch.
 */
export function watchLeftBehind(): () => void {
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
    // Without a listener Node would have thrown it, as an exception that nobody caught.
    if (process.listenerCount("unhandledRejection") === 1) throw reason;
    return;
  }
  const { taskId, name, podId, log } = origin;
  const stack = reason instanceof Error ? reason.stack : undefined;
  log.error(
    { task: taskId, name, pod: podId, error: messageOf(reason), ...(stack && { stack }) },
    "a promise that a handler left behind was rejected",
  );
}
