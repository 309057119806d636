/** A pod that takes logs, whether they are free or not, and appends to them until it is fenced. */
import { type Clock, sleep } from "../../../src/base/clock.ts";
import { hasCode } from "../../../src/base/errors.ts";
import type { Ids } from "../../../src/base/ids.ts";
import { between, fraction, type Random } from "../../../src/base/random.ts";
import { entry, header, turn } from "../../../src/sessions/contract/journal-harness.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { CommitResult, Head, LogRecord } from "../../../src/sessions/log/journal.ts";
import type { StreamEngine } from "../../../src/sessions/log/jetstream/engine.ts";
import type { StreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import type { Ledger } from "./ledger.ts";

export type Fighter = {
  /** Nothing comes back to it any more. */
  crash(): void;
  /** What comes back to it meanwhile, comes late. */
  pause(forMs: number): void;
};

export type FighterParts = {
  podId: string;
  clock: Clock;
  random: Random;
  ledger: Ledger;
  count: (what: string) => void;
  log: (engine: StreamEngine) => StreamLog;
  engine: StreamEngine;
  ids: Ids;
  logs: number;
  isQuiet: () => boolean;
  onThrown: (error: unknown) => void;
};

const sessions = 4;
const recoverTries = 5;

/** What an owner knows: the header of each session, and the offset of its last record. */
type Memory = Map<string, { readonly header: Header; readonly offset: number }>;
type Sent = CommitResult | { readonly type: "refused"; readonly isFull: boolean };

export function startFighter(parts: FighterParts): Fighter {
  const { podId, clock, random, ledger, count, ids, logs, isQuiet } = parts;
  let alive = true;
  let pausedMs = -Infinity;

  /** Holds what comes back while the pod is paused, and for ever once it has crashed. */
  const gate = async (): Promise<void> => {
    while (alive && clock.monotonic() < pausedMs) await sleep(clock, pausedMs - clock.monotonic());
    if (!alive) await new Promise<never>(() => {});
  };
  const log = parts.log(gatedEngine(parts.engine, gate));
  const rest = async (lowMs: number, highMs: number): Promise<void> => {
    await sleep(clock, between(random, lowMs, highMs));
    await gate();
  };

  const fight = async (): Promise<void> => {
    for (;;) {
      await rest(20, isQuiet() ? 200 : 1_500);
      const heads = await log.heads().catch(expected);
      const seen = heads?.[between(random, 0, logs - 1)];
      // A replica that is behind may not know the logs yet.
      if (!seen) continue;
      // In quiet, logs stay with their owner, as pods that are alive leave them.
      const isOthers = seen.owner !== null && seen.owner !== podId;
      if (isOthers && fraction(random) < (isQuiet() ? 0.9 : 0.4)) continue;
      const taken = await take(seen);
      if (taken) await own(taken);
    }
  };

  const take = async (seen: Head): Promise<Head | undefined> => {
    const owner = { podId, host: null, recordId: ids.next() };
    for (let tries = 1; tries <= 3; tries++) {
      try {
        return await log.take(seen, owner);
      } catch (error) {
        expected(error);
        count("take: unknown");
        if (fraction(random) < 0.3) return undefined;
      }
      await rest(20, 250);
    }
    return undefined;
  };

  /** Replays until it is whole, and only then serves. */
  const recover = async (taken: Head): Promise<Memory | undefined> => {
    for (let tries = 1; tries <= recoverTries; tries++) {
      try {
        const memory: Memory = new Map();
        const records: { offset: number; record: LogRecord }[] = [];
        const { busy } = await log.recover(taken, (each) => records.push(each));
        const archived = log.lastMark(taken.logId)!.archived;
        for (const each of busy) memory.set(each.sessionId, { header: each, offset: archived });
        for (const { record, offset } of records) {
          for (const each of record.headers) memory.set(each.sessionId, { header: each, offset });
        }
        ledger.recovered(taken, busy, records);
        return memory;
      } catch (error) {
        if (hasCode(error, "not_owner")) {
          count("recover: taken since");
          return undefined;
        }
        expected(error);
        count("recover: not whole");
      }
      await rest(20, 250);
    }
    return undefined;
  };

  const own = async (taken: Head): Promise<void> => {
    // Another may take the log between its fence and its replay.
    if (fraction(random) < 0.05) await rest(200, 2_000);
    const memory = await recover(taken);
    if (!memory) return;
    let head = taken;
    const records = between(random, 1, isQuiet() ? 40 : 25);
    for (let nth = 0; nth < records; nth++) {
      await rest(0, 60);
      const record = draft(memory);
      const sent = await commit(head, record);
      if (sent.type === "fenced" || sent.type === "duplicate") return;
      if (sent.type === "committed") {
        head = sent.head;
        for (const each of record.headers) {
          memory.set(each.sessionId, { header: each, offset: head.offset });
        }
      }
      // An archive that takes more is what empties a log that is full.
      if (sent.type === "refused" ? sent.isFull : fraction(random) < 0.2) {
        const marked = await mark(head, memory);
        if (!marked) return;
        head = marked;
      }
    }
    if (fraction(random) < 0.5) {
      count("release");
      await log.release(podId, [head]).catch(expected);
    }
  };

  const draft = (memory: Memory): LogRecord => {
    const sessionId = `s${between(random, 1, sessions)}`;
    const lastSeq = (memory.get(sessionId)?.header.lastSeq ?? 0) + 1;
    const work = fraction(random) < 0.5 ? turn({ epoch: lastSeq }) : null;
    return {
      recordId: ids.next(),
      entries: [entry(sessionId, lastSeq)],
      headers: [header(sessionId, { lastSeq, epoch: lastSeq, work })],
      metadata: [],
      reads: [],
      checkpoints: [],
      steps: [],
      stepsOver: [],
    };
  };

  /** Sends the same record to the same place until its outcome is known. */
  const commit = async (at: Head, record: LogRecord): Promise<Sent> => {
    let isUnknown = false;
    ledger.sent(at, record.recordId);
    for (;;) {
      try {
        const result = await log.commit(at, record);
        if (result.type === "committed") ledger.acked(podId, at, result.head);
        if (result.type === "fenced") ledger.fenced(podId, at, record.recordId);
        if (isUnknown) count(`unknown: ${result.type === "committed" ? "ours" : "another's"}`);
        return result;
      } catch (error) {
        expected(error);
        if (hasCode(error, "unknown_outcome")) {
          isUnknown = true;
          if (error.message.includes("nothing is at")) count("unknown: nothing there");
        } else if (hasCode(error, "overloaded") || !isUnknown) {
          const isFull = hasCode(error, "overloaded");
          count(isFull ? "refused: full" : "refused: unread");
          ledger.refused(at, record.recordId);
          return { type: "refused", isFull };
        }
      }
      await rest(20, 250);
    }
  };

  const mark = async (head: Head, memory: Memory): Promise<Head | undefined> => {
    const before = log.lastMark(head.logId)!.archived;
    const archived = between(random, before, head.offset);
    const busy = [...memory.values()]
      .filter(({ header: { work }, offset }) => work !== null && offset <= archived)
      .map((each) => each.header);
    try {
      const marked = await log.mark(head, { archived, busy });
      if (marked.type !== "committed") return undefined;
      count("mark");
      if (fraction(random) < 0.5) {
        count("trim");
        await log.trim(marked.head, archived);
      }
      return marked.head;
    } catch (error) {
      expected(error);
      return undefined;
    }
  };

  fight().catch(parts.onThrown);
  return {
    crash() {
      alive = false;
    },
    pause(forMs) {
      pausedMs = clock.monotonic() + forMs;
    },
  };
}

/** Lets pass what a log may throw on servers that fail. */
function expected(error: unknown): undefined {
  if (!hasCode(error, "unknown_outcome", "store_unavailable", "overloaded")) throw error;
  return undefined;
}

/** The engine, as a pod has it that may be paused or dead whenever something comes back. */
export function gatedEngine(engine: StreamEngine, gate: () => Promise<void>): StreamEngine {
  const through = async <Value>(call: Promise<Value>): Promise<Value> => {
    try {
      return await call;
    } finally {
      await gate();
    }
  };
  return {
    publish: (message, condition) => through(engine.publish(message, condition)),
    read: (stream, sequence) => through(engine.read(stream, sequence)),
    lastOn: (stream, subject) => through(engine.lastOn(stream, subject)),
    async *readFrom(stream, range) {
      for await (const message of engine.readFrom(stream, range)) {
        await gate();
        yield message;
      }
    },
    state: (stream) => through(engine.state(stream)),
    create: (settings) => through(engine.create(settings)),
    purge: (stream, below) => through(engine.purge(stream, below)),
    facts: () => through(engine.facts()),
    close: () => engine.close(),
  };
}
