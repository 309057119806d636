import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Database, Row } from "../store/database.ts";
import { migrate, migrationStatements, type SchemaState, stateOfOurs } from "../store/migrate.ts";
import { writeUntilKnown } from "../store/retry.ts";
import { migrations } from "../store/schema.ts";
import type { Statement } from "../store/sql.ts";
import {
  beginPromotion,
  type CopyProgress,
  findFilled,
  finishPromotion,
  forgetPromotion,
  type Copier,
  type Promotion,
  readPromotion,
  releasePromotion,
  saveCopied,
  takePromotion,
  toPromotion,
} from "./sql.ts";
import { movedTables } from "./tables.ts";

/** How long a copier that says nothing is left alone. It speaks with every batch. */
const heldForMs = 30_000;
/** How long a write is sent again while the server is away or its answer was lost. */
const retryMs = 60_000;
const retried = ["store_busy", "store_unavailable", "unknown_outcome"] as const;

export type TargetParts = {
  readonly database: Database;
  readonly clock: Clock;
  readonly random: Random;
  /** This process, and how to see that another one on this machine is gone. */
  readonly holder: Copier;
  readonly isGone: (host: string) => boolean;
};

/** The store that is filled. All that is written there requires that this process holds the promotion. */
export type HeldTarget = {
  /** With what was saved last. */
  readonly promotion: Promotion;
  /** Stores how far the copy is, with more rows. */
  save(progress: CopyProgress, rows?: readonly Statement[]): Promise<void>;
  /** Holds the promotion for longer, where nothing was stored for a while. */
  keep(progress: CopyProgress): Promise<void>;
  /** Opens it for use. */
  finish(): Promise<void>;
  /** Opens it for use as an empty store. */
  forget(): Promise<void>;
  /** Lets another process go on at once. */
  release(): Promise<void>;
};

/** What is known of a store before anything is changed there. */
export type TargetState = {
  readonly schema: SchemaState;
  /** The promotion that it was or is filled by. */
  readonly promotion: Promotion | undefined;
};

export async function lookAtTarget(database: Database): Promise<TargetState> {
  const schema = await stateOfOurs(database);
  if (schema.version > schema.known) {
    throw new FlotillaError(
      "store_newer",
      `the target has schema ${schema.version}, this release knows ${schema.known}: update flotilla, or name an empty database`,
      { details: { version: schema.version, known: schema.known } },
    );
  }
  const [row] = await orNone(database.read(readPromotion()));
  return { schema, promotion: row && toPromotion(row) };
}

/** Throws if a store holds something that a promotion would be mixed with. */
export async function refuseFilled(database: Database, { pending }: SchemaState): Promise<void> {
  // A schema of an earlier release lacks tables, so that they are looked at one by one.
  const looks = pending.length === 0 ? [movedTables] : movedTables.map((name) => [name]);
  for (const names of looks) {
    const [found] = await orNone(database.read(findFilled(names)));
    const [filled] = String(found?.["filled"] ?? "").split(" ");
    if (!filled) continue;
    throw new FlotillaError(
      "conflict",
      `the target isn't empty: its table ${filled} has rows. Name an empty database, or another schema by \`?schema=\``,
      { details: { table: filled } },
    );
  }
}

/**
 * Makes a store ready to be filled, and marks it in the transaction that makes its first tables: no pod can
 * start on it in between. Nothing happens where a promotion is under way.
 */
export async function beginTarget(
  parts: TargetParts,
  given: Parameters<typeof beginPromotion>[0],
): Promise<void> {
  const { database } = parts;
  const { version } = await stateOfOurs(database);
  if (version > 0) await migrate(database);
  const tables =
    version > 0 ? [] : migrations.flatMap((each, at) => migrationStatements(at + 1, each));
  try {
    await database.write([...tables, ...beginPromotion(given)]);
  } catch (error) {
    // An earlier send has landed, or another process was first: taking the promotion tells them apart.
    if (!(await lookAtTarget(database)).promotion) throw error;
  }
}

/** Takes a promotion that has begun. */
export async function takeTarget(parts: TargetParts, promotionId: string): Promise<HeldTarget> {
  const { database, clock, random, holder, isGone } = parts;
  const write = async (statements: readonly Statement[]): Promise<Row[][]> => {
    const options = { clock, random, limitMs: retryMs, codes: retried };
    return (await writeUntilKnown(database, statements, options)).tables;
  };
  const held = async (statements: readonly Statement[]): Promise<void> => {
    const [found] = await write(statements);
    if (found!.length === 0) throw takenOver();
  };
  const { promotion: seen } = await lookAtTarget(database);
  const gone = seen?.host && isGone(seen.host) ? seen.holder : null;
  const [taken] = await write([takePromotion(promotionId, holder, { forMs: heldForMs, gone })]);
  if (taken!.length === 0) throw isHeldBy((await lookAtTarget(database)).promotion ?? seen);
  let promotion = toPromotion(taken![0]!);
  const own = holder.holder;
  let savedMs = clock.monotonic();
  const save: HeldTarget["save"] = async (progress, rows = []) => {
    const atMs = clock.monotonic();
    await held([saveCopied(own, progress, { forMs: heldForMs }), ...rows]);
    savedMs = atMs;
    promotion = { ...promotion, progress };
  };
  return {
    get promotion() {
      return promotion;
    },
    save,
    async keep(progress) {
      if (clock.monotonic() - savedMs > heldForMs / 6) await save(progress);
    },
    finish: () => held(finishPromotion(own)),
    forget: async () => void (await write(forgetPromotion(own))),
    // If it fails, the next process waits for a while.
    release: () => database.write([releasePromotion(own)]).then(ignored, ignored),
  };
}

const ignored = () => {};

function takenOver(): FlotillaError {
  return new FlotillaError(
    "conflict",
    "another `flotilla promote` has taken this promotion over, because this one was silent for too long: let that one finish",
  );
}

function isHeldBy(promotion: Promotion | undefined): FlotillaError {
  const seconds = Math.max(1, Math.ceil((promotion?.heldMs ?? 0) / 1_000));
  return new FlotillaError(
    "conflict",
    `another \`flotilla promote\` is at work on this target: let it finish, or, if it was killed, try again in ${seconds} s`,
  );
}

/** No rows where the table isn't there yet. */
function orNone(reading: Promise<Row[]>): Promise<Row[]> {
  return reading.catch((error: unknown) => {
    if (hasCode(error, "store_outdated")) return [];
    throw error;
  });
}
