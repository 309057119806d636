import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Random } from "../base/random.ts";
import { logPlaceOf } from "../sessions/log/place.ts";
import { readLogHeads } from "../sessions/log/sql-journal.ts";
import type { Database } from "../store/database.ts";
import { createdAtMs, migrate, type SchemaState, stateOfOurs } from "../store/migrate.ts";
import { refuseMarked } from "../store/promotion-mark.ts";
import type { TableName } from "../store/sql.ts";
import { compareTables, copyTables } from "./copy.ts";
import {
  type BeatingPods,
  closeSource,
  countTables,
  fenceSource,
  lookAtSource,
  podsBeat,
  refuseUnstorable,
  unfenceSource,
  untilNoPods,
  watchPods,
} from "./source.ts";
import {
  analyzeTable,
  type CopyProgress,
  deleteCopied,
  hasRows,
  readSingles,
  setSingles,
  type SingleRows,
  toSingles,
} from "./sql.ts";
import { type CopiedTable, describeTables } from "./tables.ts";
import {
  beginTarget,
  lookAtTarget,
  refuseFilled,
  takeTarget,
  type HeldTarget,
  type TargetParts,
  type TargetState,
} from "./target.ts";

/**
 * Moves everything of a SQLite store to Postgres. Each step finds what earlier ones have left, so that a
 * promotion which was killed anywhere goes on when it is started again:
 *
 *   1. nothing is changed while a pod beats, or where a row can't be stored in the target
 *   2. the target gets its tables and a mark: nothing starts there
 *   3. the source is fenced: nothing starts there, and nothing that has it open writes
 *   4. rows are copied by their keys, each batch with the place where the next one begins
 *   5. both stores are read again, and compared
 *   6. the target is opened for use, then the source says for good where its data went
 *
 * Between 2 and 6 neither store can be used, so there are never two.
 */
export type PromoteParts = {
  readonly source: Database;
  readonly target: Database;
  /** The two stores as they may be shown. */
  readonly from: string;
  readonly to: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly ids: Ids;
  /** The identity of this process for others on its machine, and whether another one is gone. */
  readonly host: string | null;
  readonly isGone: (host: string) => boolean;
  /** How many logs the sessions are spread over. Default: `defaultLogs`, or as many as there are. */
  readonly logs?: number | undefined;
  readonly defaultLogs: number;
  /** Whether to wait for pods on the source to stop. */
  readonly wait?: boolean;
  readonly onProgress?: (progress: PromotionProgress) => void;
};

export type PromotionProgress =
  | { readonly phase: "waiting"; readonly pods: BeatingPods }
  | {
      readonly phase: "copying" | "comparing";
      readonly table: TableName;
      readonly rows: number;
      readonly total: number;
    };

export type Promoted = {
  readonly rows: number;
  readonly tables: Readonly<Record<string, number>>;
  /** How many logs the sessions have; 0 where pods are still to create them. */
  readonly logs: number;
  /** True if an earlier call had finished, and there was nothing left to do. */
  readonly already: boolean;
};

export type PromotionPlan = {
  readonly rows: number;
  readonly tables: Readonly<Record<string, number>>;
  readonly logs: { readonly from: number; readonly to: number };
  /** The pods that have to stop first. */
  readonly pods: BeatingPods;
  readonly schema: { readonly from: number; readonly to: number };
  /** How many rows are in the target already. */
  readonly copied: number;
  /** About how long it takes. */
  readonly durationMs: number;
};

/** What was copied and compared in a second on two cores that others used, too: 40,000 tasks in 11.5 s. */
const rowsInSecond = 3_500;
const analyzedRows = 1_000;
const deletedAtOnce = 5_000;

