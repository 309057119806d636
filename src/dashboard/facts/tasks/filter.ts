import type { TaskQuery } from "../../api.ts";

/** The filter of tasks as people write it, and as it is in the address. */

/** A field that tasks are filtered by, with its name in the address and an example. */
export type FilterField = {
  readonly name: string;
  readonly says: string;
  readonly example: string;
};

export const filterFields: readonly FilterField[] = [
  { name: "name", says: "of this task or flow", example: "mail" },
  { name: "status", says: "in this status", example: "failed" },
  { name: "state", says: "waiting, and in this state", example: "delayed" },
  { name: "tenant", says: "of this tenant", example: "acme" },
  { name: "key", says: "with this unique key", example: "order-7" },
  { name: "scope", says: "of this limit by key", example: "key/mail/acme" },
  { name: "pod", says: "that run on this pod", example: "pod-1" },
  { name: "group", says: "that failed with this error", example: "g2-79ef601d010c6cb2" },
  { name: "session", says: "that this session has started", example: "chat-1" },
  { name: "run", says: "that this run or task has started", example: "0198…" },
  { name: "at", says: "runs at this transition", example: "charge" },
  { name: "version", says: "runs that this version has advanced last", example: "2" },
  { name: "is", says: "that were set aside", example: "set-aside" },
  { name: "ids", says: "these, with commas between", example: "0198…,0198…" },
  { name: "since", says: "created from this time on", example: "24h" },
  { name: "until", says: "created up to this time", example: "2026-11-17T09:30" },
  { name: "from", says: "with this id or a later one", example: "0198…" },
  { name: "to", says: "with this id or an earlier one", example: "0198…" },
  { name: "payload.", says: "with this value in their payload", example: "order.id:7" },
];

