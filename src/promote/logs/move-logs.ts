import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { createFlusher, type Flusher } from "../../sessions/log/archive/flusher.ts";
import { findBroken } from "../../sessions/log/archive/rebase.ts";
import { createServedLog, type ServedLog } from "../../sessions/log/archive/served-log.ts";
import { createStoredIds } from "../../sessions/log/archive/stored-ids.ts";
import { retryDelayMs } from "../../sessions/log/call-deadline.ts";
import type { StreamLog } from "../../sessions/log/jetstream/log.ts";
import { mayNotOf } from "../../sessions/log/jetstream/requirements.ts";
import { firstChain, toBody } from "../../sessions/log/jetstream/message.ts";
import type { LogLife } from "../../sessions/log/jetstream/streams.ts";
import type { Head } from "../../sessions/log/journal.ts";
import {
  busySessions,
  leaveDatabase,
  logPlaceOf,
  moveToLife,
  returnToDatabase,
  type Watermark,
} from "../../sessions/log/place.ts";
import { createSqlJournal, readLogHeads } from "../../sessions/log/sql-journal.ts";
import type { Database } from "../../store/database.ts";
import { callUntilAnswered, writeUntilKnown } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import type { Header } from "../../sessions/conversation/header.ts";
import {
  type AskPodsParts,
  beatingPods,
  haveAllLeft,
  leaveMs,
  ownersOf,
  refusePods,
} from "./ask-pods.ts";
import {
  begins,
  decideMove,
  isHeldBy,
  type MoveFacts,
  type MoveStep,
  takenOver,
} from "./decide-move.ts";
import {
  beginMove,
  finishMove,
  isMoveHeld,
  keepMove,
  type LogMove,
  type MoveTarget,
  readMove,
  releaseMove,
  takeMove,
  toMove,
} from "./sql.ts";
import type { BeatingPods } from "../source.ts";

/**
 * Moves the logs of sessions from the database to streams, or back, while pods run. Each step finds what
 * earlier ones have left, so that a promotion which was killed anywhere goes on when it is started again:
 *
 * - to streams: they are made, and pods open them; one transaction moves the place, which fences every pod,
 *   and says that the database has all before the streams; each stream gets a mark with the sessions that
 *   have work under way; then the streams are `live`, and pods take them
 * - back: the streams are `closed`, and get a last message each, behind which nothing is stored; what the
 *   database lacks is archived; one transaction moves the place, and pods take the logs there
 *
 * In between no pod serves them, and what is asked of sessions waits.
 */
export type MoveLogsParts = AskPodsParts & {
  readonly database: Database;
  readonly stream: StreamLog;
  readonly clusterId: string;
  readonly to: MoveTarget;
  readonly clock: Clock;
  readonly random: Random;
  readonly ids: Ids;
  readonly log: Logger;
  readonly host: string | null;
  /** How many logs a store gets that has none yet. */
  readonly logs: number;
  readonly onProgress?: (progress: MoveProgress) => void;
};

export type MoveProgress = { readonly step: MoveStep | "move" };

export type MovedLogs = {
  readonly to: MoveTarget;
  readonly logs: number;
  /** True if an earlier call had finished, and there was nothing left to do. */
  readonly already: boolean;
};

export type MovePlan = {
  readonly to: MoveTarget;
  /** What would be done first. */
  readonly step: MoveStep;
  readonly logs: number;
  /** The pods that follow while they run. */
  readonly pods: BeatingPods;
};

/** How far behind its head a log begins on streams: more than it gets while they are made. */
const room = 1_000_000_000;
const termRoom = 100;
const heldForMs = 30_000;
const retryMs = 30_000;
const retried = ["store_busy", "store_unavailable", "unknown_outcome"] as const;
const keepMs = heldForMs / 3;
const maxRounds = 20;
/** Logs whose rest is archived at the same time, and what the records of each take in memory. */
const logsAtOnce = 4;
const maxHeldBytes = 8 * 1_024 * 1_024;
/** A first mark takes no more than this part of a message: sessions go on until the place is moved. */
const markShare = 0.5;
const lookMs = 100;

