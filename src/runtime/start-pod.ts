import { hostname } from "node:os";
import process from "node:process";
import { systemClock } from "../base/clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import { createVitalSigns, startHeartbeatThread } from "../pods/heartbeat-thread.ts";
import { watchUnhandledRejections } from "../pods/unhandled-errors.ts";
import { redactingLogger } from "../redaction/log.ts";
import { createRedactor, shareRedactor } from "../redaction/redactor.ts";
import { warnOfPlainSecrets } from "../sessions/agents/registry.ts";
import { openStore } from "../store/open.ts";
import { noWorkerWarning } from "../tasks/inspect/blocked-by.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { type Config, resolveConfig } from "./config.ts";
import { deadLetterViews, localProgressFor, outboxDiskFor } from "./local-files.ts";
import { createPressureGauge, defaultLogger, identifyProcess } from "./process.ts";
import { assemblePod, type Pod, type PodEvent } from "./pod.ts";

export type StartPodOptions = {
  /** Called with every event of the pod, such as claims, finishes and recoveries. Metrics use it. */
  onEvent?: (event: PodEvent) => void;
};

/** Starts a pod in this process. `await using pod = await startPod(config)` also stops it. */
export async function startPod(config: Config, { onEvent }: StartPodOptions = {}): Promise<Pod> {
  const settings = resolveConfig(config);
  const redactor = createRedactor(settings.redact);
  const log = redactingLogger(settings.log ?? defaultLogger(), redactor);
  const database = await openStore(settings.store, {
    ...settings,
    log,
    ...(onEvent && { onEvent }),
  });
  const ids = uuidv7(systemClock, systemRandom);
  const signs = createVitalSigns();
  const gauge = settings.pressure ? createPressureGauge() : undefined;
  const stopWatch = settings.onUnhandledRejection === "log" ? watchUnhandledRejections() : () => {};
  const unshare = shareRedactor(redactor);
  try {
    const pod = await assemblePod(settings, {
      podId: ids.next(),
      database,
      clock: systemClock,
      random: systemRandom,
      ids,
      log,
      startHeartbeat: (hooks) =>
        startHeartbeatThread({
          ...hooks,
          store: settings.store,
          signs,
          metadata: { host: hostname(), pid: process.pid, ...hooks.metadata },
        }),
      ...(await outboxDiskFor(settings, database, log)),
      ...(await localProgressFor(settings, database, { clock: systemClock, log })),
      views: deadLetterViews(settings, database, log),
      thisProcess: identifyProcess(),
      shareThrottles: shareWithProcess,
      reportAlive: signs.reportAlive,
      abandonCallsUpTo: signs.abandonCallsUpTo,
      ...(gauge && { readPressure: gauge.read }),
      readMemory: () => process.memoryUsage.rss(),
      ...(onEvent && { onEvent }),
      onNoWorker: (name) => log.warn({ name }, noWorkerWarning(name)),
    });
    const stop = async () => {
      await pod.stop();
      stopWatch();
      unshare();
      gauge?.stop();
      await database.close();
    };
    if (settings.sessions && !settings.codec) await warnOfPlainSecrets({ database, log });
    const started = stoppable(pod, stop);
    try {
      await settings.onStart?.(pod);
    } catch (error) {
      await started.stop();
      throw error;
    }
    return started;
  } catch (error) {
    stopWatch();
    unshare();
    await database.close();
    throw error;
  }
}

/** Replaces `stop`, and makes it run once, however often it is called, also by `await using`. */
export function stoppable<Made extends AsyncDisposable & { stop(): Promise<void> }>(
  made: Made,
  stop: () => Promise<void>,
): Made {
  let stopped: Promise<void> | undefined;
  const once = () => (stopped ??= stop());
  return Object.defineProperties({} as Made, {
    ...Object.getOwnPropertyDescriptors(made),
    stop: { value: once, enumerable: true },
    [Symbol.asyncDispose]: { value: once },
  });
}
