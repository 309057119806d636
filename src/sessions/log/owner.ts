import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { CommandResult, Command, SessionEffect, Facts } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import type { ClientIdRef, CommitResult, Head, Journal, LogRecord } from "./journal.ts";
import { type RecordDraft, draftRecord, type PendingCommand } from "./record.ts";
import { patienceMs, maxRetryDelayMs, transientStoreCodes } from "./retry.ts";

/**
 * Appends to one log. It decides in memory and commits one record at a time, with everything that was
 * asked while the last one was under way. Memory changes only after the commit, and answers, effects and
 * delivery come after that.
 */
export type Owner = {
  /** Where its log stands, as far as it has committed. */
  readonly head: Head;
  /** Answers once what was decided is committed. Rejects with `not_owner` where others have the log. */
  submit(
    tenant: string,
    sessionId: string,
    command: Command,
    options?: SubmitOptions,
  ): Promise<CommandResult>;
  /** What is committed of a session, where it is in memory. */
  cachedHeader(sessionId: string): Header | undefined;
  /** Takes no more, and waits for what is under way. */
  stop(): Promise<void>;
  /** Somebody else has the log: forgets everything, and sends those who wait there. */
  drop(): void;
};

type SubmitOptions = {
  /** How long its caller waits for the answer. Default 15,000, which is the most. */
  patienceMs?: number;
};

export type OwnerParts = {
  journal: Journal;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  facts: (tenant: string) => Facts;
  /** Makes sure that facts about these agents are at hand. Undefined where they are. */
  prime: (tenant: string, agents: readonly string[]) => Promise<void> | undefined;
  /** Told of every record that was committed, in order. */
  onCommitted: (committed: CommittedRecord) => void;
  /** Told once: somebody else has the log. */
  onFenced: () => void;
  /** Whether what it remembers is the latest: no other pod can have taken the log since its last beat. */
  isFresh: () => boolean;
  /** How many sessions are kept in memory, besides those in which something goes on. Default 50,000. */
  maxSlots?: number;
};

export type CommittedRecord = {
  readonly head: Head;
  readonly record: LogRecord;
  /** What each session has to have done now, by its id. */
  readonly effects: readonly (readonly [sessionId: string, SessionEffect])[];
  readonly formerUsers: RecordDraft["formerUsers"];
  readonly durationMs: number;
};

type Slot = {
  /** Committed; undefined where there is no such session. */
  header: Header | undefined;
  /** Asked while the header was being read, in order. */
  waiting: PendingCommand[] | undefined;
};

const maxBatch = 1_000;
const maxWaiting = 20_000;
/** A pod that leaves while the store is away must be gone before it is killed. */
const leaveTimeoutMs = 5_000;

