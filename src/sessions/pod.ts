import { reportEntry } from "../audit/act.ts";
import type { Json } from "../base/json.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { Logger } from "../base/log.ts";
import type { Ids } from "../base/ids.ts";
import type { Random } from "../base/random.ts";
import type { Clock } from "../base/clock.ts";
import type { AgentRegistry } from "./agents/registry.ts";
import type { AgentFacts, Facts, Reply } from "./conversation/command.ts";
import type { Bus } from "../bus/bus.ts";
import type { Journal, Log, Presence, Reads, Recovered } from "./log/journal.ts";
import type { Files } from "../files/files.ts";
import type { Database } from "../store/database.ts";
import type { Header } from "./conversation/header.ts";
import type { Hub } from "./delivery/delivery.ts";
import type { Ahead } from "./list.ts";
import { answerIdPrefix } from "./validate.ts";
import type { CommandRouter } from "./log/command-router.ts";
import type { Fleet } from "./log/fleet.ts";
import { type Heads } from "./log/heads.ts";
import {
  createOwners,
  type LogEvent,
  type Owned,
  type Owners,
  type TakenLog,
} from "./log/ownership.ts";
import { createTurnMonitor, type TurnMonitor } from "./log/turn-monitor.ts";
import { createOwner, type CommittedRecord } from "./log/owner.ts";
import { logOf } from "./log/placement.ts";
import type { Runner, WorkId } from "./runner.ts";
import { decodeCheckpoint } from "./turns/unfinished.ts";

export type LocalSessionsParts = {
  database: Database;
  journal: Journal;
  /** The same journal by cold reads, for clients that follow or read. Default: `journal`. */
  coldJournal?: Reads;
  /** Where heads are read that a command needs. Default: `journal`. */
  headSource?: Pick<Log, "heads"> | undefined;
  /** The same journal, if it is ahead of the database. */
  ahead?: Ahead | undefined;
  bus: Bus;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  maxPayloadBytes: number;
  /** How many logs to create when there are none. */
  logs: number;
  /** Whether records change the counts of tenants, which quotas need. Default false. */
  countsTenants?: boolean | undefined;
  /** The files of conversations. */
  files: Files;
  /** The trace context of the caller, or else the given one. Default: no tracing. */
  currentTrace?: (given: TraceHeaders | undefined) => string | null;
};

/** A pod's part in sessions: it owns logs, and makes answers. */
export type PodSessions = {
  readonly owners: Owners;
  readonly runner: Runner;
  /** Sets the router by which answers reach the owners. */
  connect(router: CommandRouter): void;
  /** Takes no more turns and hands its logs on, or does both again. Turns that run go on. */
  drain(drains: boolean): void;
  /** True if it makes no answer and owns no log that another pod could have. */
  readonly hasDrained: boolean;
  /** Has lists read again that show these sessions, because the database has more of them now. */
  archived(sessionIds: ReadonlySet<string>): void;
  /**
   * Drains, and leaves. Where pods hear each other, its logs go first and turns run to their end, for up to
   * `drainMs`: a turn goes on although its log has another owner, which gets the answer. Then turns end at
   * their next step, and after `waitMs` they are released.
   */
  stop(options: { waitMs: number }): Promise<void>;
};

export type PodSessionsOptions = {
  podId: string;
  host: string | null;
  isGone: (host: string) => boolean;
  presence: Presence;
  /** How long turns run to their end where logs are handed over first. Default 600,000. */
  drainMs?: number;
  fleet: Fleet;
  registry: AgentRegistry;
  createRunner: (parts: RunnerLinks) => Runner;
  onEvent: (event: LogEvent) => void;
};

/** How a runner reaches the owners and the subscribers. */
export type RunnerLinks = {
  ask: CommandRouter["submit"];
  live: { chunks: Hub["chunks"] };
};

type PodParts = Omit<LocalSessionsParts, "files"> & { heads: Heads; hub: () => Hub };

const reportEveryMs = 1_000;
const defaultDebounceMs = 500;
const readyTimeoutMs = 1_000;
/** How long a pod that stops waits for others to take its logs. What is left then is released at the end. */
const leaveLimitMs = 5_000;
const usualDrainMs = 600_000;
/** Anyone can ask for agents that don't exist, and each time the fleet is read for them. */
const lookEveryMs = 250;

const topics = {
  start: "session.start",
  abort: "session.abort",
  named: "session.named",
  offer: "session.offer",
  ready: "session.ready",
} as const;

const none: readonly string[] = [];

