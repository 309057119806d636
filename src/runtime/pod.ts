import { createAuditLeader } from "../audit/leader.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { createBulkLeader } from "../bulk/leader.ts";
import { createLazyBus, createStoreBus, pruneStaleEnvelopes } from "../bus/store-bus.ts";
import { createChangesLeader } from "../changes/recording.ts";
import { createDeadLetters } from "../dead-letters/dead-letters.ts";
import { createDeadLetterLeader } from "../dead-letters/leader.ts";
import {
  afterFailedBeat,
  leaderOf,
  type Liveness,
  type LivenessLimits,
  emptyLiveness,
  gapOf,
  type Observation,
  observe,
  type PodSeen,
  silenceOf,
} from "../pods/liveness.ts";
import type { Heartbeat } from "../pods/heartbeat.ts";
import { leaveFleet } from "../pods/pods.ts";
import { createRuns } from "../flows/runs.ts";
import { createFilesLeader } from "../files/leader.ts";
import { createFiles } from "../files/files.ts";
import { createTenantLeader } from "../quotas/leader.ts";
import { retrySetAsideRuns } from "../flows/drive/load.ts";
import { createTasks, taskShortcuts } from "../tasks/tasks.ts";
import { sendLeftovers } from "../tasks/finish/outbox-resend.ts";
import { capacityOf } from "../tasks/claim/capacity.ts";
import { createOutbox } from "../tasks/finish/outbox.ts";
import { readOldestWaits } from "../tasks/inspect/depth.ts";
import { createLeader } from "../tasks/leader/recover.ts";
import { createSchedules, putAll } from "../schedules/schedules.ts";
import { createFiring } from "../schedules/fire.ts";
import { handlerMetadata } from "../tasks/run/pod-status.ts";
import { startWorker, type Worker } from "../tasks/run/worker.ts";
import type { PodSettings } from "./config.ts";
import { machinesOf, serveMachines } from "./flows.ts";
import { agentsByName, selectHandlers } from "./handlers.ts";
import { laterHandler, laterTaskName } from "./later.ts";
import { wakeHandler, wakeTaskName } from "../sessions/wakes.ts";
import { needsCounts } from "./quota-config.ts";
import { settledWithin, withTimeout } from "../base/timeout.ts";
import { joinLate } from "./logs/late-store.ts";
import type { Pod, PodEvent, PodParts } from "./pod-parts.ts";
import { noSessions, startOnFirstUse, sessionMetadata, startSessions } from "./sessions.ts";
import { servePermits } from "./permit-holders.ts";
import { createPodFacts, type PodFacts } from "./pod-facts.ts";
import { createPodThrottles } from "./throttles.ts";

export { reasonCodes } from "../tasks/run/pod-status.ts";

export type { HeartbeatHooks, Pod, PodEvent, PodParts } from "./pod-parts.ts";

// The first beat inserts the pod's row; without it the pod can't claim.
const firstBeatLimitMs = 30_000;
// After this the pod starts, and the outbox is sent meanwhile.
const leftoversLimitMs = 10_000;
const pruneBusMs = 60_000;
const collectForksMs = 10 * 60_000;
// The heartbeat watches these, so that nothing is asked for what isn't there: with reports the leader has
// something to learn from, schedules are to be fired, redrives and bulks advanced, logs need owners,
// envelopes are to be read, and series folded.
const throttleReports = "throttle_report";
const schedules = "schedule";
const redrives = "redrive";
const bulks = "bulk";
const fileCounts = "file_count";
const sessionLogs = "session_log";
const envelopes = "bus_message";
const series = "series";

/**
 * Assembles a pod and starts it. Resolves when its first heartbeat is stored and it claims; where the store is
 * away, when it serves sessions, and the rest follows once the store is back.
 */