/** What `moveLogs` would do. Changes nothing. */
export async function planMove(parts: MoveLogsParts): Promise<MovePlan> {
  const { to, database, stream } = parts;
  const facts = await factsOf(parts);
  const step = decideMove(to, facts);
  const heads = await looked(parts, () =>
    facts.place === "sql" ? readLogHeads(database) : stream.heads(),
  );
  const logs = heads.length || parts.logs;
  if (step === "prepare") await refuseCrowded(heads, parts);
  const isOver = step === "already" || step === "finish";
  const following = () => (begins(step) ? askPods(parts, "ask") : beatingPods(parts));
  const pods = isOver ? [] : await following();
  if (step === "close") await refuseBroken(parts);
  return { to, step, logs, pods };
}

export async function moveLogs(parts: MoveLogsParts): Promise<MovedLogs> {
  const { to } = parts;
  const first = decideMove(to, await factsOf(parts));
  if (first === "already") return { to, logs: await countLogs(parts), already: true };
  if (begins(first)) await askPods(parts, "ask");
  const held = await hold(parts);
  /** Who had logs when this process closed them; undefined if an earlier one has. */
  let owners: BeatingPods | undefined;
  try {
    const already = first === "finish";
    for (let round = 1; round <= maxRounds; round++) {
      const step = decideMove(to, await factsOf(parts));
      parts.onProgress?.({ step });
      if (step === "finish" || step === "already") {
        await held.finish();
        return { to, logs: await countLogs(parts), already };
      }
      await held.keep();
      if (step === "prepare") await prepare(parts, held);
      if (step === "open") await open(parts, held);
      if (step === "close") owners = await close(parts, held);
      if (step === "empty") await empty(parts, held, owners);
    }
    throw new FlotillaError("unavailable", "the logs don't come to rest: try again");
  } finally {
    await held.release();
  }
}

/** The promotion, while this process holds it. */
type Held = {
  readonly holder: string;
  readonly lives: readonly LogLife[];
  keep(lives?: readonly LogLife[]): Promise<void>;
  finish(): Promise<void>;
  release(): Promise<void>;
};

async function hold(parts: MoveLogsParts): Promise<Held> {
  const { database, clusterId, to, clock, ids, host, isGone, logs } = parts;
  await write(parts, [beginMove({ moveId: ids.next(), clusterId, to, logs })]);
  const seen = await moveOf(database);
  const gone = seen?.host && isGone(seen.host) ? seen.holder : null;
  const holder = ids.next();
  const [taken] = await write(parts, [takeMove({ holder, host }, { forMs: heldForMs, gone })]);
  if (taken!.length === 0) throw isHeldBy(await moveOf(database));
  let move = toMove(taken![0]!);
  const keep: Held["keep"] = async (lives) => {
    const more = lives ? { lives } : {};
    const [kept] = await write(parts, [keepMove(holder, { forMs: heldForMs, ...more })]);
    if (kept!.length === 0) throw takenOver();
    if (lives) move = { ...move, lives };
  };
  // A step may take as long as an election of servers.
  let cancel = () => {};
  let isReleased = false;
  const keepOn = (): void => {
    // What was being stored at the release would set a timer that nothing cancels.
    if (!isReleased) cancel = clock.after(keepMs, () => void keep().then(keepOn, keepOn));
  };
  keepOn();
  return {
    holder,
    get lives() {
      return move.lives;
    },
    keep,
    finish: async () => void (await write(parts, [finishMove(holder)])),
    async release() {
      isReleased = true;
      cancel();
      // If it fails, the next process waits for a while.
      await database.write([releaseMove(holder)]).catch(() => {});
    },
  };
}

