/** A pod that takes logs on JetStream, appends to them, archives them, and reads sessions of all logs. */
import { type Clock, sleep } from "../../../src/base/clock.ts";
import { hasCode } from "../../../src/base/errors.ts";
import type { Ids } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { between, fraction, type Random } from "../../../src/base/random.ts";
import type { Bus } from "../../../src/bus/bus.ts";
import { entry, header, turn } from "../../../src/sessions/contract/journal-harness.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import { createArchivedJournal } from "../../../src/sessions/log/archive/journal.ts";
import type { StreamEngine } from "../../../src/sessions/log/jetstream/engine.ts";
import type { StreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import type { Head, LogRecord } from "../../../src/sessions/log/journal.ts";
import { logOf } from "../../../src/sessions/log/placement.ts";
import type { Database } from "../../../src/store/database.ts";
import { gatedEngine } from "../streams/pod.ts";
import type { ArchiveLedger } from "./ledger.ts";

export type ArchivePod = {
  /** Nothing comes back to it any more. */
  crash(): void;
  /** What comes back to it meanwhile, comes late. */
  pause(forMs: number): void;
};

export type ArchivePodParts = {
  podId: string;
  clock: Clock;
  random: Random;
  ids: Ids;
  logs: number;
  ledger: ArchiveLedger;
  count: (what: string) => void;
  database: Database;
  stream: (engine: StreamEngine) => StreamLog;
  engine: StreamEngine;
  bus: Bus;
  isQuiet: () => boolean;
  /** Nothing is appended any more, so that the archive gets to the end. */
  isEnding: () => boolean;
  onThrown: (error: unknown) => void;
};

const sessionIds = ["s1", "s2", "s3", "s4", "s5", "s6"];
const proofMs = 2_000;
const everything = { after: 0, limit: 10_000 };

export function startArchivePod(parts: ArchivePodParts): ArchivePod {
  const { podId, clock, random, ids, logs, ledger, count, isQuiet, isEnding } = parts;
  let alive = true;
  let pausedMs = -Infinity;
  const gate = async (): Promise<void> => {
    while (alive && clock.monotonic() < pausedMs) await sleep(clock, pausedMs - clock.monotonic());
    if (!alive) await new Promise<never>(() => {});
  };
  const through = async <Value>(call: Promise<Value>): Promise<Value> => {
    try {
      return await call;
    } finally {
      await gate();
    }
  };
  const database: Database = {
    ...parts.database,
    read: (statement, options) => through(parts.database.read(statement, options)),
    write: (statements, options) => through(parts.database.write(statements, options)),
  };
  /** The heads as this pod read them last. */
  let known: readonly Head[] = [];
  const journal = createArchivedJournal({
    stream: parts.stream(gatedEngine(parts.engine, gate)),
    database,
    bus: parts.bus,
    clock,
    random,
    ids,
    log: silentLogger,
    onArchived: () => count("archived"),
    isFollowed: () => true,
    // It reads along with every log of another pod, so that most takes have read a part before.
    standbyFor: () => known.filter(({ owner }) => owner !== null && owner !== podId),
  });
  journal.start();
  const rest = async (lowMs: number, highMs: number): Promise<void> => {
    await sleep(clock, between(random, lowMs, highMs));
    await gate();
  };

  const keeps = (id: number): boolean => journal.kept!().some(({ logId }) => logId === id);

  const own = async (): Promise<void> => {
    /** Since when each log stands where it was seen. */
    const standing = new Map<number, { readonly recordId: string; readonly sinceMs: number }>();
    for (;;) {
      await rest(20, 500);
      const heads = (await journal.heads().catch(expected)) ?? [];
      known = heads;
      const nowMs = clock.monotonic();
      for (const { logId, recordId } of heads) {
        if (standing.get(logId)?.recordId === recordId) continue;
        standing.set(logId, { recordId, sinceMs: nowMs });
      }
      const seen = heads[between(random, 0, logs - 1)];
      if (!seen) continue;
      // A pod leaves a log to its owner for as long as that may answer reads without another proof.
      const isOthers = seen.owner !== null && seen.owner !== podId;
      if (isOthers && nowMs - standing.get(seen.logId)!.sinceMs < proofMs) continue;
      // Its owner is there, as its beats would say, and hasn't given it up.
      if (ledger.isBack(seen.logId) || keeps(seen.logId)) continue;
      const owner = { podId, host: null, recordId: ids.next() };
      const hasTaken = ledger.taking(podId, seen.logId);
      const taken = await journal.take(seen, owner).catch(expected).finally(hasTaken);
      if (taken) await serve(taken);
    }
  };

  const recover = async (taken: Head): Promise<boolean> => {
    for (let tries = 1; tries <= 5; tries++) {
      try {
        const { busy } = await journal.recover(taken);
        ledger.recovered(taken, busy);
        return true;
      } catch (error) {
        if (hasCode(error, "not_owner")) return false;
        expected(error);
        count("recover: not whole");
      }
      await rest(20, 250);
    }
    return false;
  };

  const serve = async (taken: Head): Promise<void> => {
    if (!(await recover(taken))) return;
    const own = sessionIds.filter((each) => logOf(each, logs) === taken.logId);
    const memory = new Map<string, Header>();
    let head = taken;
    const records = between(random, 5, isQuiet() ? 80 : 50);
    for (let nth = 0; nth < records; nth++) {
      // Once all is well, less of the same shows as much.
      await rest(0, isQuiet() ? 700 : 120);
      while (isEnding()) await rest(100, 200);
      const sessionId = own[between(random, 0, own.length - 1)]!;
      if (!memory.has(sessionId)) {
        // Owners prove their logs every second and drop what isn't theirs; a read would wait for the next owner.
        if (journal.provenMs(taken.logId) === undefined) return;
        const found = await readHeader(taken.logId, sessionId);
        if (found === "unread") continue;
        memory.set(sessionId, found ?? header(sessionId));
      }
      const record = draft(memory.get(sessionId)!);
      const next = await commit(head, record);
      if (next === "lost") return;
      if (next === "refused") continue;
      head = next;
      memory.set(sessionId, record.headers[0]!);
    }
    if (fraction(random) < 0.5) {
      count("release");
      await journal.release(podId, [head]).catch(expected);
    }
  };

  /** Waits no longer than the log is this pod's: the read would wait for whoever takes it next. */
  const readHeader = async (
    logId: number,
    sessionId: string,
  ): Promise<Header | undefined | "unread"> => {
    let isOver = false;
    const reading = journal
      .header(sessionId)
      .catch((error: unknown) => {
        expected(error);
        return "unread" as const;
      })
      .finally(() => (isOver = true));
    const lost = async (): Promise<"unread"> => {
      while (!isOver && journal.provenMs(logId) !== undefined) await sleep(clock, 100);
      return "unread";
    };
    const found = await Promise.race([reading, lost()]);
    return isOver ? reading : found;
  };

  const draft = (before: Header): LogRecord => {
    const { sessionId } = before;
    const lastSeq = before.lastSeq + 1;
    const work = fraction(random) < 0.5 ? turn({ epoch: lastSeq }) : null;
    const checkpoint = { sessionId, epoch: lastSeq, attempt: 1, body: `so far ${lastSeq}` };
    return {
      recordId: ids.next(),
      entries: [entry(sessionId, lastSeq)],
      headers: [header(sessionId, { lastSeq, epoch: lastSeq, work })],
      members: before.lastSeq === 0 ? [sessionId] : [],
      metadata: [],
      reads: [{ sessionId, user: "ada", seq: lastSeq }],
      checkpoints: work ? [checkpoint] : [],
      steps: [],
      stepsOver: [],
    };
  };

  /** Sends the same record to the same place until its outcome is known. */
  const commit = async (at: Head, record: LogRecord): Promise<Head | "lost" | "refused"> => {
    for (let isUnknown = false; ;) {
      try {
        const result = await journal.commit(at, record);
        if (result.type !== "committed") {
          count(`commit: ${result.type}`);
          return "lost";
        }
        ledger.acked(result.head, record);
        return result.head;
      } catch (error) {
        expected(error);
        isUnknown ||= hasCode(error, "unknown_outcome");
        if (!isUnknown) {
          count(hasCode(error, "overloaded") ? "refused: full" : "refused");
          return "refused";
        }
      }
      await rest(20, 250);
    }
  };

  const read = async (): Promise<void> => {
    for (;;) {
      await rest(50, isQuiet() ? 3_000 : 1_000);
      const sessionId = sessionIds[between(random, 0, sessionIds.length - 1)]!;
      const ackedSeq = ledger.ackedSeq(sessionId);
      const found = await journal.entries(sessionId, everything).catch(expected);
      await gate();
      if (found) ledger.read(podId, sessionId, ackedSeq, found);
      else count("read: refused");
    }
  };

  own().catch(parts.onThrown);
  read().catch(parts.onThrown);
  return {
    crash() {
      alive = false;
      void parts.bus.close();
      void journal.stop();
    },
    pause(forMs) {
      pausedMs = clock.monotonic() + forMs;
    },
  };
}

const passing = [
  "closed",
  "unknown_outcome",
  "store_unavailable",
  "unavailable",
  "overloaded",
] as const;

/** Lets pass what a journal may throw on servers that fail. */
function expected(error: unknown): undefined {
  if (!hasCode(error, ...passing)) throw error;
  return undefined;
}