export async function assemblePod(settings: PodSettings, parts: PodParts): Promise<Pod> {
  const { podId, database, clock, log, late } = parts;
  let counting: PodFacts | undefined;
  // A listener that throws must not break the claim loop: no pod would run the claimed tasks.
  const onEvent = (event: PodEvent): void => {
    try {
      counting?.observe(event);
      parts.onEvent?.(event);
    } catch (error) {
      log.error(
        { pod: podId, event: event.type, error: messageOf(error) },
        "onEvent listener threw",
      );
    }
  };
  const { heartbeatMs, deadAfterMs, stallBeats } = settings;
  const limits: LivenessLimits = { heartbeatMs, deadAfterMs, gapMs: gapOf(settings) };
  const agents = agentsByName(settings.use);
  const handlers = selectHandlers(settings.use, settings.only);
  // Only agents in code have tools whose outputs come later.
  if (settings.sessions && [...agents.values()].some(({ source }) => source.type === "function")) {
    handlers.set(
      laterTaskName,
      laterHandler(() => sessions!.service),
    );
  }

  if (settings.sessions) {
    handlers.set(
      wakeTaskName,
      wakeHandler(() => ({ fire: sessions!.service.fireWake })),
    );
  }

  let worker: Worker | undefined;
  let setPulse: Heartbeat["setPulse"] = () => {};
  let sessions: ReturnType<typeof startOnFirstUse> | undefined;
  // Logs that aren't in the store have no rows there that a heartbeat could see.
  let hasSessions = parts.openLogs !== undefined;
  let draining = false;
  /** When a heartbeat last saw no envelope. */
  let noEnvelopesMs = -Infinity;
  let liveness: Liveness = emptyLiveness;
  let leader: string | undefined;
  let passing: Promise<unknown> | undefined;
  let passStartedMs = 0;
  let stopped: Promise<void> | undefined;
  const wakeWorker = () => worker?.wake();

  const tasks = createTasks({
    ...parts,
    maxPayloadBytes: settings.maxPayloadBytes,
    fileSettings: settings.files,
    onEnqueued: wakeWorker,
    claimWithin: (names) => worker?.claimWithin(names),
    inGroup: (group, span) => inGroup(group, span),
  });
  const lead = createLeader({
    onFreed: wakeWorker,
    podId,
    database,
    limits,
    retentionMs: settings.retentionMs,
    ids: parts.ids,
    log,
    onRecovered: (recovered, silences) => {
      const passMs = clock.monotonic() - passStartedMs;
      const silencesMs = silences.map((silentMs) => silentMs + passMs);
      onEvent({ type: "recovered", tasks: recovered, silencesMs });
      wakeWorker();
    },
  });

  const scheduleParts = {
    ...parts,
    maxPayloadBytes: settings.maxPayloadBytes,
    onEnqueued: wakeWorker,
  };
  const firing = createFiring({
    ...parts,
    everyMs: heartbeatMs,
    leads: () => leader === podId,
    onFired(fired) {
      onEvent({ type: "fired", ...fired });
      wakeWorker();
    },
  });

  const auditLeader = createAuditLeader({ ...parts, ...settings.audit });
  const changesLeader = createChangesLeader(parts);
  const countsTenants = needsCounts(settings.server?.quotas);
  const tenantLeader = countsTenants ? createTenantLeader(parts) : undefined;
  const filesLeader = createFilesLeader({
    ...parts,
    files: createFiles({ ...parts, settings: settings.files }),
  });
  const bulkLeader = createBulkLeader({
    ...parts,
    ...(parts.bulkBatchTasks !== undefined && { batchTasks: parts.bulkBatchTasks }),
    leads: () => leader === podId && stopped === undefined,
    onActed: wakeWorker,
  });
  const deadLetterLeader = createDeadLetterLeader({ ...parts, onTaken: wakeWorker });
  const stopLeaders = async () => {
    await deadLetterLeader.stop();
    await bulkLeader.stop();
    await auditLeader.stop();
    await changesLeader.stop();
    await tenantLeader?.stop();
    await filesLeader.stop();
  };
  const {
    close: closeDeadLetters,
    inGroup,
    ...deadLetters
  } = createDeadLetters({
    ...parts,
    leaderIndex: () => deadLetterLeader.kept,
  });

  // A heartbeat that is late says nothing any more.
  const mayHaveEnvelopes = () => clock.monotonic() - noEnvelopesMs > heartbeatMs * 2;
  const bus = createLazyBus(
    () =>
      parts.connectBus?.(podId) ?? createStoreBus({ ...parts, address: podId, mayHaveEnvelopes }),
    (started) => {
      servePermits(started, { throttles: throttles.registry, clock });
      serveMachines(
        started,
        machinesOf(settings.use).filter(({ name }) => handlers.has(name)),
      );
    },
  );
  const throttles = createPodThrottles({ ...parts, onEvent, handlers, agents, bus: bus.start });
  // Only a store keeps envelopes for a process that doesn't read them yet.
  if (parts.connectBus) bus.start();
  const runs = createRuns(tasks, { ...scheduleParts, stopping: () => stopped !== undefined });
  const facts = createPodFacts({
    ...parts,
    tickMs: heartbeatMs / 2,
    registry: throttles.registry,
    prices: settings.prices,
    held: () => worker?.running ?? 0,
    longestRunning: (count) => worker?.longestRunning(count) ?? [],
    backlogs: (count) => sessions?.archiveState()?.backlogs.slice(0, count) ?? [],
    readOldestWaits: () => readOldestWaits(database),
    setPulse: (pulse) => setPulse(pulse),
  });
  counting = facts;

  // Leftovers are sent first: the leader gives their tasks to other pods once the old pod counts as dead.
  const outbox =
    parts.outboxDisk &&
    createOutbox({ ...parts, disk: parts.outboxDisk, maxBytes: settings.outboxMaxBytes });
  const leaving = new AbortController();
  const sendLeft = () => outbox && sendLeftovers({ ...parts, outbox, signal: leaving.signal });
  let leftovers = late ? undefined : sendLeft();
  if (leftovers) await settledWithin(clock, leftoversLimitMs, leftovers);

  const firstBeat = Promise.withResolvers<void>();
  let lastError = "no beat was committed";

  let prunedMs = clock.monotonic();
  /** Deletes envelopes that were never received, such as those to a process that is gone. */
  const pruneBus = (): void => {
    const mayBeSome = settings.sessions !== false || noEnvelopesMs === -Infinity;
    if (!mayBeSome || clock.monotonic() - prunedMs < pruneBusMs) return;
    prunedMs = clock.monotonic();
    void pruneStaleEnvelopes(database);
  };

  let collectedMs = clock.monotonic();
  let collecting: Promise<void> | undefined;
  /** Lets go of what was held for forks that are gone, where the process ended that would have done so. */
  const collectForks = (): void => {
    if (!hasSessions || collecting || clock.monotonic() - collectedMs < collectForksMs) return;
    collectedMs = clock.monotonic();
    collecting = sessions?.collectForks().finally(() => {
      collecting = undefined;
    });
  };

  /** Takes no more work, or does again. Leads and fires schedules all the same. */
  const drain = (drains: boolean): void => {
    if (draining === drains) return;
    draining = drains;
    log.info({ pod: podId }, drains ? "pod draining" : "pod takes work again");
    worker?.drain(drains);
    sessions?.drain(drains);
  };

  const isGone = ({ host }: PodSeen) =>
    host !== undefined && parts.thisProcess?.isGone(host) === true;
  const onBeat = (seen: Observation) => {
    facts.beat(seen);
    const before = liveness;
    const previousMs = before.lastBeatMs;
    const pods = seen.pods.map((pod) => ({ ...pod, gone: isGone(pod) }));
    liveness = observe(before, { ...seen, pods }, limits);
    firstBeat.resolve();
    const lagMs = previousMs === undefined ? 0 : seen.atMs - previousMs - heartbeatMs;
    onEvent({ type: "beat", atMs: seen.atMs, lagMs: Math.max(0, lagMs) });
    const now = leaderOf(liveness, limits, podId);
    if (now !== leader) {
      const silentMs = leader === undefined ? undefined : silenceOf(leader, before, liveness);
      leader = now;
      log.info({ pod: podId, leader }, leader === podId ? "this pod leads" : "another pod leads");
      onEvent({ type: "leading", podId: leader, ...(silentMs !== undefined && { silentMs }) });
    }
    if (stopped) return;
    drain(seen.pods.some((pod) => pod.podId === podId && pod.drains === true));
    const filled = new Set(seen.filledTables);
    if (filled.has(schedules)) void firing.pass();
    deadLetterLeader.beat(leader === podId, { hasRedrives: filled.has(redrives) });
    if (leader === podId && filled.has(bulks)) bulkLeader.beat();
    if (leader === podId) pruneBus();
    if (leader === podId) auditLeader.beat();
    if (leader === podId) changesLeader.beat();
    if (leader === podId) collectForks();
    if (leader === podId) tenantLeader?.beat();
    if (leader === podId && filled.has(fileCounts)) filesLeader.beat();
    if (leader === podId && filled.has(throttleReports)) throttles.learn();
    if (leader === podId) facts.lead();
    if (leader === podId && filled.has(series)) facts.fold();
    hasSessions ||= filled.has(sessionLogs);
    noEnvelopesMs = filled.has(envelopes) ? -Infinity : seen.atMs;
    if (hasSessions) sessions?.wake();
    if (filled.has(envelopes)) bus.start();
    if (passing) return;
    passStartedMs = clock.monotonic();
    passing = lead.pass(liveness).finally(() => {
      passing = undefined;
    });
  };

  let cancelReportAlive = () => {};
  const reportAlive = () => {
    parts.reportAlive();
    facts.tick();
    cancelReportAlive = clock.after(heartbeatMs / 2, reportAlive);
  };
  let heartbeat: Heartbeat | undefined;
  const beginHeartbeat = () => {
    heartbeat = parts.startHeartbeat({
      podId,
      heartbeatMs,
      stallBeats,
      metadata: {
        ...handlerMetadata([...handlers.values()]),
        // A pod that nothing holds back stores no state, which would tell it.
        holds: capacityOf(settings),
        ...(settings.sessions && { sessions: sessionMetadata(agents) }),
      },
      host: parts.thisProcess?.host,
      watchedTables: [
        throttleReports,
        schedules,
        redrives,
        bulks,
        sessionLogs,
        envelopes,
        series,
        fileCounts,
      ],
      onBeat,
      onError(error) {
        lastError = error;
        liveness = afterFailedBeat(liveness);
        onEvent({ type: "beat_failed" });
        log.warn({ pod: podId, error }, "heartbeat failed");
      },
    });
    ({ setPulse } = heartbeat);
  };
  const endHeartbeat = async () => {
    cancelReportAlive();
    await heartbeat?.stop();
  };

  const retryRuns = () => retrySetAsideRuns(database, handlers.values());
  const declareSchedules = () =>
    putAll(settings.schedules, scheduleParts, { limitMs: firstBeatLimitMs, declares: true });

  reportAlive();
  try {
    if (!late) {
      beginHeartbeat();
      await withTimeout(
        clock,
        firstBeatLimitMs,
        firstBeat.promise,
        () => new FlotillaError("store_unavailable", `the first heartbeat failed: ${lastError}`),
      );
      await parts.checkOthers?.();
      await retryRuns();
      await declareSchedules();
    }
  } catch (error) {
    await firing.stop();
    await stopLeaders();
    await throttles.stop();
    await facts.stop();
    await endHeartbeat();
    await bus.close();
    await leaveFleet(database, podId);
    leaving.abort();
    await leftovers;
    await outbox?.close();
    throw error;
  }
  worker = startWorker({
    ...parts,
    ...(outbox && { outbox }),
    handlers,
    capacity: { slots: settings.slots, target: settings.target },
    ...(settings.pressure &&
      parts.readPressure && {
        pressure: { read: parts.readPressure, limits: settings.pressure },
      }),
    pollMs: settings.pollMs,
    graceMs: settings.graceMs,
    maxResultBytes: settings.maxResultBytes,
    fileSettings: settings.files,
    middleware: settings.middleware,
    throttles: throttles.registry,
    prices: settings.prices,
    onAbandoned: parts.abandonCallsUpTo,
    onEvent,
    onEnded: tasks.ended,
    hasSuspectTurn: () => sessions?.hasSuspect() ?? false,
    restHasDrained: () => (sessions?.hasDrained() ?? true) && parts.holdsClaims?.() !== true,
  });
  worker.drain(draining);
  if (settings.sessions) {
    const { registry } = throttles;
    const runsSuspectTask = () => worker.hasSuspect;
    const podsSeen = () =>
      [...liveness.pods.values()]
        .map(({ podId: id, status, drains = false }) => `${id} ${status} ${drains}`)
        .join();
    const links = { tasks, runs, onEvent, onEnqueued: wakeWorker };
    const own = { agents, ...links, throttles: registry, runsSuspectTask, podsSeen };
    const sessionParts = { ...settings, ...settings.sessions, ...parts, ...own, countsTenants };
    sessions = startOnFirstUse(() => startSessions({ ...sessionParts, bus: bus.start() }));
    sessions.drain(draining);
    if (hasSessions) sessions.wake();
  }
  log.info({ pod: podId, names: [...handlers.keys()], slots: settings.slots }, "pod started");
  const joining =
    late &&
    joinLate(late, leaving.signal, {
      async list() {
        beginHeartbeat();
        await firstBeat.promise;
      },
      checkOthers: async () => parts.checkOthers?.(),
      begin() {
        log.info({ pod: podId }, "the store is back, and this pod works on it");
        leftovers = sendLeft();
      },
      rest: [retryRuns, declareSchedules],
    });

  const stop = async (): Promise<void> => {
    log.info({ pod: podId, running: worker.running }, "pod stopping");
    late?.leave();
    const fired = firing.stop();
    await Promise.all([
      worker.stop({ waitMs: settings.shutdownMs }),
      sessions?.stop({ waitMs: settings.shutdownMs }),
    ]);
    // Handlers have ended, or were abandoned and keep their permits.
    const throttlesStopped = throttles.stop();
    leaving.abort();
    await joining;
    await leftovers;
    await outbox?.close();
    parts.localProgress?.close();
    tasks.close();
    closeDeadLetters();
    await stopLeaders();
    await fired;
    await throttlesStopped;
    await passing;
    await facts.stop();
    await endHeartbeat();
    await bus.close();
    if (heartbeat) await leaveFleet(late?.early ?? database, podId);
    log.info({ pod: podId }, "pod stopped");
  };

  return {
    ...taskShortcuts(tasks),
    tasks,
    podId,
    deadLetters,
    runs,
    sessions: sessions?.sessions ?? noSessions(),
    sessionService: sessions?.service ?? null,
    sessionLoad: () => sessions?.load(),
    archiveState: () => sessions?.archiveState(),
    schedules: createSchedules(scheduleParts),
    throttles: throttles.client,
    get leader() {
      return leader;
    },
    get running() {
      return worker.running;
    },
    get state() {
      return worker.state;
    },
    get capacity() {
      return worker.capacity;
    },
    get isDraining() {
      return draining;
    },
    stop: () => (stopped ??= stop()),
    [Symbol.asyncDispose]: () => (stopped ??= stop()),
  };
}