/** Makes the streams, has pods open them, and moves the place. */
async function prepare(parts: MoveLogsParts, held: Held): Promise<void> {
  const { database, stream, ids } = parts;
  let heads = await readLogHeads(database);
  if (heads.length === 0) {
    await createSqlJournal(parts).create(parts.logs);
    heads = await readLogHeads(database);
  }
  await refuseCrowded(heads, parts);
  const fits = held.lives.length === heads.length && heads.every(isBefore(held.lives));
  const lives = fits ? held.lives : heads.map((head) => drawLife(head, ids));
  if (!fits) await held.keep(lives);
  await stream.streams.prepare(lives);
  await askPods(parts, "prepare");
  await refuseCrowded(heads, parts);
  parts.onProgress?.({ step: "move" });
  const moved = lives.map(({ logId, incarnation, firstSequence, term = 0 }) => ({
    logId,
    incarnation,
    term,
    offset: firstSequence - 1,
    chain: firstChain(incarnation),
  }));
  await write(parts, leaveDatabase(moved, isMoveHeld(held.holder)));
}

const isBefore =
  (lives: readonly LogLife[]) =>
  ({ logId, incarnation, offset, term }: Head): boolean => {
    const life = lives[logId];
    const isOf = life?.logId === logId && life.incarnation === incarnation;
    return isOf && offset < life.firstSequence && term <= (life.term ?? 0);
  };

/** Under the incarnation that clients know, in a stream of its own, with no offset or term that was used. */
function drawLife({ logId, incarnation, offset, term }: Head, ids: Ids): LogLife {
  const firstSequence = offset + room + 1;
  return { logId, incarnation, firstSequence, stream: ids.next(), term: term + termRoom };
}

/** Lets pods take the streams, once none answers any more from what it had in memory. */
async function open(parts: MoveLogsParts, held: Held): Promise<void> {
  const { stream } = parts;
  const left = untilLeft(parts, "sql", []);
  const lives = await looked(parts, () => stream.streams.lives({ isFresh: true }));
  await Promise.all([left, ...lives.map((life) => markFirst(life, held, parts))]);
  await stream.streams.turn("live", () => held.keep());
}

/** Stores behind which sessions have work under way, so that the pod that takes the log goes on with it. */
function markFirst(life: LogLife, held: Held, parts: MoveLogsParts): Promise<void> {
  const { holder } = held;
  const { database, stream, ids, host } = parts;
  const { logId, incarnation, firstSequence } = life;
  return untilAnswered(parts, async () => {
    const head = (await stream.heads())[logId]!;
    // An earlier run has stored it: no pod does before they are live.
    if (head.owner === null && head.offset >= firstSequence) return true;
    // Once another process has finished the move, the log is a pod's. That was after this look at it.
    await held.keep();
    const owner = { podId: holder, host, recordId: ids.next() };
    const taken = await stream.take(head, owner);
    if (!taken) return false;
    await stream.recover(taken);
    const busy = await busySessions(database, logId);
    const chain = firstChain(incarnation);
    // One that was paused here, while another has finished the move, would set the mark back. Who takes the log
    // from now on fences this mark.
    await held.keep();
    const mark = { archived: firstSequence - 1, chain, busy };
    const marked = await stream.mark(taken, mark).catch((error: unknown) => {
      // Servers that take larger messages are seen when the promotion is started again.
      throw hasCode(error, "payload_too_large") ? isCrowded(logId, busy, 1) : error;
    });
    if (marked.type !== "committed") return false;
    await stream.release(holder, [marked.head]);
    return true;
  });
}

async function close(parts: MoveLogsParts, held: Held): Promise<BeatingPods> {
  await refuseBroken(parts);
  const owners = await looked(parts, () => ownersOf(parts));
  await parts.stream.streams.turn("closed", () => held.keep());
  return owners;
}

