import { type AuditConfig, auditOf } from "../audit/leader.ts";
import { checkNats, type NatsConfig } from "../bus/nats/config.ts";
import { type ChangesConfig, changesConfigOf } from "../changes/recording.ts";
import { dayMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkChoice, checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import { checkPrices, type Prices } from "../base/usage.ts";
import { createRedactor, type Redact } from "../redaction/redactor.ts";
import type { FilesConfig, FileSettings } from "../files/files.ts";
import { checkCodec, type PayloadCodec } from "../store/codec/codec.ts";
import type { Pod } from "./pod-parts.ts";
import { checkMiddleware } from "../tasks/run/middleware.ts";
import type { PressureLimits } from "../tasks/claim/capacity.ts";
import { retentionOf } from "../tasks/leader/prune.ts";
import { checkFiles } from "../files/config.ts";
import { agentsByName, type Usable, selectHandlers } from "./handlers.ts";
import { checkSchedules } from "../schedules/schedules.ts";
import type { ScheduleDeclaration } from "../schedules/schedule.ts";
import type { Durability } from "../store/database.ts";
import { checkDataDir } from "./data-folder.ts";
import { checkedStore, type Store } from "../store/open.ts";
import { checkServer, type ServerConfig } from "./server-config.ts";
import type { Middleware } from "../tasks/model.ts";
import type { Retention } from "../tasks/rows.ts";

/** The type of `flotilla.config.ts`, and of `startPod`'s argument. Everything has a default. */
export type Config = {
  /** Where the store is: a URL, or options for Postgres. Default `sqlite:flotilla.db`. */
  store?: Store;
  /** The handlers, flows and agents of this program. Default none. */
  use?: readonly Usable[];
  /** Made by `schedule(…)`. Stored when the pod starts, where the stored ones differ. */
  schedules?: readonly ScheduleDeclaration[];
  /** `full` (default): a power cut loses no acknowledged write. `relaxed`: it may lose the last moments. */
  durability?: Durability;
  /** `auto` (default) brings the schema up to date at start, `check` only checks it. */
  migrate?: "auto" | "check";
  /** How many tasks this pod can run at once. Default 100. */
  slots?: number;
  /** The share of the slots that is used. Default 0.8. */
  target?: number;
  /**
   * The pod claims less than its target above these limits: the delay of its event loop (default 200 ms),
   * and the share of its memory in use (default 0.9). `false`: without limits.
   */
  pressure?: false | Partial<PressureLimits>;
  /** How often the pod polls: the longest that a lost notification delays a claim. Default 1,000. */
  pollMs?: number;
  /** Default 1,000. */
  heartbeatMs?: number;
  /**
   * How long a pod may be silent before other pods get its tasks. Default 5,000. They get them sooner if
   * its process is known to be gone, or if Postgres has seen its connection end.
   */
  deadAfterMs?: number;
  /** After this many heartbeats with a blocked event loop the process is ended. Default 60. */
  stallBeats?: number;
  /** How long a handler has to settle after its signal has fired. Default 5,000. */
  graceMs?: number;
  /** How long a stop waits for running tasks before it aborts them. Default 20,000. */
  shutdownMs?: number;
  /** The names of the tasks of `use` that this pod claims. Default: all of them. */
  only?: readonly string[];
  /** Wraps every handler, the first outermost. Default none. */
  middleware?: readonly Middleware[];
  /** How long finished tasks are kept, one value for all or by status. Default 7 days. */
  retentionMs?: number | Partial<Retention>;
  /** How long the audit is kept, and how large it gets. */
  audit?: AuditConfig;
  /**
   * Has the store record changes of tasks, runs, turns and sessions, for `flotilla.changes` to follow.
   * `false`: it stops. Default: as the store does already, which at first is not at all.
   */
  changes?: false | ChangesConfig;
  /** Default 256 KiB. */
  maxPayloadBytes?: number;
  /** Default 256 KiB. */
  maxResultBytes?: number;
  /**
   * The folder for this machine's own files: results that can't be stored yet, local progress. Default
   * `.flotilla` in the working directory, created on first use. `false`: none.
   */
  dataDir?: string | false;
  /** The size of the outbox, which keeps results while the store is unavailable. Default 64 MiB. */
  outboxMaxBytes?: number;
  /**
   * When a promise that a handler doesn't await rejects: `log` (default) logs it with its task, `exit`
   * lets Node end the process.
   */
  onUnhandledRejection?: "log" | "exit";
  /**
   * Encodes what users put in before it is stored, as `encryption({ keys })` does. Default: it is stored as
   * it is.
   */
  codec?: PayloadCodec;
  /** A pino logger, or anything like it. Default: pino on standard error. */
  log?: Logger;
  /** Called once the pod claims, for example to enqueue a first task or to warm a cache. */
  onStart?: (pod: Pod) => void | Promise<void>;
  server?: ServerConfig;
  /**
   * What models cost for a million tokens, by the name that the provider's SDK gives them, in a currency of
   * your choice: costs are in the same. Default none, and then no cost is known.
   */
  prices?: Prices;
  /**
   * What servers and log lines don't show of what users put in, besides what looks like a secret: paths such
   * as `input.card`, `**.ssn` and, for what is shown whatever its name, `!result.token`; and regular
   * expressions, for texts and for names. `false`: everything is shown, what looks like a secret too.
   */
  redact?: Redact;
  /**
   * Servers of NATS that carry envelopes and notifications between pods, in place of Postgres. All pods and
   * programs of a store need the same. Default none.
   */
  nats?: NatsConfig;
  /** Files of conversations and of tasks: how large and how many, and where they are kept. */
  files?: FilesConfig;
  /** How this pod serves sessions. `false`: it doesn't, other pods do. */
  sessions?: false | SessionsConfig;
};

export type SessionsConfig = {
  /**
   * How many logs conversations are spread over: a power of two up to 256. Default 8, and 1 in a SQLite
   * file. Used when the store has no logs yet; it can't be changed afterwards.
   */
  logs?: number;
  /**
   * Allows agents that were created over HTTP or by the CLI to be on this machine or in a private network.
   * Default false. Agents in code have an option of their own.
   */
  privateAgents?: boolean;
  /**
   * How many turns and compactions this pod runs at once. The others wait, round-robin by tenant. Default
   * 1,000. To limit the calls to a provider, use a throttle.
   */
  maxTurns?: number;
};

// Where it isn't writable, as in a container without a disk, the pod logs a warning and works without it.
export const defaultDataDir = ".flotilla";

/** A config with all defaults filled in. */
export type PodSettings = Required<
  Omit<Config, Optional | "audit" | "changes" | "retentionMs" | "pressure" | "sessions" | "files">
> &
  Pick<Config, Optional> & {
    audit: Required<AuditConfig>;
    changes?: false | Required<ChangesConfig>;
    retentionMs: Retention;
    pressure: false | PressureLimits;
    files: FileSettings;
    sessions: false | Required<SessionsConfig>;
  };

type Optional = "codec" | "only" | "log" | "nats" | "onStart" | "prices" | "redact" | "server";

/**
 * The default number of logs. A SQLite file has one writer, and one log costs it least. On Postgres up to
 * so many pods share the work, and records of a pod's logs share transactions.
 */
export function logsFor(store: Store): number {
  return typeof store === "string" && store.startsWith("sqlite:") ? 1 : 8;
}

/** The range of the limits on payloads and results. */
export const bytesRange: NumberRange = { min: 1, max: 64 * 1024 * 1024 };

const numbers: Readonly<Record<string, NumberRange & { byDefault: number }>> = {
  slots: { byDefault: 100, min: 1, max: 100_000 },
  target: { byDefault: 0.8, min: 0.01, max: 1, whole: false },
  pollMs: { byDefault: 1_000, min: 10, max: 60_000 },
  heartbeatMs: { byDefault: 1_000, min: 20, max: 60_000 },
  deadAfterMs: { byDefault: 5_000, min: 100, max: 3_600_000 },
  stallBeats: { byDefault: 60, min: 2, max: 100_000 },
  graceMs: { byDefault: 5_000, min: 0, max: 3_600_000 },
  shutdownMs: { byDefault: 20_000, min: 0, max: dayMs },
  maxPayloadBytes: { byDefault: defaultMaxBytes, ...bytesRange },
  maxResultBytes: { byDefault: defaultMaxBytes, ...bytesRange },
  outboxMaxBytes: { byDefault: 64 * 1024 * 1024, min: 0, max: 64 * 1024 ** 3 },
};

// A turn keeps its answer and the history in memory.
const defaultMaxTurns = 1_000;

const others = [
  "store",
  "use",
  "schedules",
  "durability",
  "migrate",
  "retentionMs",
  "audit",
  "changes",
  "pressure",
  "middleware",
  "only",
  "log",
  "nats",
  "onStart",
  "prices",
  "codec",
  "redact",
  "server",
  "sessions",
  "files",
  "dataDir",
  "onUnhandledRejection",
];

/** Checks a config where it is defined, so that mistakes show at once. */
export function defineConfig(config: Config): Config {
  resolveConfig(config);
  return config;
}

/** Checks the options, and fills in the defaults. */
export function resolveConfig(config: Config): PodSettings {
  checkOptions("config", config, [...others, ...Object.keys(numbers)]);
  const values = config as Record<string, unknown>;
  const settings = Object.fromEntries(
    Object.entries(numbers).map(([name, { byDefault, ...range }]) => [
      name,
      checkNumber(name, values[name] ?? byDefault, range),
    ]),
  );
  const { store = "sqlite:flotilla.db", durability = "full", migrate = "auto", use = [] } = config;
  const { middleware = [] } = config;
  checkMiddleware(middleware);
  checkedStore(store);
  checkChoice("durability", durability, ["full", "relaxed"]);
  checkChoice("migrate", migrate, ["auto", "check"]);
  const { onUnhandledRejection = "log" } = config;
  checkChoice("onUnhandledRejection", onUnhandledRejection, ["log", "exit"]);
  const { heartbeatMs, deadAfterMs } = settings as { heartbeatMs: number; deadAfterMs: number };
  if (deadAfterMs < heartbeatMs * 2) {
    throw new FlotillaError(
      "invalid_option",
      `deadAfterMs (${deadAfterMs}) must be at least twice heartbeatMs (${heartbeatMs}), or healthy pods count as dead`,
    );
  }
  // The default folder may be unwritable: a machine without a disk works without it.
  if (config.dataDir !== undefined && config.dataDir !== defaultDataDir)
    checkDataDir(config.dataDir);
  checkServer(config.server);
  // The store may be named elsewhere, and is known when the pod starts.
  if (config.nats !== undefined) checkNats(config.nats);
  if (config.prices !== undefined) checkPrices(config.prices);
  if (config.codec !== undefined) checkCodec(config.codec);
  createRedactor(config.redact);
  selectHandlers(use, config.only);
  for (const { name, budget } of agentsByName(use).values()) {
    if (budget?.cost === undefined || config.prices !== undefined) continue;
    throw new FlotillaError(
      "invalid_option",
      `agent "${name}": budget.cost needs what models cost: set \`prices\``,
    );
  }
  const { schedules = [] } = config;
  checkSchedules(schedules);
  const changes = changesConfigOf(config.changes);
  return {
    ...(settings as unknown as PodSettings),
    store,
    durability,
    migrate,
    onUnhandledRejection,
    use,
    schedules,
    pressure: pressureOf(config.pressure),
    files: checkFiles("files", config.files),
    sessions: sessionsOf(config.sessions, store),
    middleware,
    retentionMs: retentionOf(config.retentionMs),
    audit: auditOf(config.audit),
    ...(changes !== undefined && { changes }),
    dataDir: config.dataDir ?? defaultDataDir,
    ...(config.codec && { codec: config.codec }),
    ...(config.only && { only: config.only }),
    ...(config.log && { log: config.log }),
    ...(config.nats && { nats: config.nats }),
    ...(config.onStart && { onStart: config.onStart }),
    ...(config.prices && { prices: config.prices }),
    ...(config.redact !== undefined && { redact: config.redact }),
    ...(config.server && { server: config.server }),
  };
}

function sessionsOf(options: Config["sessions"] = {}, store: Store): PodSettings["sessions"] {
  if (options === false) return false;
  checkOptions("sessions", options, ["logs", "privateAgents", "maxTurns"]);
  const { logs = logsFor(store), privateAgents = false, maxTurns = defaultMaxTurns } = options;
  checkNumber("sessions.maxTurns", maxTurns, { min: 1, max: 100_000 });
  checkNumber("sessions.logs", logs, { min: 1, max: 256 });
  if (Number.isInteger(Math.log2(logs))) return { logs, privateAgents, maxTurns };
  throw new FlotillaError("invalid_option", `sessions.logs must be a power of two, not ${logs}`);
}

function pressureOf(options: Config["pressure"] = {}): false | PressureLimits {
  if (options === false) return false;
  checkOptions("pressure", options, ["eventLoopMs", "memory"]);
  const { eventLoopMs = 200, memory = 0.9 } = options;
  return {
    eventLoopMs: checkNumber("pressure.eventLoopMs", eventLoopMs, { min: 1, max: 60_000 }),
    memory: checkNumber("pressure.memory", memory, { min: 0.1, max: 0.99, whole: false }),
  };
}
