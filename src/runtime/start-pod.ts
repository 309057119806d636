import { hostname } from "node:os";
import process from "node:process";
import { systemClock } from "../base/clock.ts";
import { type Ids, uuidv7 } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import { systemRandom } from "../base/random.ts";
import { natsName } from "../bus/nats/config.ts";
import { createNats, type Nats, natsFor } from "../bus/nats/nats.ts";
import { setRecording } from "../changes/recording.ts";
import { createVitalSigns, startHeartbeatThread } from "../pods/heartbeat-thread.ts";
import { storedPods } from "../pods/pods.ts";
import { watchUnhandledRejections } from "../pods/unhandled-errors.ts";
import { redactingLogger } from "../redaction/log.ts";
import { createRedactor, shareRedactor } from "../redaction/redactor.ts";
import { warnOfPlainSecrets } from "../sessions/agents/registry.ts";
import { refuseStreams } from "../sessions/log/place.ts";
import type { Database } from "../store/database.ts";
import { locateStore, openStore, storedTextOf } from "../store/open.ts";
import { noWorkerWarning } from "../tasks/inspect/blocked-by.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { type Config, type PodSettings, resolveConfig } from "./config.ts";
import type { PodLogsParts } from "./logs/pod-logs.ts";
import { deadLetterViews, localProgressFor, outboxDiskFor } from "./local-files.ts";
import { createPressureGauge, defaultLogger, identifyProcess } from "./process.ts";
import { assemblePod, type Pod, type PodEvent, type PodParts } from "./pod.ts";

const maxPodsNamed = 10;

export type StartPodOptions = {
  /** Called with every event of the pod, such as claims, finishes and recoveries. Metrics use it. */
  onEvent?: (event: PodEvent) => void;
};

/** Starts a pod in this process. `await using pod = await startPod(config)` also stops it. */
export async function startPod(config: Config, { onEvent }: StartPodOptions = {}): Promise<Pod> {
  const settings = resolveConfig(config);
  const redactor = createRedactor(settings.redact);
  const log = redactingLogger(settings.log ?? defaultLogger(), redactor);
  const ids = uuidv7(systemClock, systemRandom);
  const { database, nats } = await openDatabase(settings, { log, ids, onEvent });
  const close = async () => {
    await database.close();
    await nats?.close();
  };
  const signs = createVitalSigns();
  const gauge = settings.pressure ? createPressureGauge() : undefined;
  const stopWatch = settings.onUnhandledRejection === "log" ? watchUnhandledRejections() : () => {};
  const unshare = shareRedactor(redactor);
  try {
    const { changes, migrate } = settings;
    if (changes !== undefined) {
      const parts = { database, clock: systemClock, random: systemRandom, ids, migrate, log };
      await setRecording(changes, parts);
    }
    const podId = ids.next();
    const text = storedTextOf({ ...settings, log });
    const openLogs = await openLogsFor(settings, { podId, nats, database, ids, log, text });
    const pod = await assemblePod(settings, {
      podId,
      database,
      ...(openLogs && { openLogs }),
      ...(nats && {
        connectBus: (address) =>
          nats.connectBus(address, {
            database,
            text,
            onForged: () => onEvent?.({ type: "forged" }),
          }),
      }),
      clock: systemClock,
      random: systemRandom,
      ids,
      log,
      startHeartbeat: (hooks) =>
        startHeartbeatThread({
          ...hooks,
          store: settings.store,
          signs,
          metadata: {
            host: hostname(),
            pid: process.pid,
            ...(nats && { nats: natsName(nats.settings) }),
            ...hooks.metadata,
          },
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
      await close();
    };
    if (settings.sessions && !settings.codec) await warnOfPlainSecrets({ database, log });
    if (locateStore(settings.store).kind === "postgres")
      await warnOfOtherBus(database, { own: nats && natsName(nats.settings), log });
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
    await close();
    throw error;
  }
}

/**
 * The logs of a pod's sessions if they are on NATS, undefined if they are in the store. Refuses a store that
 * has them elsewhere than its pod would look.
 */
async function openLogsFor(
  { sessions }: PodSettings,
  { nats, ...parts }: Omit<PodLogsParts, "nats"> & { nats: Nats | undefined },
): Promise<PodParts["openLogs"]> {
  if (sessions === false) return undefined;
  if (nats?.settings.use === "all") {
    const { openPodLogs } = await import("./logs/pod-logs.ts");
    return openPodLogs({ ...parts, nats }, sessions);
  }
  await refuseStreams(parts.database);
  return undefined;
}

/** Opens the store, and NATS before it where it is configured: a pod that may not use it stores nothing. */
async function openDatabase(
  settings: PodSettings,
  { log, ids, onEvent }: { log: Logger; ids: Ids; onEvent: StartPodOptions["onEvent"] },
): Promise<{ database: Database; nats: Nats | undefined }> {
  const nats =
    settings.nats &&
    createNats(natsFor(settings.store, settings.nats), {
      clock: systemClock,
      random: systemRandom,
      log,
      origin: ids.next(),
    });
  try {
    await nats?.connection().started;
    const opened = await openStore(settings.store, {
      ...settings,
      notifies: nats === undefined,
      log,
      ...(onEvent && { onEvent }),
    });
    return { database: nats ? nats.notifying(opened) : opened, nats };
  } catch (error) {
    await nats?.close();
    throw error;
  }
}

/** Pods that differ in their NATS miss each other's envelopes. A failure is passed over: nothing depends on it. */
async function warnOfOtherBus(
  database: Database,
  { own, log }: { own: string | undefined; log: Logger },
): Promise<void> {
  const pods = await storedPods(database).catch(() => []);
  const others = pods.filter(({ status, metadata }) => status === "up" && metadata["nats"] !== own);
  if (others.length === 0) return;
  log.warn(
    { pods: others.map(({ podId }) => podId).slice(0, maxPodsNamed), nats: own ?? null },
    "pods differ in `nats` and miss each other's envelopes: give all the same",
  );
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