export const statusWords: readonly (readonly [string, string])[] = [
  ["pending", "waiting"],
  ["claimed", "running"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
];

/** The states of tasks that wait, in the words of the page. */
export const stateWords: readonly (readonly [NonNullable<TaskQuery["state"]>, string])[] = [
  ["ready", "ready"],
  ["delayed", "delayed"],
  ["waiting", "after others"],
  ["blocked", "at a limit"],
  ["alone", "alone"],
];

/** What was written, or why it can't be understood. */
export type WrittenFilter =
  | { readonly type: "filter"; readonly filter: TaskQuery }
  | { readonly type: "trouble"; readonly text: string };

// A field, a colon or an equals sign, and a value: all up to a space, or quoted.
const condition = /\s*([^\s:="]+)[:=](?:"((?:[^"\\]|\\.)*)"|([^\s"]\S*)?)(?=\s|$)/y;
const maxShownChars = 60;

/** Understands text such as `pod:pod-1 since:2h payload.order.id:7`. */
export function parseFilter(text: string, nowMs: number): WrittenFilter {
  const filter: Record<string, string> = {};
  const { conditions, rest } = conditionsIn(text);
  for (const [field, value] of conditions) {
    if (value === "") return trouble(`The filter ${cut(field)} needs a value after its colon.`);
    const read = readCondition(field, value, nowMs);
    if (typeof read === "string") return trouble(read);
    filter[read[0]] = read[1];
  }
  if (rest !== "") return trouble(notUnderstood(rest));
  return { type: "filter", filter: filter as TaskQuery };
}

/** Fields and values as they were written, up to where that can't be understood. */
export function conditionsIn(text: string): {
  readonly conditions: readonly (readonly [string, string])[];
  readonly rest: string;
} {
  const conditions: [string, string][] = [];
  const written = text.trimEnd();
  condition.lastIndex = 0;
  while (condition.lastIndex < written.length) {
    const from = condition.lastIndex;
    const found = condition.exec(written);
    if (!found) return { conditions, rest: written.slice(from).trim() };
    const [, field = "", quoted, plain = ""] = found;
    conditions.push([field, quoted === undefined ? plain : quoted.replaceAll(/\\(.)/g, "$1")]);
  }
  return { conditions, rest: "" };
}

/** A condition as it is in the address; a sentence if there is none such. */
function readCondition(
  field: string,
  value: string,
  nowMs: number,
): readonly [string, string] | string {
  if (field.startsWith("payload.")) return [field, value];
  switch (field) {
    case "status": {
      const status = statusWords.find((words) => words.includes(value));
      const known = statusWords.map(([, word]) => word).join(", ");
      return status ? ["status", status[0]] : `There is no status ${cut(value)}: it is ${known}.`;
    }
    case "state": {
      const trouble = stateTrouble(value);
      return trouble === undefined ? ["state", value] : trouble;
    }
    case "since":
    case "until": {
      const atMs = timeIn(value, nowMs);
      if (atMs !== undefined) return [`${field}Ms`, String(atMs)];
      return `${cut(value)} is no time: write 30min, 2h, 7d, or a time such as 2026-11-17T09:30.`;
    }
    case "is":
      return value === "set-aside"
        ? ["setAside", "true"]
        : `There is no ${cut(value)}: write is:set-aside.`;
    default: {
      const isKnown = filterFields.some(({ name }) => name === field);
      return isKnown ? [field, value] : notUnderstood(`${field}:`);
    }
  }
}

/** A field of the address that no list of tasks can have, and why. */
export type AddressTrouble = { readonly field: string; readonly text: string };

const inAddress: readonly string[] = [
  ...filterFields
    .map(({ name }) => name)
    .filter((name) => !["is", "since", "until"].includes(name)),
  "setAside",
  "sinceMs",
  "untilMs",
];

/** The first field of an address that can't be filtered by. What a value may be else, the server checks. */
export function addressTrouble(query: TaskQuery): AddressTrouble | undefined {
  for (const [field, value = ""] of Object.entries(query)) {
    const text = wrongWith(field, value);
    if (text !== undefined) return { field, text };
  }
  return undefined;
}

function wrongWith(field: string, value: string): string | undefined {
  if (field.startsWith("payload.")) return undefined;
  if (!inAddress.includes(field))
    return `Tasks have no filter ${cut(field)}, so that it isn't known which are meant.`;
  switch (field) {
    case "status": {
      const known = statusWords.map(([status]) => status);
      return known.includes(value)
        ? undefined
        : `There is no status ${cut(value)}: it is ${known.join(", ")}.`;
    }
    case "state":
      return stateTrouble(value);
    case "sinceMs":
    case "untilMs":
      return /^\d{1,15}$/.test(value)
        ? undefined
        : `${field} must be a whole number, of milliseconds since 1970, and not ${cut(value)}.`;
    case "version":
      return /^\d{1,9}$/.test(value)
        ? undefined
        : `version must be a whole number, and not ${cut(value)}.`;
    case "setAside":
      return value === "true" ? undefined : "setAside must be true, or left out.";
    default:
      return undefined;
  }
}

function stateTrouble(value: string): string | undefined {
  const known = stateWords.map(([state]) => state);
  if (known.some((each) => each === value)) return undefined;
  return `There is no state ${cut(value)}: it is ${known.join(", ")}.`;
}

const unitMs: Readonly<Record<string, number>> = {
  s: 1_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** A time as it was written: how long ago, or when. */
function timeIn(text: string, nowMs: number): number | undefined {
  const [, count, unit = ""] = /^(\d{1,6})(s|min|h|d)$/.exec(text) ?? [];
  if (count !== undefined) return Math.max(0, nowMs - Number(count) * unitMs[unit]!);
  if (/^\d{12,15}$/.test(text)) return Number(text);
  const atMs = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs);
}

function notUnderstood(text: string): string {
  const names = filterFields.map(({ name }) => (name === "payload." ? "payload.<path>" : name));
  return `${cut(text)} is no filter: write a field and its value, such as pod:pod-1. The fields are ${names.join(", ")}.`;
}

function trouble(text: string): WrittenFilter {
  return { type: "trouble", text };
}

function cut(text: string): string {
  return text.length > maxShownChars ? `${text.slice(0, maxShownChars)}…` : text;
}

/** A condition in words, for the mark that takes it away. */
export function conditionText(
  name: string,
  value: string,
  timeText: (atMs: number) => string,
): string {
  if (name === "setAside") return "set aside";
  if (name === "state") return stateWords.find(([state]) => state === value)?.[1] ?? value;
  const time = name === "sinceMs" ? "since" : name === "untilMs" ? "until" : undefined;
  const atMs = Number(value);
  if (time !== undefined && Number.isSafeInteger(atMs)) return `${time} ${timeText(atMs)}`;
  return `${time ?? name} ${value}`;
}
