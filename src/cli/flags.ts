import { type Command, InvalidArgumentError, Option } from "commander";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { scalarOf } from "../base/json.ts";
import { checkNumber, nearest, type NumberRange } from "../base/options.ts";
import { groupVersion } from "../dead-letters/fingerprint.ts";
import type { Selection } from "../dead-letters/redrive.ts";
import type { JsonValues } from "../store/json-values.ts";
import type { TaskFilter } from "../tasks/inspect/filter.ts";
import { type PendingState, pendingStates, type TaskStatus } from "../tasks/rows.ts";
import { oneLine } from "./output.ts";

/** Flags that several commands share, each with an environment variable. */
export type StoreFlags = { config?: string; store?: string };
/** Of commands that a store and a server can answer. */
export type TargetFlags = {
  readonly [Flag in keyof StoreFlags | "url"]?: string | undefined;
};
export type PodFlags = StoreFlags & {
  slots?: number;
  only?: string[];
  dataDir?: string;
  logLevel?: LogLevel;
};
export type ServerFlags = PodFlags & { host?: string; port?: number; adminPort?: number };

export const logLevels = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

const portRange = { min: 0, max: 65_535 };

export function withStore(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--config <file>",
        "the config file (default: flotilla.config.ts, .mts, .mjs or .js, where there is one)",
      ).env("FLOTILLA_CONFIG"),
    )
    .addOption(
      new Option(
        "--store <url>",
        "the store, such as sqlite:flotilla.db or postgres://user@host/app (default: that of the config, then DATABASE_URL)",
      ).env("FLOTILLA_STORE"),
    );
}

/** For commands that a server can't answer, among others that it can. */
export function withStoreOnly(command: Command): Command {
  const { outputError } = command.configureOutput();
  return withStore(command).configureOutput({
    outputError: (text, write) =>
      outputError?.(text.replace("unknown option '--url'", "$&: this needs --store"), write),
  });
}

/** For commands that a store and a server can answer. */
export function withTarget(command: Command): Command {
  const option = new Option(
    "--url <url>",
    "use this server instead of the store, with FLOTILLA_API_KEY where it needs a key or a token",
  );
  return withStore(command)
    .addOption(option.env("FLOTILLA_URL"))
    .hook("preAction", (_, action) => {
      const from = (name: string) => action.getOptionValueSource(name);
      const typed = ["store", "config"].find((name) => from(name) === "cli");
      if (typed !== undefined && from("url") === "cli") {
        throw new FlotillaError("invalid_option", `give --url or --${typed}, not both`);
      }
      // A store or a config on the command line overrides FLOTILLA_URL.
      const isUnset = typed !== undefined || action.getOptionValue("url") === "";
      if (isUnset && from("url") === "env") action.setOptionValue("url", undefined);
    });
}

export function withPod(command: Command): Command {
  return withStore(command)
    .addOption(
      new Option("--slots <number>", "how many tasks this pod could run at once")
        .env("FLOTILLA_SLOTS")
        .argParser(number("--slots", { min: 1, max: 100_000 })),
    )
    .addOption(
      new Option(
        "--data-dir <folder>",
        "the folder for results that can't be stored yet (default: .flotilla)",
      ).env("FLOTILLA_DATA_DIR"),
    )
    .addOption(
      new Option("--only <names>", "the tasks to work on, separated by commas (default: all)")
        .env("FLOTILLA_ONLY")
        .argParser((text) => text.split(",").flatMap((name) => name.trim() || [])),
    )
    .addOption(
      new Option("--log-level <level>", "the lowest level that is logged")
        .env("FLOTILLA_LOG_LEVEL")
        .choices(logLevels),
    );
}

