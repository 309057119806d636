import { type Clock, sleep } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { livePodAges } from "../pods/pods.ts";
import type { Database } from "../store/database.ts";
import { refuseNewer, type SchemaState, stateOfOurs } from "../store/migrate.ts";
import {
  isMarked,
  isUnmarked,
  markStore,
  type PromotionMark,
  unmarkStore,
} from "../store/promotion-mark.ts";
import { fenceTables, unfenceTables } from "../store/sqlite/fence.ts";
import { countRows, findUnstorable } from "./sql.ts";
import { type CopiedTable, fencedTables, type RowKey } from "./tables.ts";

/** A pod whose last heartbeat is older than this is gone: `heartbeatMs` of a config is a minute at most. */
const silentMs = 65_000;
const lookMs = 1_000;
const maxPodsNamed = 5;
const maxKeyChars = 200;

export async function lookAtSource(database: Database): Promise<SchemaState> {
  const state = await stateOfOurs(database);
  if (state.version === 0) {
    throw new FlotillaError(
      "store_missing",
      "the source has no tables of Flotilla, so there is nothing to move: start with the target at once",
    );
  }
  refuseNewer(state);
  return state;
}

/** The pods that beat on a store. */
export type BeatingPods = readonly string[];

type PodsParts = {
  readonly database: Database;
  readonly clock: Clock;
  readonly isGone: (host: string) => boolean;
};

/**
 * Looks which pods beat, again and again. At first by how old their last heartbeats are, then by whether
 * they move: the machine's clock may have been set back.
 */
export function watchPods({ database, clock, isGone }: PodsParts): () => Promise<BeatingPods> {
  const seen = new Map<string, { beat: number; movedMs: number }>();
  return async () => {
    const atMs = clock.monotonic();
    const pods = await livePodAges(database);
    return pods.flatMap(({ podId, beat, ageMs, host }) => {
      const known = seen.get(podId);
      const movedMs = known?.beat === beat ? known.movedMs : atMs;
      seen.set(podId, { beat, movedMs });
      const isSilent = ageMs >= silentMs || atMs - movedMs >= silentMs;
      return isSilent || (host !== null && isGone(host)) ? [] : [podId];
    });
  };
}

/** Waits until no pod beats, or throws at once. */
export async function untilNoPods(
  look: () => Promise<BeatingPods>,
  {
    clock,
    wait,
    onWaiting,
  }: { clock: Clock; wait: boolean; onWaiting: (pods: BeatingPods) => void },
): Promise<void> {
  for (;;) {
    const pods = await look();
    if (pods.length === 0) return;
    if (!wait) throw podsBeat("source", pods);
    onWaiting(pods);
    await sleep(clock, lookMs);
  }
}

export function podsBeat(where: "source" | "target", pods: BeatingPods): FlotillaError {
  const named = pods.slice(0, maxPodsNamed).join(", ") + (pods.length > maxPodsNamed ? ", …" : "");
  const advice = where === "source" ? ", or give --wait to wait until they have stopped" : "";
  return new FlotillaError(
    "conflict",
    `pods are up on the ${where} (${named}): stop them${advice}; one that was killed counts as up for ${silentMs / 1_000} s`,
    { details: { pods: pods.length } },
  );
}

/** Has the source refuse every start and every write, unless another promotion has done so. */
export async function fenceSource(
  database: Database,
  mark: Omit<PromotionMark, "state">,
): Promise<void> {
  const moving = { ...mark, state: "moving" } as const;
  await database.write([...fenceTables(fencedTables), markStore(moving, isUnmarked)]);
  const { mark: found } = await lookAtSource(database);
  if (found?.promotionId !== mark.promotionId || found.state !== "moving") throw takenMeanwhile();
}

/**
 * Has the source say where its data went, for good, unless another promotion has claimed it. One that an --undo
 * has given back meanwhile is fenced again, because the target is in use by now.
 */
export async function closeSource(
  database: Database,
  mark: Omit<PromotionMark, "state">,
): Promise<void> {
  const { mark: found } = await lookAtSource(database);
  const moved = { ...mark, state: "moved" } as const;
  if (!found) await database.write([...fenceTables(fencedTables), markStore(moved, isUnmarked)]);
  else if (found.promotionId === mark.promotionId) {
    await database.write([markStore(moved, isMarked(found))]);
  }
  const { mark: left } = await lookAtSource(database);
  if (left?.promotionId !== mark.promotionId || left.state !== "moved") throw takenMeanwhile();
}

/**
 * Gives the source back to its pods, if this is still its mark: a command that was paused before this may find that it
 * has been moved for good.
 */
export async function unfenceSource(database: Database, mark: PromotionMark): Promise<void> {
  await database.write([...unfenceTables(fencedTables), unmarkStore(mark)]);
  if ((await lookAtSource(database)).mark === undefined) return;
  await database.write(fenceTables(fencedTables));
  throw takenMeanwhile();
}

function takenMeanwhile(): FlotillaError {
  return new FlotillaError(
    "conflict",
    "another `flotilla promote` has gone on with this source meanwhile: `flotilla doctor` says where its data is",
  );
}

/** Throws if a row can't be stored in Postgres, before anything is changed. */
export async function refuseUnstorable(
  database: Database,
  tables: readonly CopiedTable[],
): Promise<void> {
  for (const of of tables) {
    const [row] = await database.read(findUnstorable(of));
    if (!row) continue;
    const key = of.key.map(({ name }) => row[name] as string);
    throw unstorable(
      of,
      key,
      `its column ${row["faulty"]} has a NUL, bytes, or no number that fits`,
    );
  }
}

/** Names a row that the target doesn't take, and nothing of what is in it. */
export function unstorable(of: CopiedTable, key: RowKey, why: string): FlotillaError {
  const named = JSON.stringify(key).slice(0, maxKeyChars);
  return new FlotillaError(
    "payload_not_storable",
    `Postgres can't hold a row of the table ${of.name}, with the key ${named}: ${why}. Change or delete it in the source (after --undo, where the copy has begun), and run \`flotilla promote\` again`,
    { details: { table: of.name, key: named } },
  );
}

/** How many rows of each table there are. */
export async function countTables(
  database: Database,
  tables: readonly CopiedTable[],
): Promise<ReadonlyMap<CopiedTable, number>> {
  const counts = new Map<CopiedTable, number>();
  for (const of of tables) {
    const [row] = await database.read(countRows(of.name));
    counts.set(of, Number(row!["count"]));
  }
  return counts;
}
