/** What must be true in the end, of all that clients were told and all that is stored. */
import { readDrift } from "../../../src/quotas/sql.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { Entry } from "../../../src/protocol/message.ts";
import type { World } from "../world.ts";
import { failing, idsUpTo } from "./agents.ts";
import type { History, Op } from "./history.ts";
import { spokenBy } from "./words.ts";
import type { SessionSeen, Witness } from "./witness.ts";

export async function judgeEnd(world: World, witness: Witness, history: History): Promise<void> {
  for (const seen of witness.sessions.values()) {
    if (seen.header.status === "deleted") judgeDeleted(world, seen);
    else judgeSession(world, seen, history);
  }
  for (const op of history.ops) judgeOp(world, witness, op);
  await judgeStore(world, witness);
  await judgeTurns(world, witness);
  await judgeReads(world, witness, history);
  await judgeCounts(world);
}

/** What quotas are held to is what is stored, in seeds whose pods count. */
async function judgeCounts({ store, violate, count }: World): Promise<void> {
  const counted = await store.database.read(sql`select tenant from ${table("tenant_count")}`);
  if (counted.length === 0) return;
  count("seed: counts of tenants");
  for (const drift of await store.database.read(readDrift(10)))
    violate("Q1", `counts differ from what is stored: ${JSON.stringify(drift)}`);
}

/** Acknowledged once, at one place, in the order in which it was acknowledged. */
function judgeOp({ violate }: World, witness: Witness, op: Op): void {
  const seen = witness.sessions.get(op.sessionId);
  if (seen?.header.status === "deleted") return;
  const stored = seen?.seqOf.get(op.id);
  const what = `${op.type} ${op.id} to ${op.sessionId}`;
  const [first] = op.seqs;
  if (first !== undefined && stored !== first)
    violate("S1", `${what}: acked at ${first}, is at ${stored}`);
  if (op.seqs.some((seq) => seq !== first)) violate("S3", `${what}: acked at ${op.seqs.join()}`);
  const isRefused = first === undefined && !op.unknown && op.refused !== undefined;
  if (isRefused && stored !== undefined) {
    violate("O2", `${what}: failed for certain (${op.refused}) and is there`);
  }
}

function judgeSession(world: World, seen: SessionSeen, history: History): void {
  const { violate } = world;
  const { sessionId, header, entries } = seen;
  if (header.work) violate("W2", `${sessionId} is at ${header.work.type} for ever`);
  if (header.pending.length > 0) violate("W2", `${sessionId}: something waits for ever`);
  const ops = history.ops.filter((op) => op.sessionId === sessionId);
  judgeOrder(world, ops, seen);
  const byId = new Map(ops.map((op) => [op.id, op]));
  for (const [id, seq] of seen.seqOf) {
    const op = byId.get(id);
    if (!op) violate("S2", `${sessionId}#${seq} was said by nobody`);
    else if (op.to !== undefined && !isCovered(seen, seq, op.to)) {
      violate("W2", `${sessionId}#${seq} was never answered by ${op.to}`);
    }
  }
  for (const entry of entries) {
    judgeFailure(world, seen, entry);
    if (entry.kind !== "summary") continue;
    const hasHeard = [...seen.turns.values()].some(({ steering }) => (steering?.heardSeq ?? 0) > 0);
    // What was heard during an answer stands in it.
    const inOrder = (ids: readonly string[]) =>
      hasHeard ? [...new Set(ids)].toSorted().join() : ids.join();
    const wanted = inOrder(idsUpTo(entries, entry.throughSeq!));
    const saw = inOrder(spokenBy(entry)?.saw ?? []);
    if (saw !== wanted) {
      violate("compaction", `${sessionId}#${entry.seq} stands for ${saw}, not ${wanted}`);
    }
  }
}

/** Of two sends, the one that was acknowledged before the other began comes first. */
function judgeOrder(
  { violate }: World,
  ops: readonly Op[],
  { seqOf, sessionId }: SessionSeen,
): void {
  for (const early of ops) {
    if (early.endedAt === undefined) continue;
    for (const late of ops) {
      const [first, second] = [seqOf.get(early.id), seqOf.get(late.id)];
      if (early.endedAt > late.beganAt || first === undefined || second === undefined) continue;
      if (first >= second) {
        violate("S4", `${sessionId}: ${late.id} came after ${early.id} and stands before it`);
      }
    }
  }
}

/** An answer of that agent, or what says that there is none, stands behind it and was made for it. */
function isCovered({ entries, turns }: SessionSeen, seq: number, agent: string): boolean {
  return entries.some((entry) => {
    if (entry.seq <= seq || entry.role !== "assistant" || entry.author !== agent) return false;
    const turn = entry.epoch === undefined ? undefined : turns.get(entry.epoch);
    // One that still waited for more to be said may have been given more in the record that ended it.
    const upToSeq = Math.max(turn?.upToSeq ?? 0, turn?.steering?.heardSeq ?? 0);
    return !turn || turn.attempt === 0 || upToSeq >= seq;
  });
}