export function withServer(command: Command): Command {
  return withPod(command)
    .addOption(
      new Option(
        "--host <address>",
        "the address to listen on (default: 127.0.0.1); others need FLOTILLA_API_KEYS or FLOTILLA_KEYS=store",
      ).env("FLOTILLA_HOST"),
    )
    .addOption(
      new Option("--port <number>", "the port (default: 8080); 0 takes a free one")
        .env("FLOTILLA_PORT")
        .argParser(number("--port", portRange)),
    )
    .addOption(
      new Option(
        "--admin-port <number>",
        "an additional port for health and metrics only; 0 takes a free one",
      )
        .env("FLOTILLA_ADMIN_PORT")
        .argParser(number("--admin-port", portRange)),
    );
}

export function withJson(command: Command): Command {
  return command.option("--json", "print JSON");
}

/** Makes `list` the default subcommand: `flotilla tasks` is `flotilla tasks list`. */
export function listsByDefault(things: Command, list: Command): void {
  // An unknown subcommand would otherwise be reported as an excess argument of the list.
  list.allowExcessArguments(true).hook("preAction", (_, { args: [word] }) => {
    if (word === undefined) return;
    const meant = nearest(
      word,
      things.commands.map((each) => each.name()),
    );
    const hint = meant === undefined ? "" : `\n(Did you mean ${meant}?)`;
    things.error(`error: unknown command '${word}'${hint}`, { code: "commander.unknownCommand" });
  });
}

/** For commands that list page by page. */
export function withPage(command: Command, defaultLimit: number): Command {
  return command
    .option("--cursor <cursor>", "continue after an earlier page")
    .addOption(
      new Option("--limit <number>", "how many at most")
        .default(defaultLimit)
        .argParser(number("--limit", { min: 1, max: 1_000 })),
    );
}

/** Parses a flag's time. */
export function timeOf(text: string): number {
  const atMs = Date.parse(text);
  if (!Number.isNaN(atMs)) return Math.max(0, atMs);
  throw new FlotillaError(
    "invalid_option",
    `${JSON.stringify(text.slice(0, 40))} is no time: give one such as 2026-11-17 or 2026-11-17T09:30Z`,
  );
}

/** Flags of commands that list tasks or runs. */
export type ListingFlags = {
  key?: string;
  pod?: string;
  session?: string;
  run?: string;
  since?: number;
  until?: number;
};

export function withListing(command: Command, what: "tasks" | "runs"): Command {
  return command
    .option("--key <key>", `only ${what} with this unique key; found at once with a name`)
    .option("--pod <id>", `only ${what} that run on this pod`)
    .option("--session <id>", `only ${what} that this session has started`)
    .option("--run <id>", `only ${what} that this run or task has started`)
    .option(
      "--since <time>",
      `only ${what} created from this time on, such as 2026-11-17T09:30Z`,
      timeOf,
    )
    .option("--until <time>", `only ${what} created up to this time`, timeOf);
}

/** The span of a listing, by the names of its filter. */
export function spanIn({ since, until }: ListingFlags): { sinceMs?: number; untilMs?: number } {
  return {
    ...(since !== undefined && { sinceMs: since }),
    ...(until !== undefined && { untilMs: until }),
  };
}

/** Flags that say which tasks are meant: those that lists show and bulks act on. */
export type TaskFilterFlags = ListingFlags & {
  name?: string;
  status?: TaskStatus;
  state?: PendingState;
  tenant?: string;
  scope?: string;
  group?: string;
  at?: string;
  flowVersion?: number;
  setAside?: true;
  ids?: string[];
  from?: string;
  to?: string;
  payload?: string[];
};

export function withTaskFilter(command: Command, statuses: readonly TaskStatus[]): Command {
  const filtered = command
    .option("--name <name>", "only of this task or flow")
    .addOption(new Option("--status <status>", "only in this status").choices(statuses))
    .addOption(
      new Option("--state <state>", "only pending ones that stand so").choices(pendingStates),
    )
    .option("--tenant <tenant>", "only of this tenant")
    .option("--scope <scope>", "only of this concurrency limit, such as key/mail/acme")
    .option("--group <id>", "only failed ones of this group of errors")
    .option("--at <transition>", "only runs at this transition or finalizer")
    .option(
      "--flow-version <version>",
      "only runs that this version of their flow has advanced last; 0 for those that none has",
      number("--flow-version", { min: 0, max: 1_000_000_000 }),
    )
    .option("--set-aside", "only those that were set aside")
    .option("--ids <id...>", "only these, by their ids")
    .option("--from <id>", "only ids from this one on: ids sort by age")
    .option("--to <id>", "only ids up to this one")
    .option(
      "--payload <path=value...>",
      "only with this value in their payload, such as order.id=7; needs --name and --since",
    );
  return withListing(filtered, "tasks");
}