/** Ends every log, archives what the database lacks of it, and moves the place. */
async function empty(
  parts: MoveLogsParts,
  held: Held,
  owners: BeatingPods | undefined,
): Promise<void> {
  const { stream } = parts;
  const { holder } = held;
  const lives = await looked(parts, () => stream.streams.lives({ isFresh: true }));
  // Pods may have taken logs since, until they were closed.
  const all = owners && [...owners, ...(await looked(parts, () => ownersOf(parts)))];
  const closed = await Promise.all(lives.map(({ logId }) => closeLog(logId, held, parts)));
  const [moved] = await Promise.all([archiveAll(closed, parts), untilLeft(parts, "nats", all)]);
  parts.onProgress?.({ step: "move" });
  await write(parts, returnToDatabase(moved, isMoveHeld(holder)));
}

async function closeLog(logId: number, held: Held, parts: MoveLogsParts): Promise<Head> {
  const { stream, ids, host } = parts;
  let closed: Head | undefined;
  await untilAnswered(parts, async () => {
    const head = (await stream.heads())[logId]!;
    await held.keep();
    closed = await stream.close(head, { podId: held.holder, host, recordId: ids.next() });
    return closed !== undefined;
  });
  return closed!;
}

type Archived = Head & { readonly archived: number };

/** Archives what the database lacks of closed logs, a few of them at a time. */
async function archiveAll(closed: readonly Head[], parts: MoveLogsParts): Promise<Archived[]> {
  const flusher = createFlusher(parts);
  const archived: Archived[] = [];
  for (let at = 0; at < closed.length; at += logsAtOnce) {
    const some = closed.slice(at, at + logsAtOnce);
    archived.push(...(await Promise.all(some.map((head) => archiveRest(head, flusher, parts)))));
  }
  return archived;
}

async function archiveRest(head: Head, flusher: Flusher, parts: MoveLogsParts): Promise<Archived> {
  const [takenMs, storedIds] = [parts.clock.monotonic(), createStoredIds(parts)];
  const own = { ...parts, head, takenMs, storedIds, maxHeldBytes };
  let served: ServedLog | undefined;
  await untilAnswered(parts, async () => {
    served ??= await createServedLog(own);
    if (!served.watermark) await flusher.begin(served);
    return true;
  });
  const { ahead } = served!;
  if (ahead) return goOnBehind(ahead, head, parts);
  if (served!.refusal !== undefined) throw new FlotillaError("conflict", served!.refusal);
  while (served!.unarchived.records > 0) {
    await untilAnswered(parts, async () => {
      await flusher.flush(served!);
      return true;
    });
  }
  return { ...head, archived: served!.watermark!.offset };
}

/** Servers have lost what the database has of a log, so that it goes on behind that, as its owner would have it. */
async function goOnBehind(ahead: Watermark, head: Head, parts: MoveLogsParts): Promise<Archived> {
  const { logId, incarnation } = head;
  const { offset } = ahead;
  await write(parts, [moveToLife(ahead, { ...ahead, incarnation })]);
  parts.log.error({ log: logId, through: offset }, "servers have lost messages of a session log");
  return { ...head, offset: Math.max(head.offset, offset), archived: offset };
}

/**
 * Waits until no pod answers any more from what it has of the old place. Without `owners` it isn't known who has
 * something of it.
 */
async function untilLeft(
  parts: MoveLogsParts,
  from: "sql" | "nats",
  owners: BeatingPods | undefined,
): Promise<void> {
  const { clock } = parts;
  const beganMs = clock.monotonic();
  for (;;) {
    const said = await haveAllLeft(parts, from, owners ?? []);
    const waitedMs = clock.monotonic() - beganMs;
    if (said.type === "left" && owners) return;
    if (said.type === "keeps" && waitedMs >= retryMs) throw keepsMessages(said.podId);
    if (said.type !== "keeps" && waitedMs >= leaveMs) return;
    await sleep(clock, lookMs);
  }
}

/** Repeats what servers don't answer, or what another pod has come before. */
function untilAnswered(
  { clock, random }: MoveLogsParts,
  act: () => Promise<boolean>,
): Promise<void> {
  const once = async (): Promise<void> => {
    if (!(await act())) throw new FlotillaError("store_busy", "pods take the logs again and again");
  };
  return callUntilAnswered(once, {
    clock,
    random,
    codes: [...storeAwayCodes, "unknown_outcome", "not_owner"],
    limitMs: retryMs,
    waitMs: (tries) => (tries < 100 ? Math.min(5 * tries, 50) : retryDelayMs(tries, random)),
  });
}

