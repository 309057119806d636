import { type Clock, sleep } from "../base/clock.ts";
import { FlotillaError, storeAwayCodes } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { maxPageBytes } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import type { Database, Row } from "../store/database.ts";
import { callUntilAnswered } from "../store/retry.ts";
import {
  type RecordedChange,
  changeKinds,
  type ChangeKind,
  changesIn,
  compareRows,
  cursorOf,
  type Position,
  positionOf,
  type ReadChange,
} from "./change.ts";
import { readLast, readPage, readTenants } from "./sql.ts";

export type ChangeFilter = {
  /** Only of tasks, flows and agents with these names. */
  names?: readonly string[];
  kinds?: readonly ChangeKind[];
  tenant?: string;
};

export type ChangesOptions = ChangeFilter & {
  /**
   * The cursor of the last change that was dealt with, or `now` for changes from now on. Default: the oldest
   * that is kept.
   */
  after?: string;
  /** Ends the loop, without an error. */
  signal?: AbortSignal;
  /** How often to look for more where there was none. Default 500. */
  pollMs?: number;
};

export type ChangePageOptions = ChangeFilter & {
  after?: string;
  /** How many at most. Default 100. */
  limit?: number;
};

export type ChangePage = {
  readonly changes: readonly RecordedChange[];
  /** The `after` of the page that follows, also of an empty one. */
  readonly cursor: string;
  /** Whether there was more. A page may be empty and have more behind it. */
  readonly more: boolean;
};

/** Follows what is changed: `for await (const change of flotilla.changes({ after }))`. */
export type ChangesReader = {
  /** Goes on for ever, and waits for what comes. Each change is given at least once. */
  (options?: ChangesOptions): AsyncIterable<RecordedChange>;
  /** A page of them, without waiting. */
  page(options?: ChangePageOptions): Promise<ChangePage>;
};

const filterNames = ["names", "kinds", "tenant"] as const;
const defaultLimit = 100;
const maxLimit = 1_000;
const maxNames = 100;
const defaultPollMs = 500;
const retryMs = 1_000;
const awayCodes = [...storeAwayCodes, "unavailable"] as const;

export function createChanges({
  database,
  clock,
  random,
}: {
  database: Database;
  clock: Clock;
  random: Random;
}): ChangesReader {
  const page = async (options: ChangePageOptions): Promise<ChangePage> => {
    const { limit = defaultLimit } = options;
    const from = await startOf(options.after);
    // A position without a life is that of the beginning.
    const { life: wanted, ...after } = from ?? {
      life: undefined,
      mark: 0,
      seq: 0,
      subjects: "all",
    };
    const found = await database.read(readPage(after, { rows: limit, bytes: maxPageBytes }));
    const state = stateOf(found[0]);
    if (wanted !== undefined) checkPosition({ ...after, life: wanted }, state);
    const rows = found.filter((row) => row["mark"] !== null).map(toChangeRow);
    const position: Position = { ...after, life: state.life };
    const all = await withTenants(rows.flatMap((row) => changesIn(row, position)));
    const matching = all.filter((change) => matches(change, options));
    const changes = matching.slice(0, limit);
    const isCut = matching.length > limit;
    const last = rows.at(-1);
    const end = last
      ? cursorOf({ life: state.life, mark: last.mark, seq: last.seq, subjects: "all" })
      : cursorOf(wanted === undefined ? state.pruned : position);
    return {
      changes,
      cursor: isCut ? changes.at(-1)!.cursor : end,
      more: isCut || Number(found[0]!["found"]) > rows.length,
    };
  };

  /** Where a reader begins; undefined at the oldest that is kept. */
  const startOf = async (after: string | undefined): Promise<Position | undefined> => {
    if (after !== "now") return after === undefined ? undefined : positionOf(after);
    const [row] = await database.read(readLast());
    const { pruned } = stateOf(row);
    if (row!["mark"] === null) return pruned;
    return { ...pruned, mark: Number(row!["mark"]), seq: Number(row!["seq"]) };
  };

  const withTenants = async (changes: readonly ReadChange[]): Promise<RecordedChange[]> => {
    const unknown = changes.filter(({ tenant }) => tenant === null);
    const ids = [...new Set(unknown.map(({ sessionId }) => sessionId!))];
    const rows = ids.length === 0 ? [] : await database.read(readTenants(ids));
    const tenants = new Map(rows.map((row) => [row["session_id"], row["tenant"] as string]));
    return changes.map(({ sessionId, ...change }) => ({
      ...change,
      tenant: change.tenant ?? tenants.get(sessionId) ?? "default",
    }));
  };

  return followPages(page, { clock, random });
}

