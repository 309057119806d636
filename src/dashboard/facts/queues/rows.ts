import type { DepthFacts, PauseView, TaskFacts } from "../../api.ts";

/** The place in the page of queues, as it is in the address. */
export type QueueSearch = {
  /** What a name has in it. */
  readonly name?: string;
  readonly only?: QueueChoice;
  /** Which page of names, from 2 on. */
  readonly page?: string;
  /** The limit whose holders are shown. */
  readonly scope?: string;
};

export type QueueChoice = "paused" | "waiting" | "running" | "blocked" | "failed";

export type QueueCounts = DepthFacts[string];

/** The counts of a name, in the order of a table. */
export const countColumns = [
  ["running", "Running"],
  ["ready", "Ready"],
  ["delayed", "Delayed"],
  ["waiting", "After others"],
  ["blocked", "At a limit"],
  ["alone", "Alone"],
  ["failed", "Failed"],
] as const;

export type Counted = (typeof countColumns)[number][0];

/** A name with what is queued under it. */
export type QueueRow = {
  readonly name: string;
  readonly counts: QueueCounts;
  /** Its own pause, and not that of everything. */
  readonly pause: PauseView | undefined;
};

export const queueChoices: readonly (readonly [QueueChoice, string])[] = [
  ["paused", "paused"],
  ["waiting", "with tasks that wait"],
  ["running", "with tasks that run"],
  ["blocked", "at a limit"],
  ["failed", "with failed tasks"],
];

const maxNameChars = 200;
// `key/<name>/<key>` with the longest name and key.
const maxScopeChars = 710;
const everything = "*";
const maxRowsShown = 50;

/** What an address says of it. What it can't be doesn't count. */
export function queueSearchIn(search: Readonly<Record<string, unknown>>): QueueSearch {
  const text = (name: keyof QueueSearch, maxChars: number) => {
    const value = search[name];
    const isGiven = typeof value === "string" && value !== "" && value.length <= maxChars;
    return isGiven ? { [name]: value } : {};
  };
  const only = queueChoices.find(([choice]) => choice === search["only"])?.[0];
  const page = search["page"];
  return {
    ...text("name", maxNameChars),
    ...(only !== undefined && { only }),
    ...(typeof page === "string" && /^[1-9]\d{0,5}$/.test(page) && page !== "1" && { page }),
    ...text("scope", maxScopeChars),
  };
}

const none: QueueCounts = {
  ready: 0,
  delayed: 0,
  waiting: 0,
  blocked: 0,
  alone: 0,
  running: 0,
  failed: 0,
  oldestMs: 0,
  paused: false,
};

/** The pause of everything, if there is one. */
export function pauseOfAll(pauses: readonly PauseView[]): PauseView | undefined {
  return pauses.find(({ name }) => name === everything);
}

/**
 * The names that the address asks for, in the order of the alphabet: rows that change their places every
 * two seconds are clicked by mistake. A name may be paused that has no tasks.
 */
export function queueRows(
  depth: DepthFacts,
  pauses: readonly PauseView[],
  { name = "", only }: Pick<QueueSearch, "name" | "only">,
): QueueRow[] {
  const pauseOf = new Map(pauses.map((pause) => [pause.name, pause]));
  const names = new Set([...Object.keys(depth), ...pauseOf.keys()]);
  names.delete(everything);
  const wanted = name.toLowerCase();
  return [...names]
    .filter((each) => each.toLowerCase().includes(wanted))
    .toSorted((a, b) => (a < b ? -1 : 1))
    .map((each) => ({
      name: each,
      counts: (Object.hasOwn(depth, each) ? depth[each] : undefined) ?? none,
      pause: pauseOf.get(each),
    }))
    .filter((row) => only === undefined || isChosen(row, only));
}

function isChosen({ counts, pause }: QueueRow, only: QueueChoice): boolean {
  switch (only) {
    case "paused":
      return pause !== undefined;
    case "waiting":
      return counts.ready + counts.delayed + counts.waiting + counts.blocked + counts.alone > 0;
    case "running":
    case "blocked":
    case "failed":
      return counts[only] > 0;
  }
}

/** The rows of a page, its number and the last one's. A page beyond the last is the last. */
export function rowsOnPage<Row>(rows: readonly Row[], page: string | undefined) {
  const lastPage = Math.max(1, Math.ceil(rows.length / maxRowsShown));
  const at = Math.min(lastPage, Number(page ?? 1));
  const from = (at - 1) * maxRowsShown;
  return { rows: rows.slice(from, from + maxRowsShown), from, page: at, lastPage };
}

/** The kind of a limit's scope, and what it is of. */
export function scopeParts(scope: string): { readonly kind: string; readonly of: string } {
  const at = scope.indexOf("/");
  return at < 0
    ? { kind: "limit", of: scope }
    : { kind: scope.slice(0, at), of: scope.slice(at + 1) };
}

/** The filter that finds the tasks which use the slots of a scope. */
export function holdersFilter(scope: string): {
  readonly status: TaskFacts["status"];
  readonly tenant?: string;
  readonly scope?: string;
} {
  const { kind, of } = scopeParts(scope);
  return { status: "claimed", ...(kind === "tenant" ? { tenant: of } : { scope }) };
}
