import { FlotillaError } from "../../base/errors.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../../base/options.ts";
import type { JsonScalar } from "../../store/sql.ts";
import { type TaskStatus, taskStatuses } from "../rows.ts";

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
  /** Only those that were set aside. */
  setAside?: true;
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
  "tenant",
  "key",
  "scope",
  "pod",
  "group",
  "session",
  "run",
  "at",
  "setAside",
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

const maxIdChars = 500;
const maxNameChars = 200;
const maxPaths = 5;
const maxPathNames = 5;
const maxValueChars = 1_000;
const nameInPath = /^[A-Za-z_][A-Za-z0-9_-]{0,99}$/;
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
  const filter = Object.fromEntries(named) as TaskFilter;
  const { status, pod, name, sinceMs, group, setAside, payload } = filter;
  const prefix = within === undefined ? "" : `${within}.`;
  checkTexts(filter, prefix);
  checkSpan(filter, prefix);
  if (status !== undefined) checkChoice(`${prefix}status`, status, taskStatuses);
  if (setAside !== undefined && setAside !== true)
    throw invalid(`${prefix}setAside must be true, or left out`);
  if (setAside && ((status !== undefined && status !== "pending") || pod !== undefined)) {
    throw invalid(
      "setAside can't be combined with a pod, or with another status than `pending`: what was set aside waits",
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
  return { ...filter, payload: checkPayload(payload) };
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
  const sources = ["group", "session", "run"].filter((name) => filter[name] !== undefined);
  if (sources.length > 1)
    throw invalid(`${sources.join(" and ")} can't be combined: give one of them`);
}

/** Checks the times of a span. */
export function checkSpan(
  { sinceMs, untilMs }: { readonly [Time in keyof ListSpan]: number | undefined },
  prefix = "",
): void {
  if (sinceMs !== undefined) checkNumber(`${prefix}sinceMs`, sinceMs, timeRange);
  if (untilMs !== undefined) checkNumber(`${prefix}untilMs`, untilMs, timeRange);
}

/** The values in the order of their paths. */
function checkPayload(payload: unknown): Readonly<Record<string, PayloadValue>> {
  const isObject = typeof payload === "object" && payload !== null && !Array.isArray(payload);
  const entries: [string, PayloadValue][] = isObject ? Object.entries(payload) : [];
  if (entries.length === 0 || entries.length > maxPaths) {
    throw invalid(
      `payload must have 1 to ${maxPaths} paths with their values, such as { "order.id": 7 }`,
    );
  }
  for (const [path, value] of entries) {
    const names = path.split(".", maxPathNames + 1);
    const fits = names.length <= maxPathNames && names.every((name) => nameInPath.test(name));
    if (!fits || names.includes("__proto__")) {
      throw invalid(
        `payload: ${JSON.stringify(path.slice(0, 80))} must be a path of 1 to ${maxPathNames} names of letters, digits, _ and -, with dots between, such as order.id`,
      );
    }
    checkValue(path, value);
  }
  return Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

function checkValue(path: string, value: unknown): void {
  if (value === null || typeof value === "boolean") return;
  if (
    typeof value === "string" &&
    value.length <= maxValueChars &&
    value.isWellFormed() &&
    !value.includes("\u0000")
  )
    return;
  const isExact =
    typeof value === "number" &&
    Number.isFinite(value) &&
    (!Number.isInteger(value) || Number.isSafeInteger(value));
  if (isExact) return;
  throw invalid(
    `payload: the value of ${path} must be true, false, null, text of at most ${maxValueChars} characters, or a number that is exact, within 2^53`,
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
