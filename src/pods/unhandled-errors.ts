import { AsyncLocalStorage } from "node:async_hooks";
import process from "node:process";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

/** What some code of a user belongs to, also after that has ended. */
export type Origin = {
  readonly by: "handler" | "agent";
  /** The task, or the turn. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly log: Logger;
};

const origins = new AsyncLocalStorage<Origin>();

/** Runs a handler or an agent so that promises it leaves behind are known to be its. */
export function runWithOrigin<Result>(origin: Origin, run: () => Result): Result {
  return origins.run(origin, run);
}

let watchers = 0;

/**
 * A promise that a handler or an agent leaves behind and that rejects is logged with its task or its turn,
 * while a pod watches. Node would end the process, and with it all other work of the pod. What is
 * neither's is left to Node, or to the program's own listener. Gives what ends the watch.
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
    // Without a listener Node would have thrown it, as an uncaught exception.
    if (process.listenerCount("unhandledRejection") === 1) throw reason;
    return;
  }
  const { by, fields, log } = origin;
  const stack = reason instanceof Error ? reason.stack : undefined;
  log.error(
    { ...fields, error: messageOf(reason), ...(stack && { stack }) },
    `a promise that ${by === "agent" ? "an agent" : "a handler"} left behind was rejected`,
  );
}