/** What `promote` would do. Changes nothing. */
export async function planPromotion(parts: PromoteParts): Promise<PromotionPlan> {
  const { source, target } = parts;
  const schema = await lookAtSource(source);
  const there = await lookAtTarget(target);
  refuseOthers(schema, there, await sourceIdOf(source, schema));
  if (!there.promotion) await refuseFilled(target, there.schema);
  const tables = await describeTables(source, { isOlder: schema.pending.length > 0 });
  await refuseUnstorable(source, tables);
  const counts = await countTables(source, tables);
  const rows = sumOf(counts.values());
  return {
    rows,
    tables: byName(counts),
    logs: await logsOf(parts, there.promotion?.logs),
    pods: await watchPods({ database: source, ...parts })(),
    schema: { from: schema.version, to: schema.known },
    copied: copiedIn(there.promotion?.progress ?? {}),
    durationMs: Math.ceil((rows / rowsInSecond) * 1_000),
  };
}

export async function promote(parts: PromoteParts): Promise<Promoted> {
  const { source, target: database, clock, ids, to } = parts;
  const schema = await lookAtSource(source);
  const there = await lookAtTarget(database);
  const sourceId = await sourceIdOf(source, schema);
  const done = isDone(schema, there);
  if (!done) refuseOthers(schema, there, sourceId);
  if (done) {
    const { promotionId, logs, progress } = there.promotion!;
    await closeSource(source, { promotionId, other: to });
    const tables = Object.fromEntries(
      Object.entries(progress).map(([name, each]) => [name, each.rows]),
    );
    return { rows: sumOf(Object.values(tables)), tables, logs, already: true };
  }

  const isFenced = schema.mark !== undefined;
  const look = watchPods({ database: source, ...parts });
  const noPods = () =>
    untilNoPods(look, {
      clock,
      wait: parts.wait ?? false,
      onWaiting: (pods) => parts.onProgress?.({ phase: "waiting", pods }),
    });
  if (!isFenced) {
    if (!there.promotion) await refuseFilled(database, there.schema);
    await noPods();
    if (schema.pending.length > 0) await migrate(source);
  }
  const tables = await describeTables(source);
  if (!isFenced) await refuseUnstorable(source, tables);

  const holder = ids.next();
  const targetParts: TargetParts = {
    ...parts,
    database,
    holder: { holder, host: parts.host },
  };
  const { promotionId, logs } = await beginOrGoOn(parts, { there, sourceId, targetParts });
  const target = await takeTarget(targetParts, promotionId);
  try {
    const mark = { promotionId, other: to };
    if (!isFenced) {
      // It was given up with another target, and has changed since then.
      await emptyTarget(parts, { target, tables, holder });
      await refuseBusy(parts, target);
      await claimSource(source, mark, { target, fence: { look, noPods } });
    }
    const counts = await countTables(source, tables);
    const total = sumOf(counts.values());
    const copying = { source, target, tables, holder };
    const progress = await copyTables({
      ...copying,
      onRows: reporting("copying", total, parts),
    });
    await target.save(progress, setSingles(await singlesOf(source), holder));
    const onRows = reporting("comparing", total, parts);
    const compared = await compareTables({ ...copying, database, progress, onRows });
    await analyze(database, compared);
    await refuseUnfenced(source, promotionId);
    await target.finish();
    await closeSource(source, mark);
    return { rows: sumOf(compared.values()), tables: byName(compared), logs, already: false };
  } catch (error) {
    await target.release();
    throw error;
  }
}

export type UndonePromotion = {
  /** How many rows the target had. */
  readonly rows: number;
  /** True if the source is another target's by now, and goes on being that. */
  readonly isElsewhere: boolean;
};

/**
 * Gives a promotion up that isn't finished: the target is empty again, and the source goes on as before. A target
 * that the source has left for another one is emptied alone.
 */
export async function undoPromotion(parts: PromoteParts): Promise<UndonePromotion> {
  const { source, target: database, ids, host } = parts;
  const schema = await lookAtSource(source);
  const there = await lookAtTarget(database);
  const sourceId = await sourceIdOf(source, schema);
  const isOwn = schema.mark?.promotionId === there.promotion?.promotionId;
  // The source isn't this target's, or not any more: it is being moved elsewhere, or has been.
  const isLeft = there.promotion?.state === "copying" && !isOwn && schema.mark !== undefined;
  if (isDone(schema, there) || (schema.mark?.state === "moved" && !isLeft)) {
    throw new FlotillaError(
      "conflict",
      "the promotion is finished, and the target may have been used since: it can't be undone",
    );
  }
  if (there.promotion) refuseOthers(isLeft ? withoutMark(schema) : schema, there, sourceId);
  let rows = 0;
  if (there.promotion?.state === "copying") {
    const holder = ids.next();
    const targetParts = { ...parts, database, holder: { holder, host } };
    const target = await takeTarget(targetParts, there.promotion.promotionId);
    rows = copiedIn(target.promotion.progress);
    const tables = await describeTables(source);
    await emptyTarget(parts, { target, tables, holder });
    await target.forget();
  }
  if (schema.mark && !isLeft) await unfenceSource(source, schema.mark);
  return { rows, isElsewhere: isLeft };
}