/** The filter that flags make. */
export function taskFilterOf(flags: TaskFilterFlags): TaskFilter {
  const { name, status, state, tenant, scope, group, at, setAside, ids, from, to, payload } = flags;
  const { key, pod, session, run, flowVersion: version } = flags;
  const named = {
    name,
    status,
    state,
    tenant,
    key,
    scope,
    pod,
    group,
    session,
    run,
    at,
    version,
    setAside,
    ids,
    from,
    to,
  };
  const given = Object.entries(named).filter(([, value]) => value !== undefined);
  return {
    ...(Object.fromEntries(given) as TaskFilter),
    ...spanIn(flags),
    ...(payload && { payload: valuesOf("--payload", payload) }),
  };
}

/** The values by their paths that a flag was given, such as `order.id=7`. */
export function valuesOf(flag: string, given: readonly string[]): JsonValues {
  const pairs = given.map((text) => {
    const at = text.indexOf("=");
    if (at > 0) return [text.slice(0, at), scalarOf(text.slice(at + 1))] as const;
    throw new FlotillaError(
      "invalid_option",
      `${flag} takes <path>=<value>, such as order.id=7, not ${JSON.stringify(text.slice(0, 80))}`,
    );
  });
  return Object.fromEntries(pairs);
}

/** The line after a page that isn't the last. A server of an earlier release doesn't say how far it got. */
export function moreText(next: string, lookedBackTo: number | null | undefined): string {
  const isTime = typeof lookedBackTo === "number" && Math.abs(lookedBackTo) <= 8.64e15;
  const looked = isTime ? `looked back to ${new Date(lookedBackTo).toISOString()}; ` : "";
  return oneLine(`${looked}more: --cursor ${next}`, 700);
}

/** Parses a flag's number, or throws with the range it must be in. */
export function number(what: string, range: NumberRange): (text: string) => number {
  return (text) => {
    try {
      const value = text.trim() === "" ? Number.NaN : Number(text);
      return checkNumber(what, Number.isNaN(value) ? text : value, range);
    } catch (error) {
      throw new InvalidArgumentError(messageOf(error));
    }
  };
}

/** Flags of commands that select failed tasks. */
export type SelectFlags = TargetFlags & { json?: true; name?: string; all?: true };

export function withSelection(command: Command): Command {
  return command
    .option("--name <name>", "all failed tasks of this name")
    .option("--all", "all failed tasks");
}

/** The selection of a command: a group's id differs from a task's by its form. */
export function selectionOf(id: string | undefined, { name, all }: SelectFlags): Selection {
  const named = [id, name, all].filter((each) => each !== undefined);
  if (named.length !== 1) {
    throw new FlotillaError(
      "invalid_option",
      "name exactly one of a group, a task, --name <name> and --all",
    );
  }
  if (id === undefined) return name === undefined ? { all: true } : { name };
  return isGroup(id) ? { group: id } : { taskId: id };
}

/** Whether it is a group's id rather than a task's. Throws where a group's id is incomplete. */
export function isGroup(id: string): boolean {
  if (groupVersion(id) !== undefined) return true;
  if (!/^g\d+-/i.test(id)) return false;
  throw new FlotillaError(
    "invalid_option",
    `${JSON.stringify(id.slice(0, 40))} is not a complete group id such as g2-79ef601d010c6cb2: \`flotilla dlq list\` shows them`,
  );
}
