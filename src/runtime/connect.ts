import process from "node:process";
import { type Audit, createAudit } from "../audit/audit.ts";
import { systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { defaultMaxBytes } from "../base/json.ts";
import { silentLogger } from "../base/log.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { systemRandom } from "../base/random.ts";
import { type Bulks, createBulks } from "../bulk/bulks.ts";
import { checkCodec } from "../store/codec/codec.ts";
import type { NatsConfig } from "../bus/nats/config.ts";
import { createNats, type Nats, natsFor } from "../bus/nats/nats.ts";
import { readSecret } from "../bus/secret.ts";
import { createLazyBus, createStoreBus } from "../bus/store-bus.ts";
import { type ChangesReader, createChanges } from "../changes/changes.ts";
import { createDeadLetters, type DeadLetters } from "../dead-letters/dead-letters.ts";
import { createRuns, type Runs } from "../flows/runs.ts";
import { createCredentials, type Credentials } from "../keys/credentials.ts";
import { createKeys, type Keys } from "../keys/keys.ts";
import { createRevocations, type TokenRevocations } from "../keys/revocations.ts";
import { createSignIns, type SignIns } from "../keys/sign-ins.ts";
import { createFileAccess, type FileAccess } from "../files/access.ts";
import { createFiles, type Files, type FilesConfig } from "../files/files.ts";
import { claimUploads, type FilesOfTasks, uploadsOf } from "../files/uploads.ts";
import { createTenantCounter, type TenantCounter } from "../quotas/counts.ts";
import { redactingLogger } from "../redaction/log.ts";
import { createSchedules, type Schedules } from "../schedules/schedules.ts";
import { createSeriesReader, type SeriesReader } from "../series/series.ts";
import { createStoredAgents, type StoredAgents } from "../sessions/agents/stored-agents.ts";
import { lazyService } from "../sessions/lazy-service.ts";
import { readSessionCounts, type SessionCounts } from "../sessions/list.ts";
import { logPlaceOf } from "../sessions/log/place.ts";
import {
  createSqlJournal,
  createSqlPresence,
  createSqlReads,
} from "../sessions/log/sql-journal.ts";
import type { SessionService } from "../sessions/service.ts";
import { createSessions, type Sessions } from "../sessions/sessions.ts";
import { createLocalSessions, type LocalSessions } from "../sessions/start.ts";
import {
  coldReads,
  type Database,
  pageReads,
  withoutThrowing,
  writeProbe,
} from "../store/database.ts";
import {
  checkedStore,
  openStore,
  locateStore,
  type Store,
  type StoreKind,
  type StoreOptions,
  storedTextOf,
  transactionOn,
} from "../store/open.ts";
import { noWorkerWarning } from "../tasks/inspect/blocked-by.ts";
import { createTasks, type Tasks, type TaskShortcuts, taskShortcuts } from "../tasks/tasks.ts";
import { activeTrace } from "../tasks/trace.ts";
import { createThrottlesClient, type ThrottlesClient } from "../throttles/shares/admin.ts";
import { type ApprovalListOptions, type ApprovalPage, createApprovals } from "./approvals.ts";
import { bytesRange, logsFor } from "./config.ts";
import { checkDataDir } from "./data-folder.ts";
import { deadLetterViews } from "./local-files.ts";
import { checkFiles } from "../files/config.ts";
import { createFleetPages, type FleetPages } from "./fleet/pages.ts";
import { createPermitHolders, type PermitHoldersClient } from "./permit-holders.ts";
import { createPlacedLogs } from "./logs/placed-logs.ts";
import { createStoredLogs } from "./logs/stored-logs.ts";
import type { StreamLogsParts } from "./logs/stream-logs.ts";
import { createPodActs, type PodActs } from "./pods.ts";
import type { LocalSessionsParts } from "../sessions/pod.ts";

export type ConnectOptions = StoreOptions & {
  /** Default 256 KiB. */
  maxPayloadBytes?: number;
  /** The folder for the index of failed tasks, which is kept for the next query. Default: none. */
  dataDir?: string | false;
  /** Whether agents that are created over HTTP may be in private networks. Default false. */
  privateAgents?: boolean;
  /** The same servers of NATS as those of the pods. Default none. */
  nats?: NatsConfig;
  /** Files of conversations and of tasks, as the config of the pods has them in `files`. */
  files?: FilesConfig;
};

/** A connection to a store. It enqueues and reads, and never claims, beats or runs anything. */
export type Flotilla = TaskShortcuts &
  PodActs & {
    readonly tasks: Tasks;
    readonly deadLetters: DeadLetters;
    /** Acts on all tasks and runs that match a filter. */
    readonly bulk: Bulks;
    readonly runs: Runs;
    readonly schedules: Schedules;
    readonly throttles: ThrottlesClient & PermitHoldersClient;
    readonly agents: StoredAgents;
    /** Keys in the store, which servers accept beside those of their config. */
    readonly keys: Keys;
    /** Browsers that have signed in to a server with a key. */
    readonly signIns: SignIns;
    /** Users' tokens that servers refuse before they expire. */
    readonly tokens: TokenRevocations;
    /** Keys and revocations as servers check them. */
    readonly credentials: Credentials;
    /** Who did what. */
    readonly audit: Audit;
    /** Follows what is changed, where the config of the pods says `changes`. */
    readonly changes: ChangesReader;
    /** What tenants use, where the config of the pods has quotas for it. */
    readonly quotas: TenantCounter;
    /** What was counted over time, by task, flow, agent, throttle and pod. */
    readonly series: SeriesReader;
    readonly sessions: Sessions;
    /** The service behind the server's session routes. */
    readonly sessionService: SessionService;
    /** Files of conversations, and addresses of them that need no credentials; and what servers have for tasks. */
    readonly files: Files & FileAccess & FilesOfTasks;
    /** Everything that waits for a person, the longest first. */
    approvals(options?: ApprovalListOptions): Promise<ApprovalPage>;
    /** How many sessions there are, and how many are active; counts up to 10,000. */
    sessionCounts(): Promise<SessionCounts>;
    /** The same for pages that people look at, on connections of their own. */
    readonly pages: FleetPages;
    /** The kind of store behind this connection. */
    readonly storeKind: StoreKind;
    /** Whether NATS can be used right now; null without `nats`. Connects with the first look. */
    readonly natsState: "connected" | "away" | null;
    /** Whether the logs of sessions are on NATS, so that they go on while the store is away. */
    readonly hasStreamLogs: boolean;
    /** Resolves after a write to the store has been committed. */
    ping(): Promise<void>;
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
  };

/** Connects to a store. The first call opens it, so a web process can start while it is away. */
export function connect(store: Store, given: ConnectOptions = {}): Flotilla {
  const options = given.log ? { ...given, log: redactingLogger(given.log) } : given;
  checkOptions("connect", options, [
    "durability",
    "migrate",
    "create",
    "log",
    "maxPayloadBytes",
    "dataDir",
    "privateAgents",
    "onEvent",
    "codec",
    "nats",
    "files",
  ]);
  checkedStore(store);
  const { durability, migrate, maxPayloadBytes } = options;
  if (durability !== undefined) checkChoice("durability", durability, ["full", "relaxed"]);
  if (migrate !== undefined) checkChoice("migrate", migrate, ["auto", "check"]);
  if (maxPayloadBytes !== undefined) checkNumber("maxPayloadBytes", maxPayloadBytes, bytesRange);
  if (options.dataDir !== undefined) checkDataDir(options.dataDir);
  if (options.codec !== undefined) checkCodec(options.codec);
  const fileSettings = checkFiles("files", options.files);
  const text = storedTextOf(options);
  const ids = uuidv7(systemClock, systemRandom);
  const nats =
    options.nats &&
    createNats(natsFor(store, options.nats), {
      clock: systemClock,
      random: systemRandom,
      log: options.log ?? silentLogger,
      origin: ids.next(),
    });
  const notifies = nats === undefined;
  let opening: Promise<Database> | undefined;
  let closed = false;
  const open = async (): Promise<Database> => {
    if (closed) throw new FlotillaError("closed", "the connection was closed");
    opening ??= openStore(store, { ...options, notifies }).catch((error: unknown) => {
      // The next call tries again, because a store that was away at start-up may be back.
      opening = undefined;
      throw error;
    });
    return opening;
  };
  const plain: Database = {
    read: async (statement, options) => (await open()).read(statement, options),
    write: async (statements, options) => (await open()).write(statements, options),
    subscribe(listener, channel) {
      let stop: (() => void) | undefined;
      let stopped = false;
      void open().then(
        (opened) => {
          if (!stopped) stop = opened.subscribe(listener, channel);
        },
        () => {},
      );
      return () => {
        stopped = true;
        stop?.();
      };
    },
    // Does not open the store: the caller's open transaction could block the migration.
    within: (handle) => transactionOn(store, handle, { text, notifies }),
    async close() {
      closed = true;
      await (await opening?.catch(() => undefined))?.close();
    },
    ...(options.onEvent && { report: withoutThrowing(options.onEvent) }),
    ...(options.codec && { encodesContent: true }),
  };
  const database = nats ? nats.notifying(plain) : plain;
  const parts = {
    database,
    clock: systemClock,
    random: systemRandom,
    ids,
    ...(options.log && { log: options.log }),
    ...(maxPayloadBytes !== undefined && { maxPayloadBytes }),
  };
  const { log } = options;
  // Without a logger, Node prints the warning.
  const onNoWorker = (name: string) =>
    log
      ? log.warn({ name }, noWorkerWarning(name))
      : process.emitWarning(noWorkerWarning(name), "FlotillaWarning");
  const {
    close: closeDeadLetters,
    inGroup,
    ...deadLetters
  } = createDeadLetters({
    ...parts,
    views: deadLetterViews(options, database),
  });
  const {
    ended: _,
    close: closeTasks,
    ...tasks
  } = createTasks({ ...parts, fileSettings, onNoWorker, inGroup });
  const hasStreamLogs = nats ? watchPlace(nats.settings, database) : () => false;
  const credentials = createCredentials({ ...parts, log, hasStreamLogs });
  // Created on the first call that needs it, because it starts polling.
  const bus = createLazyBus(() => {
    const address = `program-${ids.next()}`;
    const onForged = () => options.onEvent?.({ type: "forged" });
    return nats
      ? nats.connectBus(address, { readSecret: () => readSecret(database), text, onForged })
      : createStoreBus({ ...parts, address });
  });
  const ofFiles = { ...parts, settings: fileSettings, goesOn: nats !== undefined };
  const files = createFiles(ofFiles);
  let localSessions: LocalSessions | undefined;
  const startSessions = (): LocalSessions => {
    if (closed) throw new FlotillaError("closed", "the connection was closed");
    return (localSessions ??= connectSessions({
      ...parts,
      bus: bus.start(),
      log: options.log ?? silentLogger,
      maxPayloadBytes: maxPayloadBytes ?? defaultMaxBytes,
      logs: logsFor(store),
      files,
      ...(nats && { streams: { nats, text } }),
    }));
  };
  const sessionService = lazyService(() => startSessions().service);
  // Beats tell who owns logs on streams; the rows of the store don't.
  const heads = nats && (() => startSessions().journal.heads());
  const close = async (): Promise<void> => {
    await localSessions?.stop({ waitMs: 0 });
    await bus.close();
    await credentials.close();
    closeTasks();
    closeDeadLetters();
    await database.close();
    await nats?.close();
  };
  return {
    ...taskShortcuts(tasks),
    tasks,
    deadLetters,
    bulk: createBulks(parts),
    runs: createRuns(tasks, parts),
    schedules: createSchedules(parts),
    throttles: {
      ...createThrottlesClient(parts),
      ...createPermitHolders({ database, bus: bus.start }),
    },
    audit: createAudit(parts),
    changes: createChanges({ ...parts, database: coldReads(database) }),
    quotas: createTenantCounter(parts),
    series: createSeriesReader({ ...parts, database: pageReads(database) }),
    agents: createStoredAgents({ ...parts, allowPrivate: options.privateAgents === true }),
    keys: createKeys(parts),
    signIns: createSignIns(parts),
    tokens: createRevocations(parts),
    credentials,
    sessions: createSessions(sessionService),
    sessionService,
    files: {
      ...files,
      ...createFileAccess(ofFiles),
      ofTasks: createFiles({ ...ofFiles, of: "task" }),
      uploads: createFiles({ ...ofFiles, of: "upload" }),
      uploadsOf,
      claimUploads,
    },
    approvals: createApprovals({ database }),
    ...createPodActs({ ...parts, bus: bus.start }),
    sessionCounts: () => readSessionCounts(database),
    pages: createFleetPages({ ...parts, heads }),
    get storeKind() {
      return locateStore(store).kind;
    },
    get natsState() {
      if (!nats) return null;
      return nats.connection().state === "connected" ? "connected" : "away";
    },
    get hasStreamLogs() {
      return hasStreamLogs();
    },
    async ping() {
      await database.write([writeProbe()]);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

type ConnectedParts = Omit<LocalSessionsParts, "journal"> & {
  /** Where the logs may be, if not in the store. */
  streams?: Pick<StreamLogsParts, "nats" | "text">;
};

/**
 * Sessions in a process that is not a pod: the pods execute its commands. The code that runs turns is
 * not loaded, so that commands of the CLI start fast.
 */
export function connectSessions(parts: ConnectedParts): LocalSessions {
  const { streams } = parts;
  const shared = sessionParts(parts);
  if (!streams) return createLocalSessions(shared);
  const { journal, coldJournal: cold } = shared;
  const presence = createSqlPresence(parts);
  const openStored = () => createStoredLogs({ journal, cold, presence });
  const logs = createPlacedLogs({
    ...parts,
    first: openStored(),
    openStored,
    // Opened, and their code loaded, once logs are found there, and again if that fails.
    openStreams: async () => {
      const { openConnectedLogs } = await import("./logs/pod-logs.ts");
      return openConnectedLogs({ ...parts, ...streams });
    },
    // Pods tell it of no move, so it looks with every call.
    proofMs: 0,
  });
  const local = createLocalSessions({
    ...shared,
    journal: logs.journal,
    coldJournal: logs.cold,
    ahead: logs.journal,
    headSource: logs.headSource,
  });
  logs.start();
  return {
    ...local,
    async stop(options) {
      await local.stop(options);
      await logs.stop();
    },
  };
}

/** How old the place of logs may be for what asks for it without waiting. */
const placeMs = 2_000;

/** Whether logs are on streams, as far as is known. Reads it again in the background. */
function watchPlace({ use }: Nats["settings"], database: Database): () => boolean {
  let place: "sql" | "nats" = use === "all" ? "nats" : "sql";
  let lookedMs = -Infinity;
  return () => {
    const nowMs = systemClock.monotonic();
    if (nowMs - lookedMs >= placeMs) {
      lookedMs = nowMs;
      void logPlaceOf(database).then(
        (found) => (place = found.place),
        () => {},
      );
    }
    return place === "nats";
  };
}

/** The parts that sessions of pods and of other processes share. */
export function sessionParts<Parts extends ConnectedParts>(
  parts: Parts,
): Parts & LocalSessionsParts & Required<Pick<LocalSessionsParts, "coldJournal">> {
  return {
    ...parts,
    journal: createSqlJournal(parts),
    coldJournal: createSqlReads({ database: coldReads(parts.database) }),
    currentTrace: activeTrace,
  };
}