function withoutMark(schema: SchemaState): SchemaState {
  const { mark: _, ...rest } = schema;
  return rest;
}

async function singlesOf(source: Database): Promise<SingleRows> {
  const [row] = await source.read(readSingles());
  if (row) return toSingles(row);
  throw new FlotillaError(
    "store_corrupt",
    "the table log_place or bus_secret of the source has lost its row: restore the store from a back-up",
  );
}

/** Whether the target is in use by now, and only the source doesn't say so. */
function isDone({ mark }: SchemaState, { promotion }: TargetState): boolean {
  return promotion?.state === "done" && mark?.promotionId === promotion.promotionId;
}

/** Throws if one of the stores belongs to another promotion. */
function refuseOthers(schema: SchemaState, { promotion }: TargetState, sourceId: string): void {
  const { mark } = schema;
  if (mark?.state === "moved") refuseMarked(mark);
  const isUnderWay = promotion?.state === "copying";
  if (mark && (!isUnderWay || promotion.promotionId !== mark.promotionId)) {
    throw new FlotillaError(
      "conflict",
      `the source is being moved to ${mark.other}: go on with \`flotilla promote --to\` that one, or give it up with its --undo`,
    );
  }
  if (isUnderWay && promotion.sourceId !== sourceId) {
    throw new FlotillaError(
      "conflict",
      `the target is being filled from ${promotion.source}: go on with that one, or name an empty database`,
    );
  }
}

async function sourceIdOf(source: Database, { version, known }: SchemaState): Promise<string> {
  // It has none before the step that brings the table, and no promotion of it can have begun then.
  return version < known ? "" : (await logPlaceOf(source)).clusterId;
}

/** Begins a promotion, or finds the one that has begun. */
async function beginOrGoOn(
  parts: PromoteParts,
  {
    there,
    sourceId: known,
    targetParts,
  }: { there: TargetState; sourceId: string; targetParts: TargetParts },
): Promise<{ promotionId: string; logs: number }> {
  const { source, ids, from } = parts;
  if (there.promotion?.state === "copying") {
    const { promotionId, logs } = there.promotion;
    await logsOf(parts, logs);
    return { promotionId, logs };
  }
  const sourceId = known || (await logPlaceOf(source)).clusterId;
  const given = { promotionId: ids.next(), sourceId, source: from };
  const { to: logs } = await logsOf(parts);
  await beginTarget(targetParts, { ...given, logs, createdAtMs: await createdAtMs(source) });
  return { promotionId: given.promotionId, logs };
}

/** How many logs the store has, and is to have. `begun` is what a promotion under way has begun with. */
async function logsOf(
  { source, logs, defaultLogs }: PromoteParts,
  begun?: number,
): Promise<PromotionPlan["logs"]> {
  const from = (await readLogHeads(source)).length;
  if (logs !== undefined && logs < from) {
    throw new FlotillaError(
      "invalid_option",
      `the store has ${from} logs, and --logs can only raise that: leave it out, or give ${from} or more`,
    );
  }
  if (begun !== undefined && logs !== undefined && logs !== begun) {
    throw new FlotillaError(
      "invalid_option",
      `this promotion has begun with ${begun} logs: leave --logs out, or begin anew after --undo`,
    );
  }
  if (from === 0 && logs !== undefined) {
    throw new FlotillaError(
      "invalid_option",
      "the store has no logs in the database, because it has no sessions yet or they are on NATS: leave --logs out",
    );
  }
  if (from === 0) return { from, to: 0 };
  return { from, to: begun ?? logs ?? Math.max(from, defaultLogs) };
}

