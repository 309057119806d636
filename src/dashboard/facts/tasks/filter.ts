import { scalarOf } from "../../../base/json.ts";
import type { TaskQuery } from "../../api.ts";

/** The filter of tasks as people write it, as it is in the address, and as an act takes it. */

/** A field that tasks are filtered by, with its name in the address and an example. */
export type FilterField = {
  readonly name: string;
  readonly says: string;
  readonly example: string;
};

export const filterFields: readonly FilterField[] = [
  { name: "name", says: "of this task or flow", example: "mail" },
  { name: "status", says: "in this status", example: "failed" },
  { name: "tenant", says: "of this tenant", example: "acme" },
  { name: "key", says: "with this unique key", example: "order-7" },
  { name: "scope", says: "of this limit by key", example: "key/mail/acme" },
  { name: "pod", says: "that run on this pod", example: "pod-1" },
  { name: "group", says: "that failed with this error", example: "g2-79ef601d010c6cb2" },
  { name: "session", says: "that this session has started", example: "chat-1" },
  { name: "run", says: "that this run or task has started", example: "0198…" },
  { name: "at", says: "runs at this transition", example: "charge" },
  { name: "is", says: "that were set aside", example: "set-aside" },
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
  const rest = text.trimEnd();
  condition.lastIndex = 0;
  while (condition.lastIndex < rest.length) {
    const from = condition.lastIndex;
    const found = condition.exec(rest);
    if (!found) return trouble(notUnderstood(rest.slice(from).trim()));
    const [, field = "", quoted, plain = ""] = found;
    const value = quoted === undefined ? plain : quoted.replaceAll(/\\(.)/g, "$1");
    if (value === "") return trouble(`The filter ${cut(field)} needs a value after its colon.`);
    const read = readCondition(field, value, nowMs);
    if (typeof read === "string") return trouble(read);
    filter[read[0]] = read[1];
  }
  return { type: "filter", filter: filter as TaskQuery };
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
  const time = name === "sinceMs" ? "since" : name === "untilMs" ? "until" : undefined;
  const atMs = Number(value);
  if (time !== undefined && Number.isSafeInteger(atMs)) return `${time} ${timeText(atMs)}`;
  return `${time ?? name} ${value}`;
}

/** A filter as an act on all that match takes it. */
export type BulkFilterFacts = Readonly<Record<string, unknown>>;

/** The same conditions as JSON, as the server reads them from the address. */
export function bulkFilterOf(query: TaskQuery): BulkFilterFacts {
  const filter: Record<string, unknown> = {};
  const payload: [string, unknown][] = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    if (name.startsWith("payload.")) payload.push([name.slice("payload.".length), scalarOf(value)]);
    else if (name === "sinceMs" || name === "untilMs") filter[name] = Number(value);
    else filter[name] = name === "setAside" ? true : value;
  }
  return { ...filter, ...(payload.length > 0 && { payload: Object.fromEntries(payload) }) };
}

export type BulkAct = "cancel" | "retry" | "resume" | "delete";

const statusesOf: Readonly<Record<BulkAct, readonly string[]>> = {
  cancel: ["pending", "claimed"],
  retry: ["failed", "cancelled"],
  resume: ["pending"],
  delete: ["completed", "failed", "cancelled"],
};

/** The acts that are possible on what a filter matches. */
export function possibleBulks({ status, pod, group, setAside }: TaskQuery): BulkAct[] {
  const only = [
    status,
    pod === undefined ? undefined : "claimed",
    group === undefined ? undefined : "failed",
    setAside === undefined ? undefined : "pending",
  ].filter((each) => each !== undefined);
  const all = Object.entries(statusesOf) as [BulkAct, readonly string[]][];
  return all
    .filter(([, statuses]) => only.every((each) => statuses.includes(each)))
    .map(([act]) => act);
}
