import { type Clock, sleep } from "../../base/clock.ts";
import {
  FlotillaError,
  hasCode,
  messageOf,
  storeWideCodes,
  unstorableCodes,
} from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { sendUntilKnown } from "../../store/retry.ts";
import type { CommandResult, Command, SessionEffect, Facts } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import type { CommitResult, Head, Log, LogRecord, Reads, Recovered } from "./journal.ts";
import { createDuplicateCheck, createKnownIds } from "./known-ids.ts";
import {
  agentsOf,
  draftRecord,
  estimateBytes,
  keyOfId,
  type PendingCommand,
  type RecordDraft,
} from "./record.ts";
import { callLimitMs, mayAnswerSoon, retryDelayMs } from "./call-deadline.ts";

/**
 * Appends to one log. It decides commands in memory and commits one record at a time. A record holds every
 * command submitted while the previous record was being committed, as far as they fit. Memory changes only
 * after the commit; results, effects and delivery follow.
 */
export type Owner = {
  /** The head after the last record that this owner committed. */
  readonly head: Head;
  /** When the last record or proof that is stored was sent. No other pod had taken the log then. */
  readonly provenMs: number;
  /** Stores a proof that the log is still this pod's, unless a record is under way, which is one. */
  prove(): void;
  /**
   * Resolves once the decision is committed. Rejects with `not_owner` when another pod owns the log.
   * `limitMs` is how long the caller waits for the result. Default and maximum 15,000.
   */
  submit(
    tenant: string,
    sessionId: string,
    command: Command,
    options?: { limitMs?: number },
  ): Promise<CommandResult>;
  /** The committed header of a session, if it is in memory. */
  cachedHeader(sessionId: string): Header | undefined;
  /** Accepts no more commands, and waits for the commit in flight. */
  stop(): Promise<void>;
  /** Another pod owns the log: clears memory and rejects pending commands with `not_owner`. */
  drop(): void;
};

export type OwnerParts = {
  journal: Pick<Log, "commit" | "prove" | "whenFree" | "maxRecordBytes"> &
    Pick<Reads, "header" | "storedIds">;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  facts: (tenant: string) => Facts;
  /** Loads facts about these agents. Returns undefined when they are loaded already. */
  prime: (tenant: string, agents: readonly string[]) => Promise<void> | undefined;
  /** Called with every committed record, in order. */
  onCommitted: (committed: CommittedRecord) => void;
  /** Called once, when another pod owns the log. */
  onFenced: () => void;
  /** True when memory is current: no other pod can have taken the log since this pod's last beat. */
  isFresh: () => boolean;
  /**
   * How many sessions stay in memory, besides those with work or pending commands. Shared by all logs of
   * the pod, like the ids of stored messages. Default 100,000.
   */
  maxSlots?: number;
  /** How many logs this pod owns. Default 1. */
  ownedLogs?: () => number;
  /** Whether records change the counts of tenants, which quotas need. Default false. */
  countsTenants?: boolean | undefined;
};

export type CommittedRecord = {
  readonly head: Head;
  readonly record: LogRecord;
  /** The effects to perform now, by session id. */
  readonly effects: readonly (readonly [sessionId: string, SessionEffect])[];
  readonly formerUsers: RecordDraft["formerUsers"];
  readonly durationMs: number;
};

type Slot = {
  /** The committed header; undefined if the session does not exist. */
  header: Header | undefined;
  /** Commands submitted while the header is being read, in order. */
  waiting: PendingCommand[] | undefined;
};

const maxBatch = 1_000;
/** What the commands of one record bring at most, about. A command that brings more has a record alone. */
const maxBatchBytes = 524_288;
const maxWaiting = 20_000;
const maxKnownIds = 262_144;
/** A pod that shuts down while the store is unreachable must exit before it is killed. */
const leaveTimeoutMs = 5_000;