/** Throws if the target isn't as empty, or as quiet, as it was before it was marked. */
async function refuseBusy(parts: PromoteParts, target: HeldTarget): Promise<void> {
  const pods = await watchPods({ ...parts, database: parts.target })();
  try {
    if (pods.length > 0) throw podsBeat("target", pods);
    await refuseFilled(parts.target, await stateOfOurs(parts.target));
  } catch (error) {
    await target.forget();
    throw error;
  }
}

/** Takes back what an earlier copy has left, if it has. */
async function emptyTarget(
  { target: database }: PromoteParts,
  {
    target,
    tables,
    holder,
  }: { target: HeldTarget; tables: readonly CopiedTable[]; holder: string },
): Promise<void> {
  const { progress } = target.promotion;
  // Rows in a target that nothing was copied to are another program's.
  if (Object.keys(progress).length === 0) return;
  // A command that finds it half empty knows by this that what is left may go, and copies it from the start.
  const emptying = withoutKeys(progress);
  for (const of of tables) {
    while ((await database.read(hasRows(of.name))).length > 0) {
      await target.save(emptying, [deleteCopied(of, deletedAtOnce, holder)]);
    }
  }
  await target.save({});
}

function withoutKeys(progress: CopyProgress): CopyProgress {
  return Object.fromEntries(Object.entries(progress).map(([name, { rows }]) => [name, { rows }]));
}

/** Throws if the source was given back to its pods while it was copied. */
async function refuseUnfenced(source: Database, promotionId: string): Promise<void> {
  const { mark } = await lookAtSource(source);
  if (mark?.promotionId === promotionId) return;
  throw new FlotillaError(
    "conflict",
    "the source was given back to its pods by an --undo while it was copied: run `flotilla promote` again to begin anew",
  );
}

/**
 * Claims the source for this target. Where another promotion has claimed it for another one since, this target is
 * open for use again, as the empty store that it is.
 */
async function claimSource(
  source: Database,
  mark: { promotionId: string; other: string },
  given: { target: HeldTarget; fence: Parameters<typeof fenceWithoutPods>[2] },
): Promise<void> {
  try {
    await fenceWithoutPods(source, mark, given.fence);
  } catch (error) {
    const found = await lookAtSource(source).catch(() => undefined);
    const isOthers = found?.mark && found.mark.promotionId !== mark.promotionId;
    if (isOthers) await given.target.forget().catch(() => {});
    throw error;
  }
}

/** Fences the source. A pod that has come up in the last moment gets it back, and is waited for again. */
async function fenceWithoutPods(
  source: Database,
  mark: { promotionId: string; other: string },
  { look, noPods }: { look: () => Promise<BeatingPods>; noPods: () => Promise<void> },
): Promise<void> {
  for (;;) {
    await fenceSource(source, mark);
    if ((await look()).length === 0) return;
    await unfenceSource(source, { ...mark, state: "moving" });
    await noPods();
  }
}

function reporting(
  phase: "copying" | "comparing",
  total: number,
  { onProgress }: PromoteParts,
): (of: CopiedTable, rows: number) => void {
  const done = new Map<CopiedTable, number>();
  return (of, rows) => {
    done.set(of, rows);
    onProgress?.({ phase, table: of.name, rows: sumOf(done.values()), total });
  };
}

/** Best effort: the server does it by itself, within a minute or so. */
async function analyze(
  database: Database,
  counts: ReadonlyMap<CopiedTable, number>,
): Promise<void> {
  for (const [{ name }, rows] of counts) {
    if (rows >= analyzedRows) await database.write([analyzeTable(name)]).catch(() => {});
  }
}

function copiedIn(progress: CopyProgress): number {
  return sumOf(Object.values(progress).map((each) => each.rows));
}

function byName(counts: ReadonlyMap<CopiedTable, number>): Record<string, number> {
  return Object.fromEntries([...counts].map(([{ name }, rows]) => [name, rows]));
}

function sumOf(numbers: Iterable<number>): number {
  let total = 0;
  for (const each of numbers) total += each;
  return total;
}