export function startPodSessions(parts: PodParts, options: PodSessionsOptions): PodSessions {
  const { bus, clock, ids, log, journal, heads } = parts;
  const { podId, fleet, registry } = options;
  const monitors = new Map<number, TurnMonitor>();
  /** Pods whose processes are known to have ended. Pod ids are never reused. */
  const gonePods = new Set<string>();
  let router: CommandRouter | undefined;
  let stopping = false;
  let draining = false;
  let cancelReporting = () => {};

  const runner = options.createRunner({
    ask: (...args) => router!.submit(...args),
    live: { chunks: (live) => parts.hub().chunks(live) },
  });

  const factsAbout = (tenant: string, name: string): AgentFacts | undefined =>
    registry.facts(tenant, name) ?? fleet.factsOf(name);
  const runnerFor = (tenant: string, name: string, except: string | null): string | null => {
    const hasAgent = registry.facts(tenant, name) !== undefined;
    if (hasAgent && !stopping && !draining && except !== podId) return podId;
    const able = fleet.withAgent(name);
    // A stored agent runs on any pod. An agent in this pod's code may be on no other pod, whatever the
    // fleet knows: this pod's own row may be gone already.
    const isStored = hasAgent && !registry.isInCode(name);
    const others = (able.length > 0 || !isStored ? able : [...fleet.pods().keys()]).filter(
      // A dead pod stays listed for a while.
      (each) => each !== podId && each !== except && !gonePods.has(each),
    );
    return others[parts.random.uint32() % Math.max(1, others.length)] ?? null;
  };
  const facts = (tenant: string): Facts => ({
    nowMs: clock.now(),
    newId: () => answerIdPrefix + ids.next(),
    agent: (name) => factsAbout(tenant, name),
    runnerFor: (name, except = null) => runnerFor(tenant, name, except),
  });
  let lookedMs = -Infinity;
  /** Looks for agents in the code of pods that were started since the fleet was last read. */
  const look = async (isFound: () => boolean): Promise<void> => {
    if (clock.monotonic() - lookedMs < lookEveryMs) return;
    lookedMs = clock.monotonic();
    // The first may have begun before such a pod was there.
    for (let reads = 0; reads < 2 && !isFound(); reads++) await fleet.refresh();
  };
  const prime = (tenant: string, names: readonly string[]): Promise<void> | undefined => {
    const unknown = () => names.filter((name) => factsAbout(tenant, name) === undefined);
    const missing = unknown();
    if (missing.length === 0) return undefined;
    return registry.prime(tenant, missing).then(() => look(() => unknown().length === 0));
  };

  const start = (to: string, header: Header): void => {
    if (to === podId) runner.start(header);
    else bus.send(to, topics.start, { header } as unknown as Json);
  };
  const abort = (to: string, which: WorkId, keep: boolean): void => {
    if (to === podId) runner.abort(which, { keep });
    else bus.send(to, topics.abort, { which, keep } as unknown as Json);
  };
  const checkpoint = async ({ sessionId, epoch }: WorkId): Promise<Reply | undefined> => {
    const stored = await journal.checkpoint(sessionId);
    return stored?.epoch === epoch ? decodeCheckpoint(stored.body).reply : undefined;
  };

  const own = async (
    head: CommittedRecord["head"],
    recovered: Recovered,
    { onFenced, isFresh, gone, silent }: TakenLog,
  ): Promise<Owned> => {
    const { busy } = recovered;
    if (gone !== null && gone !== podId) gonePods.add(gone);
    await Promise.all(busy.flatMap(({ tenant, agents }) => prime(tenant, agents) ?? []));
    const monitor = createTurnMonitor({
      clock,
      log,
      start,
      abort,
      checkpoint,
      submit: (header, command) => owner.submit(header.tenant, header.sessionId, command),
      isGone: (runner) => gonePods.has(runner),
      silent,
      debounceMs: (tenant, name) => factsAbout(tenant, name)?.debounceMs ?? defaultDebounceMs,
    });
    const owner = createOwner(head, recovered, {
      ...parts,
      facts,
      prime,
      onFenced,
      isFresh,
      ownedLogs: () => Math.max(1, monitors.size),
      onCommitted(committed) {
        for (const header of committed.record.headers) monitor.watch(header);
        for (const [sessionId, effect] of committed.effects) monitor.perform(sessionId, effect);
        const hub = parts.hub();
        const followed = deliveries(committed, owner.cachedHeader, hub.isFollowed);
        if (followed.length > 0) hub.committed(followed);
        const { record, durationMs } = committed;
        for (const act of record.acts ?? []) reportEntry(parts.log, { ...act, outcome: "done" });
        options.onEvent({ type: "record", entries: record.entries.length, durationMs });
      },
    });
    monitors.set(head.logId, monitor);
    for (const header of busy) monitor.watch(header);
    return {
      owner,
      end() {
        monitor.close();
        if (monitors.get(head.logId) === monitor) monitors.delete(head.logId);
      },
    };
  };

  const owners = createOwners({
    ...parts,
    ...options,
    onEvent(event) {
      if (event.type === "log_owned") parts.hub().ownersMoved();
      options.onEvent(event);
    },
    pods: fleet.pods,
    drains: () => draining,
    own,
    wouldTake: async (to) =>
      bus.request(to, topics.ready, null, { timeoutMs: readyTimeoutMs }).then(
        (answer) => answer === true,
        () => false,
      ),
    offer: (to, logIds) => bus.send(to, topics.offer, { logIds: [...logIds] }),
  });
  fleet.start();

  const unserve = [
    bus.serve(topics.start, (body) => {
      runner.start((body as unknown as { header: Header }).header);
      return null;
    }),
    bus.serve(topics.abort, (body) => {
      const { which, keep } = body as unknown as { which: WorkId; keep: boolean };
      runner.abort(which, { keep });
      return null;
    }),
    bus.serve(topics.named, (body) => {
      confirm((body as unknown as { works: WorkId[] }).works);
      return null;
    }),
    bus.serve(topics.ready, () => !stopping && !draining),
    bus.serve(topics.offer, (body) => {
      // Pods of earlier releases name no logs.
      const { logIds = [] } = (body ?? {}) as { logIds?: readonly number[] };
      void fleet.refresh().then(() => owners.poll(logIds));
      return null;
    }),
  ];

  const confirm = (works: readonly WorkId[]): void => {
    for (const monitor of monitors.values()) monitor.confirm(works);
  };

  /** Reports the work of this pod to the owners of its sessions. */
  const reportRunning = (): void => {
    cancelReporting = clock.after(reportEveryMs, reportRunning);
    const works = runner.running();
    if (works.length === 0) return;
    confirm(works);
    const byOwner = Map.groupBy(works, ({ sessionId }) => {
      const logs = heads.last.length;
      return logs === 0 ? null : (heads.last[logOf(sessionId, logs)]?.owner ?? null);
    });
    for (const [to, theirs] of byOwner) {
      if (to !== null && to !== podId) {
        bus.send(to, topics.named, { works: theirs } as unknown as Json);
      }
    }
  };
  cancelReporting = clock.after(reportEveryMs, reportRunning);

  const drain = (drains: boolean): void => {
    if (draining === drains) return;
    draining = drains;
    void fleet.refresh().then(() => owners.poll());
  };

  return {
    owners,
    runner,
    connect(connected) {
      router = connected;
    },
    drain,
    get hasDrained() {
      const isAlone = [...fleet.pods().keys()].every((each) => each === podId);
      if (runner.running().length > 0 || owners.kept > 0) return false;
      return isAlone || owners.owned.length === 0;
    },
    archived(sessionIds) {
      const hub = parts.hub();
      const shown = [...sessionIds].flatMap((sessionId) => {
        const owner = hub.isFollowed(sessionId) ? owners.of(sessionId) : undefined;
        const header = owner?.cachedHeader(sessionId);
        if (!owner || !header) return [];
        const { logId, offset, incarnation } = owner.head;
        return [{ sessionId, entries: [], header, incarnation, logId, offset, formerUsers: none }];
      });
      if (shown.length > 0) hub.committed(shown);
    },
    async stop({ waitMs }) {
      stopping = true;
      const { presence, drainMs = usualDrainMs } = options;
      if (presence.listening) {
        drain(true);
        await owners.leave({ limitMs: leaveLimitMs });
      }
      await runner.stop({ waitMs, ...(presence.listening && { drainMs }) });
      await owners.stop();
      cancelReporting();
      for (const each of unserve) each();
      fleet.close();
    },
  };
}

/** What a record means for the followers of its sessions. Most sessions have none. */
function deliveries(
  { head, record, formerUsers }: CommittedRecord,
  headerOf: (sessionId: string) => Header | undefined,
  isFollowed: Hub["isFollowed"],
): Parameters<Hub["committed"]>[0] {
  const { logId, offset, incarnation } = head;
  const headers = new Map<string, Header>();
  for (const header of record.headers) {
    if (isFollowed(header.sessionId)) headers.set(header.sessionId, header);
  }
  // A read position leaves the header unchanged, but changes an inbox.
  for (const { sessionId } of record.reads) {
    const header = isFollowed(sessionId) && (headers.get(sessionId) ?? headerOf(sessionId));
    if (header) headers.set(sessionId, header);
  }
  if (headers.size === 0) return [];
  const entries = Map.groupBy(record.entries, ({ sessionId }) => sessionId);
  return Array.from(headers.values(), (header) => ({
    sessionId: header.sessionId,
    entries: entries.get(header.sessionId) ?? [],
    header,
    incarnation,
    logId,
    offset,
    formerUsers: formerUsers.get(header.sessionId) ?? none,
  }));
}