export function createOwner(taken: Head, busy: readonly Header[], parts: OwnerParts): Owner {
  const { journal, clock, random, log, maxSlots = 50_000 } = parts;
  const slots = new Map<string, Slot>();
  const known = knownIds();
  const storedBefore = createDuplicateCheck({ journal, known });
  let head = taken;
  let queue: PendingCommand[] = [];
  /** What is asked of sessions of which something is being looked for, in order; the others go on. */
  const held = new Map<string, PendingCommand[]>();
  /** Sessions that are held no more. What was asked of them goes first in the next record. */
  let freed: string[] = [];
  let underWay: readonly PendingCommand[] = [];
  let waiting = 0;
  let committing: Promise<void> | undefined;
  let scheduled = false;
  let ended: "no" | "stopping" | "fenced" = "no";
  for (const header of busy) slots.set(header.sessionId, { header, waiting: undefined });

  const flush = (): void => {
    scheduled = false;
    if (committing) return;
    // Only between records: what is asked of a held session reaches `held` in its order, also from within
    // a record that is stored in parts.
    if (freed.length > 0) queue = [...takeHeld(freed), ...queue];
    freed = [];
    if (queue.length === 0) return;
    const batch = queue.length <= maxBatch ? queue : queue.slice(0, maxBatch);
    queue = queue.length <= maxBatch ? [] : queue.slice(maxBatch);
    underWay = batch;
    committing = store(batch).finally(() => {
      committing = undefined;
      underWay = [];
      flush();
    });
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
    });
    const doubted = storedBefore.doubted(draft);
    if (doubted.length > 0) return storeAfterLookup(items, doubted);
    // What changes nothing, a refusal above all, is decided by memory alone. Where another pod may have the
    // log, an empty record shows whether it has.
    if (draft.isEmpty && parts.isFresh()) return settle(draft);
    const startedMs = clock.monotonic();
    let committed: CommitResult;
    try {
      committed = await commit(draft.record, items);
    } catch (error) {
      // Nothing was stored. Of several, one may be at fault: in halves only that one fails.
      if (items.length > 1 && !hasCode(error, ...storeWideCodes)) {
        const middle = Math.ceil(items.length / 2);
        await store(items.slice(0, middle));
        return store(items.slice(middle));
      }
      return giveUp(items, error);
    }
    if (committed.type === "fenced") return fenced(items);
    if (committed.type === "duplicate") {
      for (const { sessionId, clientId, seq } of committed.found) {
        known.add(sessionId, clientId, seq);
      }
      return store(items);
    }
    head = committed.head;
    apply(draft);
    const durationMs = clock.monotonic() - startedMs;
    const { record, effects, formerUsers } = draft;
    try {
      parts.onCommitted({ head, record, effects, formerUsers, durationMs });
    } catch (error) {
      // It is stored, so whoever asked is told so.
      log.error({ log: head.logId, error: messageOf(error) }, "a record wasn't made known");
    }
    settle(draft);
  };

  const hold = (item: PendingCommand): boolean =>
    held.get(item.sessionId)?.push(item) !== undefined;

  /** The sessions of what is doubted wait for the look, and all others are stored meanwhile. */
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
        const lost = left.filter((item) => isHeld(item) && (!isStoreAway(error) || isLate(item)));
        left = left.filter((item) => isHeld(item) && !lost.includes(item));
        for (const { sessionId } of lost) {
          const rest = held.get(sessionId)!.filter((item) => !lost.includes(item));
          held.set(sessionId, rest);
        }
        reject(lost, error);
      }
      if (left.length > 0)
        await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs));
    }
    freed.push(...doubted.map(({ sessionId }) => sessionId));
    flush();
  };

  const isLate = ({ submittedMs, patienceMs: itsOwnMs }: PendingCommand): boolean =>
    clock.monotonic() - submittedMs >=
    (ended === "no" ? itsOwnMs : Math.min(itsOwnMs, leaveTimeoutMs));
  const isStoreAway = (error: unknown): boolean => hasCode(error, ...transientStoreCodes);

  /** Tells those whose time is up. What the store itself refuses may be stored yet for the others. */
  const giveUp = (items: readonly PendingCommand[], error: unknown): Promise<void> | void => {
    const left = items.filter((item) => hasCode(error, ...storeWideCodes) && !isLate(item));
    reject(
      items.filter((item) => !left.includes(item)),
      error,
    );
    if (left.length > 0) return store(left);
  };

  /** Until it is known what became of it. Only an error that says that nothing was stored is thrown. */
  const commit = async (
    record: LogRecord,
    items: readonly PendingCommand[],
  ): Promise<CommitResult> => {
    let unknown = false;
    for (let tries = 1; ; tries++) {
      try {
        return await journal.commit(head, record);
      } catch (error) {
        unknown ||= hasCode(error, "unknown_outcome");
        if (!unknown && (items.some(isLate) || !hasCode(error, ...storeWideCodes))) throw error;
        if (tries === 1) log.warn({ log: head.logId, error: messageOf(error) }, "a record waits");
        await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs));
        // Whoever closes the store can't wait for it any more; what became of the record is for the
        // next owner to see.
        if (hasCode(error, "closed")) return { type: "fenced" };
      }
    }
  };

  const apply = (draft: RecordDraft): void => {
    for (const [sessionId, header] of draft.headers) {
      const slot = slots.get(sessionId);
      if (slot) slot.header = header;
      else slots.set(sessionId, { header, waiting: undefined });
    }
    for (const { sessionId, clientId, seq } of draft.record.entries) {
      if (clientId !== null) known.add(sessionId, clientId, seq);
    }
    for (const { sessionId, clientId, seq } of draft.unstored) known.add(sessionId, clientId, seq);
    if (slots.size > maxSlots) forget();
  };

  /** Those of whom something is asked stay: without its header a session would be taken for none. */
  const forget = (): void => {
    const busySessions = new Set([...underWay, ...queue].map(({ sessionId }) => sessionId));
    for (const sessionId of held.keys()) busySessions.add(sessionId);
    for (const [sessionId, slot] of slots) {
      if (slots.size <= maxSlots * 0.9) return;
      if (!slot.waiting && !slot.header?.work && !busySessions.has(sessionId))
        slots.delete(sessionId);
    }
  };

  const reject = (items: readonly PendingCommand[], error: unknown): void => {
    waiting -= items.length;
    for (const item of items) item.reject(error);
  };
  const rejectAll = (items: readonly PendingCommand[]): void =>
    reject(items, ownerMoved(head.logId));
  /** None of it was put into a record, so that its callers needn't doubt a later refusal. */
  const rejectUnstored = (items: readonly PendingCommand[]): void =>
    reject(items, notAccepted(head.logId));

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
    log.warn({ log: head.logId, term: head.term }, "another pod has the log");
    drop();
    parts.onFenced();
  };

  const drop = (): void => {
    ended = "fenced";
    slots.clear();
    const rest = [...takeHeld(held.keys()), ...queue];
    queue = [];
    rejectAll(rest);
  };

  const put = (item: PendingCommand): void => {
    queue.push(item);
    if (scheduled || committing) return;
    scheduled = true;
    queueMicrotask(flush);
  };

  /**
   * Reads what a session's first command needs; what was asked meanwhile follows in its order. A store that
   * is away is asked again for as long as any of them has time, and `onGivenUp` is called where none has.
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
          (item) => ended === "no" && isStoreAway(error) && !isLate(item),
        );
        const lost = waitingCommands.filter((item) => !left.includes(item));
        slot.waiting = left;
        if (left.length === 0) onAbandoned();
        if (ended === "no") reject(lost, error);
        else rejectUnstored(lost);
        if (left.length === 0) return;
      }
      await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs));
    }
  };

  const load = (sessionId: string, slot: Slot, first: PendingCommand): Promise<void> => {
    const read = async (): Promise<void> => {
      const header = await journal.header(sessionId);
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
      // Also where nothing is ever stored: anybody can ask for sessions that there aren't.
      if (slots.size > maxSlots) forget();
      void load(item.sessionId, made, item);
    }
  };

  const release = (slot: Slot): void => {
    const waitingCommands = slot.waiting ?? [];
    slot.waiting = undefined;
    // One that stops has waited for all that it was to store: the log may be given up by now.
    if (ended !== "no") return rejectUnstored(waitingCommands);
    for (const each of waitingCommands) put(each);
  };

  return {
    get head() {
      return head;
    },
    submit(tenant, sessionId, command, { patienceMs: givenMs = patienceMs } = {}) {
      if (ended !== "no") return Promise.reject(notAccepted(head.logId));
      if (waiting >= maxWaiting) {
        const message = `${maxWaiting} commands wait for log ${head.logId} already: slow down`;
        return Promise.reject(new FlotillaError("overloaded", message));
      }
      waiting++;
      const request = {
        tenant,
        sessionId,
        command,
        agents: agentsOf(command),
        submittedMs: clock.monotonic(),
        patienceMs: Math.min(givenMs, patienceMs),
      };
      return new Promise((resolve, reject) => admit({ ...request, resolve, reject }));
    },
    cachedHeader: (sessionId) => slots.get(sessionId)?.header,
    async stop() {
      if (ended === "no") ended = "stopping";
      if (scheduled) flush();
      while (committing) await committing;
      rejectUnstored(takeHeld(held.keys()));
    },
    drop,
  };
}

/** Where the store itself is the trouble, halves would fare no better. */
const storeWideCodes = [
  "closed",
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_missing",
  "store_read_only",
  "store_unavailable",
] as const;