export function createOwner(taken: Head, { busy }: Recovered, parts: OwnerParts): Owner {
  const { journal, clock, random, log, ownedLogs = () => 1 } = parts;
  const maxSlots = () => Math.ceil((parts.maxSlots ?? 100_000) / ownedLogs());
  const batchBytes = Math.min(maxBatchBytes, journal.maxRecordBytes);
  const slots = new Map<string, Slot>();
  const known = createKnownIds(() => Math.ceil(maxKnownIds / ownedLogs()));
  const storedBefore = createDuplicateCheck({ journal, known });
  let head = taken;
  let provenMs = -Infinity;
  let queue: PendingCommand[] = [];
  /** Commands of sessions whose client ids are being checked, in order. Other sessions go on. */
  const held = new Map<string, PendingCommand[]>();
  /** Sessions whose check is done. Their held commands go first in the next record. */
  let freed: string[] = [];
  let underWay: readonly PendingCommand[] = [];
  let waiting = 0;
  let committing: Promise<void> | undefined;
  let scheduled = false;
  let ended: "no" | "stopping" | "fenced" = "no";
  let leavesByMs = Infinity;
  for (const header of busy) slots.set(header.sessionId, { header, waiting: undefined });

  const flush = (): void => {
    scheduled = false;
    if (committing || (queue.length === 0 && freed.length === 0)) return;
    const free = journal.whenFree?.();
    occupy(free ? free.then(storeNext) : storeNext());
  };

  /** One message of a log is in flight at a time. */
  const occupy = (work: Promise<void>): void => {
    committing = work.finally(() => {
      committing = undefined;
      underWay = [];
      flush();
    });
  };

  const storeProof = async (send: NonNullable<Log["prove"]>): Promise<void> => {
    const startedMs = clock.monotonic();
    const recordId = parts.ids.next();
    const proven = await sendUntilDecided(() => send(head, recordId), []).catch(() => undefined);
    if (proven?.type === "fenced") return fenced([]);
    if (proven?.type === "committed") [head, provenMs] = [proven.head, startedMs];
  };

  const storeNext = (): Promise<void> => {
    // Only between records. A command of a held session then reaches `held` in its order, even when a
    // record is stored in halves.
    if (freed.length > 0) queue = [...takeHeld(freed), ...queue];
    freed = [];
    const count = countNext();
    const batch = queue.length === count ? queue : queue.slice(0, count);
    queue = queue.length === count ? [] : queue.slice(count);
    underWay = batch;
    return store(batch);
  };

  /** How many of the queued commands go into the next record. */
  const countNext = (): number => {
    const most = Math.min(queue.length, maxBatch);
    if (most <= 1) return most;
    let bytes = estimateBytes(queue[0]!.command);
    for (let at = 1; at < most; at++) {
      bytes += estimateBytes(queue[at]!.command);
      if (bytes > batchBytes) return at;
    }
    return most;
  };

  const takeHeld = (sessionIds: Iterable<string>): PendingCommand[] =>
    [...sessionIds].flatMap((sessionId) => {
      const items = held.get(sessionId) ?? [];
      held.delete(sessionId);
      return items;
    });

  const store = async (commands: readonly PendingCommand[]): Promise<void> => {
    if (ended === "fenced") return rejectAll(commands);
    const items = held.size === 0 ? commands : commands.filter((item) => !hold(item));
    if (items.length === 0) return;
    const draft = draftRecord(items, {
      header: (sessionId) => slots.get(sessionId)?.header,
      seqOf: known.seqOf,
      facts: parts.facts,
      recordId: parts.ids.next(),
      countsTenants: parts.countsTenants === true,
    });
    const doubted = storedBefore.doubted(draft);
    if (doubted.length > 0) return storeAfterLookup(items, doubted);
    // A draft that changes nothing, mostly refusals, needs memory alone. If another pod may own the log,
    // committing an empty record finds out.
    if (draft.isEmpty && parts.isFresh()) return settle(draft);
    const startedMs = clock.monotonic();
    let committed: CommitResult;
    try {
      committed = await sendUntilDecided(() => journal.commit(head, draft.record), items);
    } catch (error) {
      // Nothing was stored. One command may be at fault, so store halves until it fails alone. A full log
      // has no room for any of them.
      if (items.length > 1 && !hasCode(error, ...storeWideCodes, "overloaded")) {
        const middle = Math.ceil(items.length / 2);
        await store(items.slice(0, middle));
        return store(items.slice(middle));
      }
      // What the log has no room for may have had it once, beside a smaller header.
      const isUnstorable = hasCode(error, ...unstorableCodes);
      if (isUnstorable && items.some(storedBefore.isUnchecked))
        return storeAfterLookup(items, items);
      return giveUp(items, error);
    }
    if (committed.type === "fenced") return fenced(items);
    if (committed.type === "duplicate") {
      for (const { sessionId, clientId, seq } of committed.found) {
        known.add(keyOfId(sessionId, clientId), seq);
      }
      return store(items);
    }
    [head, provenMs] = [committed.head, startedMs];
    apply(draft);
    const durationMs = clock.monotonic() - startedMs;
    const { record, effects, formerUsers } = draft;
    try {
      parts.onCommitted({ head, record, effects, formerUsers, durationMs });
    } catch (error) {
      // The record is stored, so its callers get their results all the same.
      log.error({ log: head.logId, error: messageOf(error) }, "committed record not delivered");
    }
    settle(draft);
  };

  const hold = (item: PendingCommand): boolean =>
    held.get(item.sessionId)?.push(item) !== undefined;

  /**
   * Holds the sessions of the doubted commands until the check ends. All other sessions are stored
   * meanwhile.
   */
  const storeAfterLookup = (
    items: readonly PendingCommand[],
    doubted: readonly PendingCommand[],
  ): Promise<void> => {
    for (const { sessionId } of doubted) held.set(sessionId, []);
    void findStoredBefore(doubted);
    return store(items);
  };

  const findStoredBefore = async (doubted: readonly PendingCommand[]): Promise<void> => {
    let left = doubted;
    for (let tries = 1; left.length > 0; tries++) {
      try {
        await storedBefore.check(left);
        break;
      } catch (error) {
        const isHeld = (item: PendingCommand) => held.get(item.sessionId)?.includes(item) ?? false;
        const lost = left.filter((item) => isHeld(item) && (!mayAnswerSoon(error) || isLate(item)));
        left = left.filter((item) => isHeld(item) && !lost.includes(item));
        for (const { sessionId } of lost) {
          const rest = held.get(sessionId)!.filter((item) => !lost.includes(item));
          held.set(sessionId, rest);
        }
        reject(lost, error);
      }
      if (left.length > 0) await sleep(clock, retryDelayMs(tries, random));
    }
    freed.push(...doubted.map(({ sessionId }) => sessionId));
    flush();
  };

  const isLate = ({ submittedMs, limitMs }: PendingCommand): boolean =>
    clock.monotonic() - submittedMs >=
    Math.min(limitMs, ended === "no" ? Infinity : leaveTimeoutMs);

  /** Rejects commands whose time is up. If the store itself failed, the others are tried again. */
  const giveUp = (items: readonly PendingCommand[], error: unknown): Promise<void> | void => {
    const left = items.filter((item) => hasCode(error, ...storeWideCodes) && !isLate(item));
    reject(
      items.filter((item) => !left.includes(item)),
      error,
    );
    if (left.length > 0) return store(left);
  };

  /** Retries until the outcome is known. Throws only errors that mean that nothing was stored. */
  const sendUntilDecided = (
    commit: () => Promise<CommitResult>,
    items: readonly PendingCommand[],
  ): Promise<CommitResult> => {
    // A store that is closed, or silent for as long as a stop may take, cannot tell: the next owner finds out.
    const isOver = () => clock.monotonic() >= leavesByMs;
    const send = async () => (isOver() ? ({ type: "fenced" } as const) : commit());
    return sendUntilKnown(send, {
      clock,
      random,
      waitMs: (tries) => retryDelayMs(tries, random),
      mayRetry: (error, isUnknown) =>
        isUnknown || (items.length > 0 && !items.some(isLate) && hasCode(error, ...storeWideCodes)),
      onFailed({ error, tries }) {
        if (hasCode(error, "closed")) leavesByMs = -Infinity;
        const fields = { log: head.logId, error: messageOf(error) };
        if (tries === 1) log.warn(fields, "session log commit failed, retrying");
      },
    });
  };

  const apply = (draft: RecordDraft): void => {
    for (const [sessionId, header] of draft.headers) {
      const slot = slots.get(sessionId);
      if (slot) slot.header = header;
      else slots.set(sessionId, { header, waiting: undefined });
    }
    for (const [key, seq] of draft.ids) known.add(key, seq);
    forget();
  };

  /** Sessions with pending commands stay: without its header a session would count as missing. */
  const forget = (): void => {
    if (slots.size <= maxSlots()) return;
    const busySessions = new Set([...underWay, ...queue].map(({ sessionId }) => sessionId));
    for (const sessionId of held.keys()) busySessions.add(sessionId);
    const most = maxSlots() * 0.9;
    for (const [sessionId, slot] of slots) {
      if (slots.size <= most) return;
      if (!slot.waiting && !slot.header?.work && !busySessions.has(sessionId))
        slots.delete(sessionId);
    }
  };

  const reject = (items: readonly PendingCommand[], error: unknown): void => {
    waiting -= items.length;
    for (const item of items) item.reject(error);
  };
  const rejectAll = (items: readonly PendingCommand[]) => reject(items, ownerMoved(head.logId));
  /** For commands that were in no record. Their callers can then trust a later refusal. */
  const rejectUnstored = (items: readonly PendingCommand[]) => reject(items, refusal(head.logId));

  const settle = (draft: RecordDraft): void => {
    waiting -= draft.outcomes.length;
    for (const [item, outcome] of draft.outcomes) {
      if (outcome instanceof FlotillaError) item.reject(outcome);
      else item.resolve(outcome);
    }
  };

  const fenced = (items: readonly PendingCommand[]): void => {
    rejectAll(items);
    if (ended === "fenced") return;
    const what = clock.monotonic() < leavesByMs ? "lost to another pod" : "left without an answer";
    log.warn({ log: head.logId, term: head.term }, `session log ${what}`);
    drop();
    parts.onFenced();
  };

  const drop = (): void => {
    ended = "fenced";
    const unread = takeUnread();
    slots.clear();
    const rest = [...takeHeld(held.keys()), ...queue];
    queue = [];
    rejectAll(rest);
    rejectUnstored(unread);
  };

  /** Commands whose sessions are still being read. A store that is away could keep them for long. */
  const takeUnread = (): PendingCommand[] =>
    [...slots.values()].flatMap((slot) => slot.waiting?.splice(0) ?? []);

  const put = (item: PendingCommand): void => {
    queue.push(item);
    if (scheduled || committing) return;
    scheduled = true;
    queueMicrotask(flush);
  };

  /**
   * Reads what a session's first command needs. Commands submitted meanwhile follow in order. Retries
   * while the store is unreachable and any command has time left; otherwise calls `onAbandoned`.
   */
  const fill = async (
    slot: Slot,
    read: () => Promise<void>,
    onAbandoned: () => void,
  ): Promise<void> => {
    for (let tries = 1; ; tries++) {
      try {
        await read();
        return release(slot);
      } catch (error) {
        const waitingCommands = slot.waiting ?? [];
        const left = waitingCommands.filter(
          (item) => ended === "no" && mayAnswerSoon(error) && !isLate(item),
        );
        const lost = waitingCommands.filter((item) => !left.includes(item));
        slot.waiting = left;
        if (left.length === 0) onAbandoned();
        if (ended === "no") reject(lost, error);
        else rejectUnstored(lost);
        if (left.length === 0) return;
      }
      await sleep(clock, retryDelayMs(tries, random));
    }
  };

  const load = (sessionId: string, slot: Slot, first: PendingCommand): Promise<void> => {
    const read = async (): Promise<void> => {
      const header = await journal.header(sessionId, { isFresh: "isFresh" in first.command });
      const names = [...(header?.agents ?? []), ...first.agents];
      await parts.prime(header?.tenant ?? first.tenant, names);
      slot.header = header;
    };
    return fill(slot, read, () => slots.delete(sessionId));
  };

  const admit = (item: PendingCommand): void => {
    const slot = slots.get(item.sessionId);
    if (slot?.waiting) slot.waiting.push(item);
    else if (slot) {
      const prime = () => parts.prime(item.tenant, item.agents);
      let priming = prime();
      if (!priming) return put(item);
      slot.waiting = [item];
      const read = async (): Promise<void> => {
        const begun = priming;
        priming = undefined;
        await (begun ?? prime());
      };
      void fill(slot, read, () => (slot.waiting = undefined));
    } else {
      const made: Slot = { header: undefined, waiting: [item] };
      slots.set(item.sessionId, made);
      forget(); // Here too, because anyone can send commands for sessions that do not exist.
      void load(item.sessionId, made, item);
    }
  };

  const release = (slot: Slot): void => {
    const waitingCommands = slot.waiting ?? [];
    slot.waiting = undefined;
    // A stopping owner has already waited for its last commit, so the log may be released by now.
    if (ended !== "no") return rejectUnstored(waitingCommands);
    for (const each of waitingCommands) put(each);
  };

  return {
    get head() {
      return head;
    },
    get provenMs() {
      return provenMs;
    },
    prove() {
      const isBusy = committing !== undefined || scheduled || ended !== "no";
      if (!isBusy && journal.prove) occupy(storeProof(journal.prove));
    },
    submit(tenant, sessionId, command, { limitMs = callLimitMs } = {}) {
      if (ended !== "no") return Promise.reject(refusal(head.logId));
      if (waiting >= maxWaiting) {
        const message = `log ${head.logId} has ${maxWaiting} commands waiting: send fewer at once`;
        return Promise.reject(new FlotillaError("overloaded", message));
      }
      waiting++;
      return new Promise((resolve, reject) =>
        admit({
          tenant,
          sessionId,
          command,
          agents: agentsOf(command),
          submittedMs: clock.monotonic(),
          limitMs: Math.min(limitMs, callLimitMs),
          resolve,
          reject,
        }),
      );
    },
    cachedHeader: (sessionId) => slots.get(sessionId)?.header,
    async stop() {
      if (ended === "no") [ended, leavesByMs] = ["stopping", clock.monotonic() + leaveTimeoutMs];
      if (scheduled) flush();
      while (committing) await committing;
      rejectUnstored([...takeHeld(held.keys()), ...takeUnread()]);
    },
    drop,
  };
}

function ownerMoved(logId: number): FlotillaError {
  return new FlotillaError("not_owner", `another pod owns log ${logId}: send it there`);
}

function refusal(logId: number): FlotillaError {
  const message = `this pod no longer accepts commands for log ${logId}: send it to its next owner`;
  return new FlotillaError("not_owner", message, { details: { taken: false } });
}
