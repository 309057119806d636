import { type Act, type ActParts, type ActWrite, beginAct, writeAct } from "../audit/act.ts";
import { actorName, currentActor } from "../audit/actor.ts";
import { followUntil } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Row } from "../store/database.ts";
import { untilKnown } from "../store/retry.ts";
import type { TaskFilter } from "../tasks/inspect/filter.ts";
import type { TaskStatus } from "../tasks/rows.ts";
import { type Bulk, type BulkRequest, type CheckedBulk, hasBulkEnded, toBulk } from "./bulk.ts";
import { checkBulkRequest } from "./request.ts";
import { getBulk, insertBulk, listBulks, maxOpenBulks, readOutcomes, stopBulk } from "./sql.ts";
import { walkMatches } from "./walk.ts";

/** How many tasks and runs an act would be for, right now. */
export type BulkPreview = {
  readonly matched: number;
  /** False if there may be more: counts end at 10,000, and where a long walk has found few. */
  readonly isExact: boolean;
  /** The ids of the first of them. */
  readonly sample: readonly string[];
};

export type BulkListOptions = {
  /** 1 to 1,000. Default 20. */
  limit?: number;
  /** The `next` of the previous page. */
  cursor?: string;
  /** Only those on tasks of this tenant alone. */
  tenant?: string;
};

export type BulkPage = { readonly bulks: Bulk[]; readonly next: string | null };

/** What became of one task or run that a bulk names by its id. */
export type BulkOutcome = {
  readonly taskId: string;
  /**
   * `waiting` until the bulk has come to it; `left` if it wasn't as it was seen, or the act wasn't possible;
   * `gone` if there is none, or none of the bulk's tenant.
   */
  readonly outcome: "done" | "waiting" | "left" | "gone";
  /** Its status of now; null if it is gone. */
  readonly status: TaskStatus | null;
};

export type FollowBulkOptions = {
  signal?: AbortSignal;
  onProgress?: (bulk: Bulk) => void;
};

/** One act on all tasks and runs that match a filter. */
export type Bulks = {
  /** Counts what an act would be for, and changes nothing. */
  preview(request: BulkRequest): Promise<BulkPreview>;
  /** Stores an act on a filter. The leader does it, 500 tasks at a time in the order of their ids. */
  start(request: BulkRequest): Promise<Bulk>;
  /** A page of bulks, newest first. Of the `ids` of a filter it has the first 20: `get` has them all. */
  list(options?: BulkListOptions): Promise<BulkPage>;
  get(bulkId: string): Promise<Bulk | undefined>;
  /** What became of each task and run that a bulk names by `ids`; empty for a filter without them. */
  outcomes(bulkId: string): Promise<readonly BulkOutcome[]>;
  /** Resolves once a bulk has ended. */
  follow(bulkId: string, options?: FollowBulkOptions): Promise<Bulk>;
  /** Stops a running bulk. What it has done stays done. */
  stop(bulkId: string): Promise<Bulk>;
};

export type BulksParts = ActParts & { maxPayloadBytes?: number };

const maxCounted = 10_000;
const maxSample = 20;
const maxListWalked = 5_000;
// A preview walks over no more rows than this many statements read: 200,000, or 40,000 with their errors.
const pagesPerPreview = 20;