function ownerMoved(logId: number): FlotillaError {
  return new FlotillaError("not_owner", `another pod has log ${logId}: ask it again`);
}

function notAccepted(logId: number): FlotillaError {
  const message = `another pod has log ${logId}, or will have it: ask it again`;
  return new FlotillaError("not_owner", message, { details: { taken: false } });
}

/** Agents that a command names besides those that its session has. */
function agentsOf(command: Command): readonly string[] {
  if (command.type === "create") return command.agents;
  if (command.type === "members") return command.agents ?? none;
  return command.type === "append" && command.to !== undefined ? [command.to] : none;
}

const none: readonly string[] = [];

/**
 * The places of what clients have sent lately, so that sending it again is answered at once. What isn't
 * known here is found by the journal, which stores no client id twice.
 */
function knownIds(maxIds = 65_536) {
  const seqs = new Map<string, number>();
  const key = (sessionId: string, clientId: string) => `${sessionId} ${clientId}`;
  return {
    seqOf: (sessionId: string, clientId: string) => seqs.get(key(sessionId, clientId)),
    add(sessionId: string, clientId: string, seq: number): void {
      seqs.set(key(sessionId, clientId), seq);
      if (seqs.size > maxIds) seqs.delete(seqs.keys().next().value!);
    },
  };
}

type KnownIds = ReturnType<typeof knownIds>;

/**
 * What was stored isn't refused when it is sent again, whatever has become of its session since. An owner
 * may know nothing of what the one before it has stored, so it looks before it refuses.
 */
function createDuplicateCheck({
  journal,
  known,
}: {
  journal: Pick<Journal, "storedIds">;
  known: KnownIds;
}) {
  const checked = new WeakSet<PendingCommand>();
  return {
    /** Those that would be refused without anybody having looked. */
    doubted: ({ outcomes }: RecordDraft): PendingCommand[] =>
      outcomes
        .filter(([item, outcome]) => outcome instanceof FlotillaError && !checked.has(item))
        .map(([item]) => item)
        .filter((item) => clientIdOf(item) !== undefined),

    async check(items: readonly PendingCommand[]): Promise<void> {
      const ids = items.flatMap((item) => clientIdOf(item) ?? []);
      for (const { sessionId, clientId, seq } of await journal.storedIds(ids)) {
        known.add(sessionId, clientId, seq);
      }
      for (const item of items) checked.add(item);
    },
  };
}

/** A regeneration stores no entry that would keep its id. */
function clientIdOf({ sessionId, command }: PendingCommand): ClientIdRef | undefined {
  if (command.type !== "append" && command.type !== "tool_result") return undefined;
  return { sessionId, clientId: command.clientId };
}
