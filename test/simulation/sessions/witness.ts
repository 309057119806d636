/**
 * Looks at every commit in the moment in which it is made, and knows from then on what is stored. The
 * promises of logs and of turns that can be told from one commit and the last are judged here.
 */
import { FlotillaError } from "../../../src/base/errors.ts";
import type { Entry } from "../../../src/protocol/message.ts";
import { logOf } from "../../../src/sessions/log/placement.ts";
import type { Header, Turn } from "../../../src/sessions/conversation/header.ts";
import type { Head } from "../../../src/sessions/log/journal.ts";
import { nothingSeen } from "../fences.ts";
import type { Watcher } from "../link.ts";
import type { World } from "../world.ts";
import { type Noted, saidOf } from "./audit.ts";
import { users } from "./clients.ts";
import { countFences } from "./fences.ts";
import type { Ledger } from "./ledger.ts";
import { exactly, spokenBy } from "./words.ts";

/** A session as it is stored right now, with all that was ever under way in it. */
export type SessionSeen = {
  readonly sessionId: string;
  header: Header;
  offset: number;
  readonly entries: Entry[];
  readonly seqOf: Map<string, number>;
  readonly turns: Map<number, Turn>;
  readonly compactions: Map<number, { readonly toSeq: number; readonly failures: number }>;
};

export type Witness = Watcher & {
  readonly heads: ReadonlyMap<number, Head>;
  /** The head of a session's log. */
  headOf(sessionId: string): Head | undefined;
  readonly sessions: ReadonlyMap<string, SessionSeen>;
  /** The very text of an entry, for comparing. */
  textOf(sessionId: string, seq: number): string | undefined;
};

export type WitnessOptions = {
  /** Nothing is wrong but envelopes, so that no runner is ever given up. */
  isCalm: boolean;
  ledger: Ledger;
  onSession: (seen: SessionSeen, noted: Extract<Noted, { what: "session" }>) => void;
};

