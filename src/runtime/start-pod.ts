import { hostname } from "node:os";
import process from "node:process";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { type Ids, uuidv7 } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import { systemRandom } from "../base/random.ts";
import { natsName } from "../bus/nats/config.ts";
import { createNats, type Nats, natsFor } from "../bus/nats/nats.ts";
import { readSecret } from "../bus/secret.ts";
import { setRecording } from "../changes/recording.ts";
import { createVitalSigns, startHeartbeatThread } from "../pods/heartbeat-thread.ts";
import { storedPods } from "../pods/pods.ts";
import { watchUnhandledRejections } from "../pods/unhandled-errors.ts";
import { redactingLogger } from "../redaction/log.ts";
import { createRedactor, shareRedactor } from "../redaction/redactor.ts";
import { warnOfPlainSecrets } from "../sessions/agents/registry.ts";
import { refuseStreams } from "../sessions/log/place.ts";
import type { StoredText } from "../store/codec/codec.ts";
import { type Database, withoutThrowing } from "../store/database.ts";
import { locateStore, openStore, storedTextOf, transactionOn } from "../store/open.ts";
import { noWorkerWarning } from "../tasks/inspect/blocked-by.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { type Config, type PodSettings, resolveConfig } from "./config.ts";
import type { PodLogsParts } from "./logs/pod-logs.ts";
import { createLateStore, isAway, type LateStore } from "./logs/late-store.ts";
import { deadLetterViews, lateFilesFor, localProgressFor, outboxDiskFor } from "./local-files.ts";
import { createSharePlaceCheck } from "./fleet/share-place.ts";
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
  const podId = ids.next();
  const thisProcess = identifyProcess();
  const text = storedTextOf({ ...settings, log });
  const opened = await openDatabase(settings, { podId, thisProcess, text, log, ids, onEvent });
  const { database, nats, late } = opened;
  const close = async () => {
    await database.close();
    await nats?.close();
  };
  const signs = createVitalSigns();
  const gauge = settings.pressure ? createPressureGauge() : undefined;
  const stopWatch = settings.onUnhandledRejection === "log" ? watchUnhandledRejections() : () => {};
  const unshare = shareRedactor(redactor);
  try {
    const { checkOthers, clusterId, files } = opened;
    const of = { podId, nats, database, ids, log, text, clusterId };
    const streams = await openStreamsFor(settings, of);
    const pod = await assemblePod(settings, {
      podId,
      database,
      ...streams,
      ...(late && { late }),
      checkOthers,
      readSecret: opened.readSecret,
      ...(nats && {
        connectBus: (address) =>
          nats.connectBus(address, {
            readSecret: opened.readSecret,
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
      ...files,
      views: deadLetterViews(settings, database, log),
      thisProcess,
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
    const warn = async () => {
      const from = late?.early ?? database;
      if (settings.sessions && !settings.codec) await warnOfPlainSecrets({ database: from, log });
      if (locateStore(settings.store).kind === "postgres")
        await warnOfOtherBus(from, { own: nats && natsName(nats.settings), log });
    };
    const started = stoppable(pod, stop);
    if (late) followLate(late, { started, warn, onEvent, log });
    else await warn();
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
 * The logs of a pod's sessions where they may be on NATS, and its shares of throttles if they are there; nothing
 * where both are in the store and stay there. Refuses a store that has logs where this pod can't reach them.
 */
async function openStreamsFor(
  { sessions }: PodSettings,
  { nats, ...parts }: Omit<PodLogsParts, "nats"> & { nats: Nats | undefined },
): Promise<Pick<PodParts, "openLogs" | "shareDocuments">> {
  if (nats && sessions !== false) {
    const { openPodLogs } = await import("./logs/open-logs.ts");
    return openPodLogs({ ...parts, nats }, sessions);
  }
  if (nats) {
    if (nats.settings.use !== "all") return {};
    const { openPodShares } = await import("./logs/pod-logs.ts");
    return openPodShares({ ...parts, nats });
  }
  await refuseStreams(parts.database);
  return {};
}

type Opened = {
  readonly database: Database;
  readonly nats: Nats | undefined;
  readonly checkOthers: () => Promise<void>;
  readonly readSecret: () => Promise<string>;
  readonly files: Pick<PodParts, "outboxDisk" | "localProgress">;
  /** Where the store is away: it, and the id of the deployment by what the streams say. */
  readonly late?: LateStore;
  readonly clusterId?: string;
};

type OpenParts = {
  podId: string;
  thisProcess: PodParts["thisProcess"];
  text: StoredText | undefined;
  log: Logger;
  ids: Ids;
  onEvent: StartPodOptions["onEvent"];
};

/** Opens the store, and NATS before it where it is configured: a pod that may not use it stores nothing. */
async function openDatabase(settings: PodSettings, parts: OpenParts): Promise<Opened> {
  const { podId, thisProcess, log, ids, onEvent } = parts;
  const clock = systemClock;
  const nats =
    settings.nats &&
    createNats(natsFor(settings.store, settings.nats), {
      clock,
      random: systemRandom,
      log,
      origin: ids.next(),
    });
  const open = () =>
    openStore(settings.store, {
      ...settings,
      notifies: nats === undefined,
      log,
      ...(onEvent && { onEvent }),
    });
  const checkIn = (database: Pick<Database, "read">) =>
    createSharePlaceCheck({
      podId,
      database,
      nats,
      deadAfterMs: settings.deadAfterMs,
      isGone: (host) => thisProcess?.isGone(host) ?? false,
      clock,
      log,
    });
  const record = async (database: Database) => {
    const { changes, migrate } = settings;
    if (changes === undefined) return;
    await setRecording(changes, { database, clock, random: systemRandom, ids, migrate, log });
  };
  try {
    await nats?.connection().started;
    const plain = await open().catch(async (error: unknown) => {
      if (!nats || !settings.sessions || !isAway(error)) throw error;
      return openLate(settings, { ...parts, nats, open, record, checkIn }, error);
    });
    if ("late" in plain) return plain;
    try {
      const database = nats ? nats.notifying(plain) : plain;
      await record(database);
      const checkOthers = checkIn(database);
      await checkOthers();
      const files = {
        ...(await outboxDiskFor(settings, database, log)),
        ...(await localProgressFor(settings, database, { clock, log })),
      };
      return { database, nats, checkOthers, readSecret: () => readSecret(database), files };
    } catch (error) {
      await plain.close();
      throw error;
    }
  } catch (error) {
    await nats?.close();
    throw error;
  }
}

type LateParts = OpenParts & {
  nats: Nats;
  open: () => Promise<Database>;
  record: (database: Database) => Promise<void>;
  checkIn: (database: Pick<Database, "read">) => () => Promise<void>;
};

/**
 * A store that is away, for a pod of a deployment whose logs are on NATS: what the pod needs of it at once, the
 * streams have. Throws the store's own failure where they don't.
 */
async function openLate(
  settings: PodSettings,
  { nats, open, record, checkIn, text, log, onEvent }: LateParts,
  away: unknown,
): Promise<Opened & { readonly late: LateStore }> {
  const { checkDatabase, deploymentOnStreams } = await import("./logs/stream-logs.ts");
  const parts = { nats, clock: systemClock, random: systemRandom, text };
  const deployment = await deploymentOnStreams(parts).catch((error: unknown) => {
    log.warn({ error: messageOf(error) }, "what the streams say of the deployment can't be read");
  });
  if (!deployment) throw away;
  const { clusterId, secret } = deployment;
  const { files, known } = await lateFilesFor(settings, { clock: systemClock, log });
  const late: LateStore = createLateStore(
    {
      open,
      async check(opened) {
        await checkDatabase(opened, deployment, parts);
        await known(opened);
        await record(opened);
        await checkOthers();
      },
      known: {
        writesAtOnce: true,
        within: (handle) => transactionOn(settings.store, handle, { text, notifies: false }),
        ...(onEvent && { report: withoutThrowing(onEvent) }),
        ...(text && { encodesContent: true }),
      },
      clock: systemClock,
      random: systemRandom,
      log,
    },
    away,
  );
  const checkOthers = checkIn(late.early);
  log.warn(
    { error: messageOf(away) },
    "the store is away: this pod serves sessions by their logs, and the rest once it is back",
  );
  return {
    database: nats.notifying(late.database),
    nats,
    checkOthers,
    readSecret: async () => secret,
    files,
    late,
    clusterId,
  };
}

/** What comes once the store is back; a pod that can't be let in to it stops. */
function followLate(
  late: LateStore,
  {
    started,
    warn,
    onEvent,
    log,
  }: Pick<OpenParts, "log" | "onEvent"> & { started: Pod; warn: () => Promise<void> },
): void {
  void late.whenAllowed.then(warn).catch(() => {});
  void late.whenRefused.then(async (error) => {
    log.error(
      { pod: started.podId, code: error.code, error: error.message },
      "the store is back, and this pod can't work on it: it stops",
    );
    onEvent?.({ type: "refused", error });
    await started.stop();
  });
}

/** Pods that differ in their NATS miss each other's envelopes. A failure is passed over: nothing depends on it. */
async function warnOfOtherBus(
  database: Pick<Database, "read">,
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
