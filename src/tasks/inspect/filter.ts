import { FlotillaError } from "../../base/errors.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../../base/options.ts";
import { checkJsonValues } from "../../store/json-values.ts";
import type { JsonScalar } from "../../store/sql.ts";
import { type PendingState, pendingStates, type TaskStatus, taskStatuses } from "../rows.ts";

/** When tasks and runs were created, by the clock of their producers: their ids begin with it. */
export type ListSpan = {
  /** Only those from this time on, in milliseconds since 1970. */
  sinceMs?: number;
  /** Only those up to this time. */
  untilMs?: number;
};

/** A value of a payload. */
export type PayloadValue = JsonScalar;

/** Which tasks a list shows or a bulk acts on: those that match all that is given. */
export type TaskFilter = ListSpan & {
  /** Of a task, or of a flow for its runs. */
  name?: string;
  status?: TaskStatus;
  /** Only pending ones that stand so, as `depth` counts them. */
  state?: PendingState;
  tenant?: string;
  /** The unique key. Found at once with a name. */
  key?: string;
  /** The scope of a concurrency limit by key, as in `limits`. */
  scope?: string;
  /** Only tasks that run on this pod. */
  pod?: string;
  /** Only failed tasks of this group of errors. */
  group?: string;
  /** Only tasks that turns of this session have started. */
  session?: string;
  /** Only tasks that this run or task has started. */
  run?: string;
  /** Only runs at this transition or finalizer. */
  at?: string;
  /** Only runs that this version of their flow has advanced last; 0 for those that none has. */
  version?: number;
  /** Only those that were set aside. */
  setAside?: true;
  /** Only these, by their ids: 1 to 1,000. */
  ids?: readonly string[];
  /** Only ids from this one on, and up to this one. Ids sort by age. */
  from?: string;
  to?: string;
  /**
   * Values of the payload, by paths such as `order.id`. Needs a name and `sinceMs`, and a store without
   * a codec.
   */
  payload?: Readonly<Record<string, PayloadValue>>;
};

export const taskFilterNames = [
  "name",
  "status",
  "state",
  "tenant",
  "key",
  "scope",
  "pod",
  "group",
  "session",
  "run",
  "at",
  "version",
  "setAside",
  "ids",
  "from",
  "to",
  "sinceMs",
  "untilMs",
  "payload",
] as const satisfies readonly (keyof TaskFilter)[];

export type FilterChecks = {
  /** The object that the filter is, if it isn't the options of a list: for messages. */
  readonly within?: string;
  /** Whether the store has a codec. */
  readonly encodesContent?: boolean | undefined;
};

/** A filter is stored with its bulk and read with each batch, so that it must stay small. */
export const maxFilterIds = 1_000;
const maxIdChars = 500;
const maxNameChars = 200;
const versionRange = { min: 0, max: 1_000_000_000 };
// What the time of an id can hold.
const timeRange = { min: 0, max: 2 ** 48 - 2 };

/**
 * Throws if a filter names what can't be, or what can't be combined. Returns it without what isn't given,
 * in the order of its names, so that the same filter is the same text.
 */
export function checkTaskFilter(
  given: TaskFilter,
  { within, encodesContent }: FilterChecks,
): TaskFilter {
  checkOptions(within ?? "list", given, taskFilterNames);
  const named = taskFilterNames.flatMap((name) =>
    given[name] === undefined ? [] : [[name, given[name]] as const],
  );
  const read = Object.fromEntries(named) as TaskFilter;
  const prefix = within === undefined ? "" : `${within}.`;
  const filter =
    read.ids === undefined ? read : { ...read, ids: checkIds(`${prefix}ids`, read.ids) };
  const { status, state, pod, name, sinceMs, group, setAside, payload, version } = filter;
  checkTexts(filter, prefix);
  checkSpan(filter, prefix);
  if (status !== undefined) checkChoice(`${prefix}status`, status, taskStatuses);
  if (state !== undefined) checkChoice(`${prefix}state`, state, pendingStates);
  if (version !== undefined) checkNumber(`${prefix}version`, version, versionRange);
  if (setAside !== undefined && setAside !== true)
    throw invalid(`${prefix}setAside must be true, or left out`);
  if (setAside && ((status !== undefined && status !== "pending") || pod !== undefined)) {
    throw invalid(
      "setAside can't be combined with a pod, or with another status than `pending`: what was set aside waits",
    );
  }
  const isOther = (status !== undefined && status !== "pending") || pod !== undefined;
  if (state !== undefined && (isOther || group !== undefined || setAside)) {
    throw invalid(
      "state can't be combined with a pod, a group, setAside, or another status than `pending`: it is how a pending task stands",
    );
  }
  if (pod !== undefined && status !== undefined && status !== "claimed") {
    throw invalid(
      "pod can't be combined with another status than `claimed`: a pod has only tasks that run",
    );
  }
  if (
    group !== undefined &&
    ((status !== undefined && status !== "failed") || pod !== undefined || setAside)
  ) {
    throw invalid(
      "group can't be combined with a pod, with setAside, or with another status than `failed`: it has failed tasks only",
    );
  }
  if (payload === undefined) return filter;
  if (name === undefined || sinceMs === undefined) {
    throw invalid(
      "payload needs `name` and `sinceMs`: no index has values of payloads, so each task must be read",
    );
  }
  if (encodesContent) {
    throw new FlotillaError(
      "unsupported",
      "tasks can't be found by values of their payloads in a store with a codec, which can't read them",
    );
  }
  return { ...filter, payload: checkJsonValues("payload", payload) };
}

/** Checks what filters of tasks and of runs have in common. */
export function checkTexts(filter: Readonly<Record<string, unknown>>, prefix = ""): void {
  const check = (name: string, max: number) => {
    if (filter[name] !== undefined) checkText(`${prefix}${name}`, filter[name], { max });
  };
  for (const name of ["name", "flow", "group", "at"]) check(name, maxNameChars);
  for (const name of ["tenant", "key", "pod", "session", "run", "parent", "from", "to"])
    check(name, maxIdChars);
  // A scope has a name and a key in it.
  check("scope", maxNameChars + maxIdChars + 10);
  const sources = ["group", "session", "run", "ids"].filter((name) => filter[name] !== undefined);
  if (sources.length > 1)
    throw invalid(`${sources.join(" and ")} can't be combined: give one of them`);
}

/** The ids in their order, each once, so that the same ones are the same text. */
function checkIds(what: string, ids: unknown): readonly string[] {
  if (!Array.isArray(ids) || ids.length === 0 || ids.length > maxFilterIds)
    throw invalid(
      `${what} must be 1 to ${maxFilterIds} ids: act on more by a filter that they match`,
    );
  for (const id of ids) checkText(`each of ${what}`, id, { max: maxIdChars });
  return [...new Set(ids as string[])].toSorted();
}

/** Checks the times of a span. */
export function checkSpan(
  { sinceMs, untilMs }: { readonly [Time in keyof ListSpan]: number | undefined },
  prefix = "",
): void {
  if (sinceMs !== undefined) checkNumber(`${prefix}sinceMs`, sinceMs, timeRange);
  if (untilMs !== undefined) checkNumber(`${prefix}untilMs`, untilMs, timeRange);
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