export async function createWitness(world: World, options: WitnessOptions): Promise<Witness> {
  const { store, violate, count } = world;
  const heads = new Map<number, Head>();
  const sessions = new Map<string, SessionSeen>();
  /** The pods that have ever owned each log. */
  const owners = new Map<number, Set<string>>();
  let who = "";

  const judgeHead = (before: Head | undefined, after: Head | undefined): void => {
    if (!after) return violate("O1", `${who} has deleted a head`);
    heads.set(after.logId, after);
    if (!before) return;
    const what = `log ${after.logId}, ${who}: ${shown(before)} to ${shown(after)}`;
    const moved = after.offset - before.offset;
    if (after.term < before.term) violate("O1", `${what}: the term falls`);
    if (moved !== 0 && moved !== 1) violate("O1", `${what}: the offset jumps`);
    if ((moved === 0) !== (before.recordId === after.recordId)) {
      violate("O1", `${what}: not one record`);
    }
    if (moved === 1 && after.owner !== who) violate("O1", `${what}: not the owner's record`);
    const isTaken = after.term > before.term;
    if (isTaken) {
      if (after.term !== before.term + 1 || moved !== 1) violate("O1", `${what}: a strange take`);
      const from = before.owner === null ? "free" : before.owner === who ? "own" : "another's";
      count(`log: taken, ${from}`);
      const had = owners.get(after.logId) ?? new Set();
      if (from !== "own" && had.has(who)) count("log: taken back");
      owners.set(after.logId, had.add(who));
    } else if (after.owner !== before.owner) {
      if (after.owner !== null || before.owner !== who || moved !== 0) {
        violate("O1", `${what}: the owner changes without a term`);
      }
      count("log: released");
    }
  };

  const judgeEntry = (noted: Extract<Noted, { what: "entry" }>, moved: ReadonlySet<number>) => {
    const { before, after } = noted;
    if (before && after) return violate("S2", `${who} has changed ${nameOf(before)}`);
    if (!after) return;
    const { sessionId, clientId, entry } = after;
    const seen = sessions.get(sessionId);
    const name = nameOf(after);
    if (!moved.has(logOf(sessionId, Math.max(1, heads.size))))
      violate("O1", `${who} has stored ${name} without a record of its log`);
    const expected = (seen?.entries.length ?? 0) + 1;
    if (entry.seq !== expected) violate("S2", `${name} comes where ${expected} should`);
    if (!seen) return violate("S12", `${name} is of a session that there isn't`);
    if (clientId !== null && seen.seqOf.has(clientId)) violate("S3", `${name} is stored twice`);
    if (entry.kind === "message" && entry.role === "user") {
      if (seen.entries.some(({ messageId }) => messageId === entry.messageId)) {
        violate("S3", `${name} is stored twice, as ${entry.messageId}`);
      }
    }
    if (entry.epoch !== undefined) judgeAnswer(seen, entry);
    if (entry.kind === "stop") judgeStop(seen, entry);
    seen.entries.push(entry);
    if (clientId !== null) seen.seqOf.set(clientId, entry.seq);
  };

  const judgeStep = (
    { before, after }: Extract<Noted, { what: "step" }>,
    all: readonly Noted[],
    moved: ReadonlySet<number>,
  ) => {
    const { sessionId, epoch } = (after ?? before)!;
    if (!moved.has(logOf(sessionId, Math.max(1, heads.size))))
      violate("O1", `${who} has stored steps of ${sessionId} without a record of its log`);
    const { header } = sessions.get(sessionId)!;
    if (after) return options.ledger.stored(after, before, header);
    const stored = all.flatMap((each) =>
      each.what === "step" && each.after?.sessionId === sessionId && each.after.epoch === epoch
        ? [each.after]
        : [],
    );
    const next = all.find(
      (each) => each.what === "session" && each.after?.sessionId === sessionId,
    ) as Extract<Noted, { what: "session" }> | undefined;
    const { work } = next?.after?.header ?? header;
    options.ledger.deleted(before!, { stored, isOver: work?.epoch !== epoch });
  };

  /** A turn that is under way and isn't being stopped yet is stopped, once. */
  const judgeStop = (seen: SessionSeen, entry: Entry): void => {
    const { work, epoch: last } = seen.header;
    const { epoch = 0 } = entry.stop ?? {};
    const what = `${seen.sessionId}#${entry.seq} stops ${epoch}`;
    const isUnderWay = work?.type === "turn" && work.epoch === epoch && !work.stopping;
    // One that began in the same record can't be seen before it.
    if (!isUnderWay && epoch <= last) {
      violate("W1", `${what} where ${work?.type} ${work?.epoch} is under way`);
    }
    if (seen.entries.some(({ stop }) => stop?.epoch === epoch)) violate("W1", `${what} again`);
    if (users.every((user) => user !== entry.author)) violate("S2", `${what} by ${entry.author}`);
    count("stop: noted");
  };

  /** Only what is under way stores anything, and only the attempt that is. */
  const judgeAnswer = (seen: SessionSeen, entry: Entry): void => {
    const { work, epoch } = seen.header;
    const what = `${seen.sessionId}#${entry.seq} of epoch ${entry.epoch}`;
    const isNew = entry.epoch! > epoch;
    if (!isNew && work?.epoch !== entry.epoch) {
      violate("W1", `${what} is stored in ${epoch}, ${work?.type}`);
    }
    if (seen.entries.some((each) => each.epoch === entry.epoch)) {
      violate("W1", `${what} is the second of its epoch`);
    }
    count(`answer: ${entry.outcome ?? entry.kind}`);
    if (entry.kind === "summary") {
      if (work?.type !== "compaction" || work.toSeq !== entry.throughSeq) {
        violate("compaction", `${what} stands for ${entry.throughSeq}`);
      }
      return;
    }
    if (work?.type !== "turn" || isNew) return;
    const said = spokenBy(entry);
    // One that goes on with a message and is ended at once holds only what was said before.
    const isOwn = entry.outcome === "completed" || work.trigger !== "tool_result";
    if (said && (isOwn ? said.epoch !== entry.epoch : said.epoch > entry.epoch!)) {
      violate("W1", `${what} was said in ${said.epoch}`);
    }
    if (entry.outcome === "completed" && said?.attempt !== work.attempt) {
      violate("W1", `${what} is of attempt ${said?.attempt}, not ${work.attempt}`);
    }
    if (entry.outcome === "completed" && work.stopping) count("stop: lost to the end");
    if (entry.outcome === "stopped" && work.stopping) count("stop: won");
  };

  const judgeSession = (noted: Extract<Noted, { what: "session" }>): void => {
    const { before, after } = noted;
    if (!after) return violate("S12", `${who} has deleted the row of ${before!.sessionId}`);
    const { sessionId, offset, header } = after;
    const seen: SessionSeen = sessions.get(sessionId)!;
    const last = before?.header;
    if (last) {
      if (header.lastSeq < last.lastSeq) violate("S12", `${sessionId}: ${last.lastSeq} goes back`);
      if (header.epoch < last.epoch) violate("W1", `${sessionId}: its epoch falls`);
      if (offset <= before.offset) violate("O1", `${sessionId}: a header from before`);
      if (last.status === "deleted" && header.status !== "deleted") {
        violate("S12", `${sessionId} comes back`);
      }
      if (header.status !== "deleted") judgeWork(last, header);
    }
    if (header.status === "deleted") seen.entries.length = 0;
    else if (header.lastSeq !== seen.entries.length) {
      violate(
        "S2",
        `${sessionId} has ${seen.entries.length} entries, its header ${header.lastSeq}`,
      );
    }
    const { work } = header;
    if (work?.runner === null && work.attempt > 0)
      count("turn: waits for a pod that has its agent");
    if (work?.type === "turn") {
      const { heardSeq = 0 } = work.steering ?? {};
      const answered = header.pending.find(
        ({ agent, trigger, upToSeq }) =>
          agent === work.agent && trigger === "submit" && upToSeq <= heardSeq,
      );
      if (answered) violate("W11", `${sessionId}#${answered.upToSeq} was heard, and waits`);
    }
    if (work?.type === "turn") seen.turns.set(work.epoch, work);
    if (work?.type === "compaction") {
      const { toSeq } = work;
      seen.compactions.set(work.epoch, { toSeq, failures: header.compactionFailures });
    }
    Object.assign(seen, { header, offset });
    world.scheduler.note(`${who} ${sessionId} ${header.lastSeq} ${shownWork(header)}`);
    options.onSession(seen, noted);
  };

  const judgeWork = (last: Header, { work, compactionFailures }: Header): void => {
    const had = last.work;
    if (compactionFailures > last.compactionFailures) count("compaction: failed");
    if (!had || had.epoch !== work?.epoch) {
      if (had?.type === "turn" && had.hasSteps) judgeKept(last, had.epoch);
      if (had && work && had.type === "turn" && work.type === "turn" && work.attempt === 0) {
        count("turn: merged");
      }
      return;
    }
    if (work.attempt < had.attempt) violate("W1", `${last.sessionId}: its attempt falls`);
    if (work.lost > had.lost) {
      count(`${work.type}: lost`);
      if (options.isCalm)
        violate("starts", `${last.sessionId}: a runner that is well was given up`);
    } else if (work.attempt > had.attempt && had.attempt > 0) count(`${work.type}: released`);
  };

  /** What steps have done is never forgotten: the answer says so. */
  const judgeKept = ({ sessionId }: Header, epoch: number): void => {
    const { entries } = sessions.get(sessionId)!;
    if (entries.some((entry) => entry.epoch === epoch)) count("step: its answer is stored");
    else violate("steps", `${sessionId}: turn ${epoch} has stored steps and was dropped`);
  };

  const judge = (all: readonly Noted[]): void => {
    const moved = new Set<number>();
    for (const noted of all) {
      if (noted.what !== "head") continue;
      judgeHead(noted.before, noted.after);
      if (noted.before?.offset !== noted.after?.offset) moved.add(noted.after!.logId);
    }
    // Entries come before the header that counts them, also in a session's first record.
    for (const noted of all) {
      if (noted.what !== "session" || noted.before || !noted.after) continue;
      const { sessionId, offset, header } = noted.after;
      if (sessions.has(sessionId)) violate("S12", `${sessionId} is made twice`);
      const lists = { entries: [], seqOf: new Map(), turns: new Map(), compactions: new Map() };
      const fresh: Header = { ...header, lastSeq: 0, epoch: 0, work: null };
      sessions.set(sessionId, { sessionId, header: fresh, offset, ...lists });
    }
    for (const noted of all) if (noted.what === "step") judgeStep(noted, all, moved);
    for (const noted of all) if (noted.what === "entry") judgeEntry(noted, moved);
    for (const noted of all) {
      if (noted.what !== "session") continue;
      const { sessionId } = noted.after ?? noted.before!;
      if (!moved.has(logOf(sessionId, Math.max(1, heads.size))))
        violate("O1", `${who} has stored a header of ${sessionId} without a record of its log`);
      judgeSession(noted);
      options.ledger.judgeOpen(noted.after!.header);
    }
  };

  const commit: typeof store.commit = async (statements) => {
    const before = new Map(heads);
    let done: Awaited<ReturnType<typeof store.commit>>;
    try {
      done = await store.commit(statements);
    } catch (error) {
      if (error instanceof FlotillaError) countFences(world, statements, { before, error });
      throw error;
    }
    const all = saidOf(done.noted);
    countFences(world, statements, { before, done, moved: all.length > 0 });
    judge(all);
    return done;
  };
  Object.assign(world, { store: { ...store, commit } });

  return {
    heads,
    headOf: (sessionId) => heads.get(logOf(sessionId, Math.max(1, heads.size))),
    sessions,
    textOf(sessionId, seq) {
      const entry = sessions.get(sessionId)?.entries[seq - 1];
      return entry && exactly(entry);
    },
    // There are no tasks here to be judged.
    async before(committer) {
      who = committer;
      return nothingSeen;
    },
    async after() {},
  };
}

const shown = ({ owner, term, offset }: Head) => `${owner}@${term}/${offset}`;

const nameOf = ({ sessionId, entry }: { sessionId: string; entry: Entry }) =>
  `${sessionId}#${entry.seq}`;

function shownWork({ work, pending, status }: Header): string {
  const waiting = pending.length > 0 ? ` +${pending.length}` : "";
  const shownStatus = status === "active" ? "" : ` ${status}`;
  if (!work) return `idle${waiting}${shownStatus}`;
  const stopping = work.type === "turn" && work.stopping ? " stopping" : "";
  return `${work.type} ${work.agent} ${work.epoch}.${work.attempt} at ${work.runner}${stopping}${waiting}${shownStatus}`;
}