/** Creates the operations on bulks. */
export function createBulks(parts: BulksParts): Bulks {
  const { database, clock, maxPayloadBytes = defaultMaxBytes } = parts;
  const check = (request: BulkRequest) =>
    checkBulkRequest(request, { maxPayloadBytes, encodesContent: database.encodesContent });

  const write = (act: Act, statements: ActWrite["statements"]) =>
    writeAct(parts, act, { statements }, untilKnown);

  const find = async (bulkId: string): Promise<Bulk | undefined> => {
    const [row] = await database.read(getBulk(bulkId));
    return row && toBulk(row);
  };

  const preview = async ({ action, filter, options }: CheckedBulk): Promise<BulkPreview> => {
    const walk = { action, filter, as: options.as ?? null, after: "" };
    const { seen, isLast } = await walkMatches(database, walk, {
      count: maxCounted,
      maxPages: pagesPerPreview,
    });
    const sample = seen.slice(0, maxSample).map(({ taskId }) => taskId);
    return { matched: seen.length, isExact: isLast, sample };
  };

  return {
    preview: async (request) => preview(check(request)),

    async start(request) {
      const checked = check(request);
      const { action, filter, options, reason } = checked;
      const { payload, ids, ...shown } = filter;
      // The audit holds nothing of payloads: the paths alone. Of many ids it holds the first.
      const paths = payload && { payload: Object.keys(payload) };
      const named = ids && { ids: ids.slice(0, maxSample), namedIds: ids.length };
      const about = { action, ...options, ...shown, ...named, ...paths };
      const act = await beginAct(parts, { action: "bulk.start", filter: about, reason });
      const actor = currentActor();
      const { matched, isExact } = act.stored
        ? { matched: 0, isExact: false }
        : await preview(checked);
      const bulk = { ...checked, createdBy: actor ? actorName(actor) : null, matched, isExact };
      const { tables } = await write(act, (id, entry) => insertBulk(id, bulk, entry));
      const [row] = tables.at(-1)!;
      if (row) return ofSameFilter(toBulk(row), filter);
      if (act.stored) throw noBulk(act.stored.id);
      throw new FlotillaError(
        "overloaded",
        `${maxOpenBulks} bulks are running: wait for one to end, or stop one`,
      );
    },

    async list(options = {}) {
      checkOptions("bulk.list", options, ["limit", "cursor", "tenant"]);
      const { limit = 20, cursor, tenant } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const isListed = (row: Row) => tenant === undefined || toBulk(row).filter.tenant === tenant;
      const rows: Row[] = [];
      let [after, isLast, walked] = [cursor, false, 0];
      // Those of other tenants are read and passed over, up to a bound.
      while (!isLast && rows.length <= limit && walked < maxListWalked) {
        const read = await database.read(listBulks(limit + 1, after));
        rows.push(...read.filter(isListed));
        walked += read.length;
        isLast = read.length <= limit;
        after = read.at(-1)?.["bulk_id"] as string | undefined;
      }
      const page = fitPage(rows.slice(0, limit).map(toListed), rows.length > limit);
      if (page.hasMore) return { bulks: page.items, next: page.items.at(-1)!.bulkId };
      return { bulks: page.items, next: isLast ? null : after! };
    },

    get: find,

    async outcomes(bulkId) {
      const bulk = await find(bulkId);
      if (!bulk) throw noBulk(bulkId);
      const { ids = [] } = bulk.filter;
      if (ids.length === 0) return [];
      const rows = await database.read(readOutcomes(bulk, ids));
      const byId = new Map(rows.map((row) => [row["task_id"] as string, row]));
      return ids.map((taskId) => outcomeOf(bulk, taskId, byId.get(taskId)));
    },

    async follow(bulkId, options = {}) {
      checkOptions("bulk.follow", options, ["signal", "onProgress"]);
      const read = async () => {
        const bulk = await find(bulkId);
        if (bulk) return bulk;
        throw noBulk(bulkId);
      };
      return followUntil(clock, read, { ...options, hasEnded: hasBulkEnded });
    },

    async stop(bulkId) {
      const act = await beginAct(parts, { action: "bulk.stop", subject: bulkId });
      const { tables } = await write(act, (_, entry) => stopBulk(bulkId, entry));
      const [row] = tables.at(-1)!;
      if (!row) throw noBulk(bulkId);
      const bulk = toBulk(row);
      if (bulk.state === "stopped") return bulk;
      throw new FlotillaError("conflict", `bulk ${bulkId} is ${bulk.state} already`);
    },
  };
}

/** A bulk as lists show it: a page of twenty must not have twenty thousand ids. */
function toListed(row: Row): Bulk {
  const bulk = toBulk(row);
  const { ids } = bulk.filter;
  if (ids === undefined) return bulk;
  return { ...bulk, filter: { ...bulk.filter, ids: ids.slice(0, maxSample) } };
}

/** Throws if the act was stored before, for other values or ids, which its entry doesn't hold. */
function ofSameFilter(bulk: Bulk, { payload, ids }: TaskFilter): Bulk {
  const textOf = (...given: unknown[]) => JSON.stringify(given);
  if (textOf(bulk.filter.payload, bulk.filter.ids) === textOf(payload, ids)) return bulk;
  throw new FlotillaError(
    "conflict",
    `the act was bulk ${bulk.bulkId}, on other values of payloads or other ids: give another act another id`,
  );
}

function outcomeOf(bulk: Bulk, taskId: string, row: Row | undefined): BulkOutcome {
  if (!row) return { taskId, outcome: "gone", status: null };
  const status = row["status"] as TaskStatus;
  if (Number(row["acted_on"]) === 1) return { taskId, outcome: "done", status };
  const isAhead = bulk.lastTaskId === null || taskId > bulk.lastTaskId;
  return { taskId, outcome: !hasBulkEnded(bulk) && isAhead ? "waiting" : "left", status };
}

function noBulk(bulkId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no bulk ${bulkId.slice(0, 80)}`);
}
