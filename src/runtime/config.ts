import { dayMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkChoice, checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import type { Tasks } from "../tasks/tasks.ts";
import { checkMiddleware, type Middleware } from "../tasks/run/middleware.ts";
import type { PressureLimits } from "../tasks/claim/capacity.ts";
import { type Retention, retentionOf } from "../tasks/leader/prune.ts";
import { agentsByName, type Usable, selectHandlers } from "./handlers.ts";
import { checkSchedules } from "../schedules/schedules.ts";
import type { ScheduleDeclaration } from "../schedules/schedule.ts";
import type { Durability } from "../store/database.ts";
import { checkDataDir } from "./data-folder.ts";
import { checkedStore, type Store } from "../store/open.ts";
import { checkServer, type ServerConfig } from "./server-config.ts";

/** What `flotilla.config.ts` says, and what `startPod` takes. Everything has a default but `use`. */
export type Config = {
  /** Where the store is: a URL, or options for Postgres. Default `sqlite:flotilla.db`. */
  store?: Store;
  /** The handlers that this program brings. */
  use?: readonly Usable[];
  /** Stored when the pod starts, where the store says otherwise. Made by `schedule(…)`. */
  schedules?: readonly ScheduleDeclaration[];
  /** `full` (default): a power cut loses nothing acked. `relaxed`: it may lose the last moments. */
  durability?: Durability;
  /** `auto` (default) brings the schema up to date at start, `check` only checks it. */
  migrate?: "auto" | "check";
  /** How many tasks this pod could run at once. Default 100. */
  slots?: number;
  /** The share of the slots that is used. Default 0.8. */
  target?: number;
  /**
   * Above which a pod takes on less than its target: how late its event loop is (default 200 ms), and
   * the share of its memory in use (default 0.9). `false`: its target is always the same.
   */
  pressure?: false | Partial<PressureLimits>;
  /** The longest a lost hint may delay a claim. Default 1,000. */
  pollMs?: number;
  /** Default 1,000. */
  heartbeatMs?: number;
  /** How long a pod may be silent before its tasks are given to others. Default 5,000. */
  deadAfterMs?: number;
  /** After this many heartbeats with a blocked event loop the process is ended. Default 60. */
  stallBeats?: number;
  /** How long a handler has to settle after its signal has fired. Default 5,000. */
  graceMs?: number;
  /** How long a stop waits for running tasks before it tells them to stop. Default 20,000. */
  shutdownMs?: number;
  /** The tasks of `use` that this pod works on, by name. Default: all of them. */
  only?: readonly string[];
  /** Runs around every handler, the first outermost. Default none. */
  middleware?: readonly Middleware[];
  /** How long finished tasks are kept, all alike or by how they ended. Default 7 days. */
  retentionMs?: number | Partial<Retention>;
  /** Default 256 KiB. */
  maxPayloadBytes?: number;
  /** Default 256 KiB. */
  maxResultBytes?: number;
  /**
   * The folder for what this machine keeps for itself: results that can't be stored yet, progress.
   * Default `.flotilla` where the program was started; made only when something is kept. `false`: none.
   */
  dataDir?: string | false;
  /** How much of results the outbox keeps while the store is away. Default 64 MiB. */
  outboxMaxBytes?: number;
  /**
   * What becomes of a promise that a handler leaves behind and that rejects: `log` (default) logs it
   * with its task, `exit` lets Node end the process.
   */
  onUnhandledRejection?: "log" | "exit";
  /** A pino logger, or anything like it. Default: pino on standard error. */
  log?: Logger;
  /** Called once the pod claims: the place to enqueue what keeps itself going, or to warm a cache. */
  onStart?: (tasks: Tasks) => void | Promise<void>;
  server?: ServerConfig;
  /** What this pod does for sessions. `false`: nothing, others do. */
  sessions?: false | SessionsConfig;
};

export type SessionsConfig = {
  /**
   * How many logs conversations are spread over, where none were made yet: a power of two up to 256.
   * Default 4, and 1 in a SQLite file. It is never changed afterwards.
   */
  logs?: number;
  /**
   * Lets agents that were made over HTTP or by the command line be on this machine or in a private
   * network. Default false. Those in code say it themselves.
   */
  privateAgents?: boolean;
  /**
   * How many turns and compactions this pod has under way at once. Others wait, tenants in turns. Default
   * 1,000. How many calls a provider takes at once is for its throttle to say.
   */
  maxTurns?: number;
};

// Where it can't be written, as in a container without a disk, the pod says so and works without.
export const defaultDataDir = ".flotilla";

/** A config with every default in place. */
export type PodSettings = Required<
  Omit<Config, Optional | "retentionMs" | "pressure" | "sessions">
> &
  Pick<Config, Optional> & {
    retentionMs: Retention;
    pressure: false | PressureLimits;
    sessions: false | Required<SessionsConfig>;
  };

type Optional = "only" | "log" | "onStart" | "server";

/**
 * How many logs are made where nobody says otherwise. A SQLite file has one writer, which one log with
 * larger records serves best; on Postgres several pods share the work.
 */
export function logsFor(store: Store): number {
  return typeof store === "string" && store.startsWith("sqlite:") ? 1 : 4;
}

/** What a limit on payloads or results may be. */
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

const others = [
  "store",
  "use",
  "schedules",
  "durability",
  "migrate",
  "retentionMs",
  "pressure",
  "middleware",
  "only",
  "log",
  "onStart",
  "server",
  "sessions",
  "dataDir",
  "onUnhandledRejection",
];

/** Checks a config where it is written, so that mistakes show at once, with types that help. */
export function defineConfig(config: Config): Config {
  resolveConfig(config);
  return config;
}

/** Fills in the defaults, and refuses what makes no sense. */
export function resolveConfig(config: Config): PodSettings {
  checkOptions("config", config, [...others, ...Object.keys(numbers)]);
  const given = config as Record<string, unknown>;
  const settings = Object.fromEntries(
    Object.entries(numbers).map(([name, { byDefault, ...range }]) => [
      name,
      checkNumber(name, given[name] ?? byDefault, range),
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
      `deadAfterMs (${deadAfterMs}) must be at least twice heartbeatMs (${heartbeatMs}), or healthy pods look dead`,
    );
  }
  // Where nobody has chosen one, a machine without a disk to write on works without.
  if (config.dataDir !== undefined && config.dataDir !== defaultDataDir)
    checkDataDir(config.dataDir);
  checkServer(config.server);
  selectHandlers(use, config.only);
  agentsByName(use);
  const { schedules = [] } = config;
  checkSchedules(schedules);
  return {
    ...(settings as unknown as PodSettings),
    store,
    durability,
    migrate,
    onUnhandledRejection,
    use,
    schedules,
    pressure: pressureOf(config.pressure),
    sessions: sessionsOf(config.sessions, store),
    middleware,
    retentionMs: retentionOf(config.retentionMs),
    dataDir: config.dataDir ?? defaultDataDir,
    ...(config.only && { only: config.only }),
    ...(config.log && { log: config.log }),
    ...(config.onStart && { onStart: config.onStart }),
    ...(config.server && { server: config.server }),
  };
}

// Each holds an answer and the history that it was told, so this bounds memory.
const defaultMaxTurns = 1_000;

function sessionsOf(
  given: Config["sessions"] = {},
  store: Store,
): false | Required<SessionsConfig> {
  if (given === false) return false;
  checkOptions("sessions", given, ["logs", "privateAgents", "maxTurns"]);
  const { logs = logsFor(store), privateAgents = false, maxTurns = defaultMaxTurns } = given;
  checkNumber("sessions.maxTurns", maxTurns, { min: 1, max: 100_000 });
  checkNumber("sessions.logs", logs, { min: 1, max: 256 });
  if (Number.isInteger(Math.log2(logs))) return { logs, privateAgents, maxTurns };
  throw new FlotillaError("invalid_option", `sessions.logs must be a power of two, not ${logs}`);
}

function pressureOf(given: Config["pressure"] = {}): false | PressureLimits {
  if (given === false) return false;
  checkOptions("pressure", given, ["eventLoopMs", "memory"]);
  const { eventLoopMs = 200, memory = 0.9 } = given;
  return {
    eventLoopMs: checkNumber("pressure.eventLoopMs", eventLoopMs, { min: 1, max: 60_000 }),
    memory: checkNumber("pressure.memory", memory, { min: 0.1, max: 0.99, whole: false }),
  };
}