/** Pages, and a loop that reads one after the other. */
export function followPages(
  page: (options: ChangePageOptions) => Promise<ChangePage>,
  { clock, random }: { clock: Clock; random: Random },
): ChangesReader {
  async function* follow(options: ChangesOptions): AsyncGenerator<RecordedChange> {
    const { signal, pollMs = defaultPollMs, after, ...filter } = options;
    const retry = { clock, random, codes: awayCodes, waitMs: () => retryMs };
    let at = after;
    while (!signal?.aborted) {
      const given = { ...filter, ...(at !== undefined && { after: at }), limit: maxLimit };
      // A store that is away is waited for, for as long as it takes.
      const read = await callUntilAnswered(() => page(given), {
        ...retry,
        ...(signal && { signal }),
      }).catch((error: unknown) => {
        if (signal?.aborted) return undefined;
        throw error;
      });
      if (read === undefined) return;
      for (const change of read.changes) {
        if (signal?.aborted) return;
        yield change;
      }
      at = read.cursor;
      if (!read.more) await sleep(clock, pollMs, signal).catch(() => {});
    }
  }

  return Object.assign(
    (options: ChangesOptions = {}) => {
      checkOptions("changes", options, [...filterNames, "after", "signal", "pollMs"]);
      const { pollMs } = options;
      if (pollMs !== undefined) checkNumber("pollMs", pollMs, { min: 10, max: 60_000 });
      checkFilter(options);
      return follow(options);
    },
    {
      page: async (options: ChangePageOptions = {}) => {
        checkOptions("changes.page", options, [...filterNames, "after", "limit"]);
        const { limit } = options;
        if (limit !== undefined) checkNumber("limit", limit, { min: 1, max: maxLimit });
        checkFilter(options);
        return page(options);
      },
    },
  );
}

function checkFilter({ names, kinds, after }: ChangeFilter & { after?: string }): void {
  for (const kind of kinds ?? []) checkChoice("kinds", kind, changeKinds);
  if (names !== undefined && names.length > maxNames) {
    throw new FlotillaError("invalid_option", `names: at most ${maxNames}, not ${names.length}`);
  }
  if (after !== undefined && after !== "now") positionOf(after);
}

function matches({ name, kind, tenant }: RecordedChange, filter: ChangeFilter): boolean {
  if (filter.names && (name === null || !filter.names.includes(name))) return false;
  if (filter.kinds && !filter.kinds.includes(kind)) return false;
  return filter.tenant === undefined || filter.tenant === tenant;
}

type State = { readonly life: string; readonly horizon: number; readonly pruned: Position };

function stateOf(row: Row | undefined): State {
  if (row === undefined) {
    throw new FlotillaError(
      "conflict",
      "changes aren't recorded here: set `changes: { keepMs }` in the config of the pods",
    );
  }
  const life = row["life"] as string;
  const horizon = Number(row["horizon"]);
  if (horizon < Number(row["high"])) {
    throw new FlotillaError(
      "unavailable",
      "the store was restored, and the leading pod hasn't begun a new life of its changes yet: try again in a minute",
    );
  }
  const pruned = { mark: Number(row["pruned_mark"]), seq: Number(row["pruned_seq"]) };
  return { life, horizon, pruned: { life, ...pruned, subjects: "all" } };
}

/** Refuses a position after which not everything is there any more. */
function checkPosition(after: Position, { life, horizon, pruned }: State): void {
  const refuse = (why: string) =>
    new FlotillaError(
      "cursor_expired",
      `${why}: read what you need from lists, and begin again without \`after\`, or with "now"`,
      { details: { oldest: cursorOf(pruned) } },
    );
  if (after.life !== life) throw refuse("changes weren't recorded all the time since this cursor");
  const isGone =
    after.subjects === "all" ? compareRows(after, pruned) < 0 : compareRows(after, pruned) <= 0;
  if (isGone) throw refuse("changes after this cursor are no longer kept");
  if (after.mark > horizon) throw refuse("this cursor is of a store that has come further");
}

function toChangeRow(row: Row) {
  return {
    mark: Number(row["mark"]),
    seq: Number(row["seq"]),
    atMs: Number(row["at"]),
    subjects: row["subjects"] as string,
  };
}