async function write(parts: MoveLogsParts, statements: readonly Statement[]) {
  const { database, clock, random } = parts;
  const options = { clock, random, limitMs: retryMs, codes: retried };
  return (await writeUntilKnown(database, statements, options)).tables;
}

function factsOf(parts: MoveLogsParts): Promise<MoveFacts> {
  const { database, stream } = parts;
  return looked(parts, async () => {
    const [{ place }, meta, move] = await Promise.all([
      logPlaceOf(database),
      stream.streams.state(),
      moveOf(database),
    ]);
    return { place, meta, move };
  });
}

/** Throws if a pod that is up can't follow. Returns those that do. */
function askPods(parts: MoveLogsParts, step: "ask" | "prepare"): Promise<BeatingPods> {
  return looked(parts, () => refusePods(parts, { step, from: otherOf(parts.to) }));
}

/** Looks again where servers don't answer, for as long as an election of theirs may take. */
function looked<Found>(parts: MoveLogsParts, look: () => Promise<Found>): Promise<Found> {
  const { clock, random } = parts;
  return callUntilAnswered(look, {
    clock,
    random,
    mayRetry: (error) => hasCode(error, ...storeAwayCodes) && mayNotOf(error) === undefined,
    limitMs: retryMs,
    waitMs: (tries) => retryDelayMs(tries, random),
  });
}

/** The last promotion of a store's logs, if there was one. */
export async function moveOf(database: Pick<Database, "read">): Promise<LogMove | undefined> {
  const [row] = await database.read(readMove());
  return row && toMove(row);
}

async function countLogs(parts: MoveLogsParts): Promise<number> {
  const { to, database, stream } = parts;
  const logs = async () => (to === "sql" ? readLogHeads(database) : stream.streams.lives());
  return (await looked<readonly unknown[]>(parts, logs)).length;
}

/** Sessions that are at work have to fit into the first message of their log on streams. */
async function refuseCrowded(heads: readonly Head[], parts: MoveLogsParts): Promise<void> {
  const { database, stream } = parts;
  for (const { logId } of heads) {
    const busy = await busySessions(database, logId);
    const isTooMuch = toBody({ busy }).length > stream.maxRecordBytes * markShare;
    if (isTooMuch) throw isCrowded(logId, busy, markShare);
  }
}

/** A log that can't be served can't be emptied either. */
async function refuseBroken(parts: MoveLogsParts): Promise<void> {
  const { stream, database, clock, random, ids, host } = parts;
  const owner = { podId: ids.next(), host };
  const own = { stream, database, clock, random, ids, owner };
  const [broken] = await looked(parts, () => findBroken(own));
  if (!broken) return;
  throw new FlotillaError(
    "conflict",
    `log ${broken.logId} can't be served, because the database lacks a part of it: restore a back-up that has it, or run \`flotilla cluster rebase\`, before the logs are moved`,
  );
}

function otherOf(to: MoveTarget): "sql" | "nats" {
  return to === "nats" ? "sql" : "nats";
}

function isCrowded(logId: number, busy: readonly Header[], share: number): FlotillaError {
  const bytes = Math.ceil(toBody({ busy }).length / share);
  return new FlotillaError(
    "conflict",
    `${busy.length} sessions of log ${logId} are at work, and their state needs messages of ${bytes} bytes: raise max_payload of the NATS servers, or wait until fewer are at work, and start this again`,
    { details: { log: logId, sessions: busy.length, bytes } },
  );
}

function keepsMessages(podId: string): FlotillaError {
  return new FlotillaError(
    "conflict",
    `the pod ${podId} has messages of logs that servers have lost and the database hasn't got yet: look whether it reaches the database, and start this again`,
    { details: { pod: podId } },
  );
}
