import { constants } from "node:os";
import process from "node:process";

export type StopSignals = {
  /** Resolves with the first signal that asks this process to stop. */
  readonly received: Promise<NodeJS.Signals>;
};

/**
 * The first SIGTERM, SIGINT or SIGHUP (a closed terminal) requests a graceful stop; a second one ends
 * the process at once.
 */
export function stopSignals(): StopSignals {
  let stopping = false;
  const received = new Promise<NodeJS.Signals>((resolve) => {
    const onSignal = (signal: NodeJS.Signals) => {
      if (stopping) process.exit(128 + constants.signals[signal]);
      stopping = true;
      resolve(signal);
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
    process.on("SIGHUP", onSignal);
  });
  return { received };
}