/** Nothing fails that has no reason to. */
function judgeFailure({ violate }: World, { sessionId }: SessionSeen, entry: Entry): void {
  if (entry.outcome !== "failed" && entry.outcome !== "cut") return;
  const { code, message } = entry.error ?? {};
  if (failing.includes(entry.author) || code === "runner_lost") return;
  violate("failed", `${sessionId}#${entry.seq} by ${entry.author}: ${code}: ${message}`);
}

function judgeDeleted({ violate }: World, { sessionId, entries, header }: SessionSeen): void {
  if (entries.length > 0 || header.work) violate("S12", `${sessionId} was deleted and goes on`);
}

/** What was witnessed is what is there. */
async function judgeStore({ violate, store }: World, witness: Witness): Promise<void> {
  const rows = await store.database.read(
    sql`select session_id, count(*) as entries, max(seq) as last from ${table("message")}
      group by session_id`,
  );
  const found = new Map(rows.map((row) => [row["session_id"] as string, row]));
  for (const { sessionId, entries } of witness.sessions.values()) {
    const row = found.get(sessionId);
    const [count, last] = [Number(row?.["entries"] ?? 0), Number(row?.["last"] ?? 0)];
    if (count !== entries.length || last !== entries.length) {
      violate("S2", `${sessionId} has ${count} rows up to ${last}, of ${entries.length}`);
    }
  }
}

/** Every attempt that began has a row that says how it ended, and the last of a turn ended as its answer. */
async function judgeTurns({ violate, store, count }: World, witness: Witness): Promise<void> {
  const rows = await store.database.read(
    sql`select session_id, epoch, attempt, outcome from ${table("turn")}
      order by session_id, epoch, attempt`,
  );
  const outcomes = new Map<string, Map<number, string[]>>();
  for (const row of rows) {
    const sessionId = row["session_id"] as string;
    const byEpoch = outcomes.get(sessionId) ?? new Map<number, string[]>();
    outcomes.set(sessionId, byEpoch);
    const ended = byEpoch.get(Number(row["epoch"])) ?? [];
    byEpoch.set(Number(row["epoch"]), ended);
    const what = `${sessionId}, turn ${row["epoch"]}.${row["attempt"]}`;
    if (ended.push(row["outcome"]) !== Number(row["attempt"])) violate("W7", `${what} has a gap`);
    count(`turn: ${row["outcome"]}`);
  }
  for (const seen of witness.sessions.values()) {
    const { sessionId, header, entries, turns } = seen;
    const byEpoch = outcomes.get(sessionId) ?? new Map<number, string[]>();
    if (header.status === "deleted") {
      if (byEpoch.size > 0) violate("W7", `${sessionId} was deleted and has turns`);
      continue;
    }
    for (const [epoch, ended] of byEpoch) {
      const followed = ended.slice(0, -1);
      const isOver = !["lost", "released"].includes(ended.at(-1)!);
      if (!isOver || followed.some((each) => each !== "lost" && each !== "released")) {
        violate("W7", `${sessionId}, turn ${epoch}: ${ended.join()}`);
      }
      const answer = entries.find((entry) => entry.epoch === epoch && entry.outcome !== undefined);
      if ((answer?.outcome ?? "dropped") !== ended.at(-1)) {
        violate(
          "W7",
          `${sessionId}, turn ${epoch} is ${ended.at(-1)}, its answer ${answer?.outcome}`,
        );
      }
    }
    for (const [epoch, { attempt }] of turns) {
      const known = byEpoch.get(epoch)?.length ?? 0;
      if (known < attempt) violate("W7", `${sessionId}, turn ${epoch}: ${known} of ${attempt}`);
    }
  }
}

async function judgeReads(world: World, witness: Witness, { reads }: History): Promise<void> {
  const rows = await world.store.database.read(
    sql`select session_id, user_id, read_seq from ${table("session_user")}`,
  );
  for (const row of rows) {
    const sessionId = row["session_id"] as string;
    if (witness.sessions.get(sessionId)?.header.status === "deleted") continue;
    const theirs = reads.filter(
      (read) => read.sessionId === sessionId && read.user === row["user_id"],
    );
    const is = Number(row["read_seq"]);
    const acked = Math.max(0, ...theirs.filter((read) => read.acked).map(({ seq }) => seq));
    if (is < acked) world.violate("reads", `${sessionId}: ${acked} was read, ${is} is there`);
    if (is > 0 && !theirs.some(({ seq }) => seq === is)) {
      world.violate("reads", `${sessionId}: nobody has read ${is}`);
    }
  }
}
