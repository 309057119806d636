import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { Answer, Command, Effect, Facts } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import type { AskedId, Committed, Head, Journal, LogRecord } from "./journal.ts";
import { type Draft, draftRecord, type Item } from "./record.ts";
import { patienceMs, retryMostMs, storeAway } from "./retry.ts";

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
  ): Promise<Answer>;
  /** What is committed of a session, where it is in memory. */
  look(sessionId: string): Header | undefined;
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
  slotsMost?: number;
};

export type CommittedRecord = {
  readonly head: Head;
  readonly record: LogRecord;
  /** What each session has to have done now, by its id. */
  readonly effects: readonly (readonly [sessionId: string, Effect])[];
  readonly formerUsers: Draft["formerUsers"];
  readonly durationMs: number;
};

type Slot = {
  /** Committed; undefined where there is no such session. */
  header: Header | undefined;
  /** Asked while the header was being read, in order. */
  waiting: Item[] | undefined;
};

const batchMost = 1_000;
const waitingMost = 20_000;
/** A pod that leaves while the store is away must be gone before it is killed. */
const leavingMs = 5_000;

export function createOwner(taken: Head, busy: readonly Header[], parts: OwnerParts): Owner {
  const { journal, clock, random, log, slotsMost = 50_000 } = parts;
  const slots = new Map<string, Slot>();
  const known = knownIds();
  const storedBefore = createStoredBefore({ journal, known });
  let head = taken;
  let queue: Item[] = [];
  /** What is asked of sessions of which something is being looked for, in order; the others go on. */
  const held = new Map<string, Item[]>();
  /** Sessions that are held no more. What was asked of them goes first in the next record. */
  let freed: string[] = [];
  let underWay: readonly Item[] = [];
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
    const batch = queue.length <= batchMost ? queue : queue.slice(0, batchMost);
    queue = queue.length <= batchMost ? [] : queue.slice(batchMost);
    underWay = batch;
    committing = store(batch).finally(() => {
      committing = undefined;
      underWay = [];
      flush();
    });
  };

  const takeHeld = (sessionIds: Iterable<string>): Item[] =>
    [...sessionIds].flatMap((sessionId) => {
      const items = held.get(sessionId) ?? [];
      held.delete(sessionId);
      return items;
    });

  const store = async (given: readonly Item[]): Promise<void> => {
    if (ended === "fenced") return refuseAll(given);
    const items = held.size === 0 ? given : given.filter((item) => !hold(item));
    if (items.length === 0) return;
    const draft = draftRecord(items, {
      header: (sessionId) => slots.get(sessionId)?.header,
      seqOf: known.seqOf,
      facts: parts.facts,
      recordId: parts.ids.next(),
    });
    const doubted = storedBefore.doubted(draft);
    if (doubted.length > 0) return storeAfterLook(items, doubted);
    // What changes nothing, a refusal above all, is decided by memory alone. Where another pod may have the
    // log, an empty record shows whether it has.
    if (draft.isEmpty && parts.isFresh()) return settle(draft);
    const startedMs = clock.monotonic();
    let committed: Committed;
    try {
      committed = await commit(draft.record, items);
    } catch (error) {
      // Nothing was stored. Of several, one may be at fault: in halves only that one fails.
      if (items.length > 1 && !hasCode(error, ...sharedFates)) {
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

  const hold = (item: Item): boolean => held.get(item.sessionId)?.push(item) !== undefined;

  /** The sessions of what is doubted wait for the look, and all others are stored meanwhile. */
  const storeAfterLook = (items: readonly Item[], doubted: readonly Item[]): Promise<void> => {
    for (const { sessionId } of doubted) held.set(sessionId, []);
    void lookFor(doubted);
    return store(items);
  };

  const lookFor = async (doubted: readonly Item[]): Promise<void> => {
    let left = doubted;
    for (let tries = 1; left.length > 0; tries++) {
      try {
        await storedBefore.look(left);
        break;
      } catch (error) {
        const isHeld = (item: Item) => held.get(item.sessionId)?.includes(item) ?? false;
        const lost = left.filter((item) => isHeld(item) && (!isAway(error) || isLate(item)));
        left = left.filter((item) => isHeld(item) && !lost.includes(item));
        for (const { sessionId } of lost) {
          const rest = held.get(sessionId)!.filter((item) => !lost.includes(item));
          held.set(sessionId, rest);
        }
        reject(lost, error);
      }
      if (left.length > 0) await sleep(clock, Math.min(contentionMs(tries, random), retryMostMs));
    }
    freed.push(...doubted.map(({ sessionId }) => sessionId));
    flush();
  };

  const isLate = ({ askedMs, patienceMs: itsOwnMs }: Item): boolean =>
    clock.monotonic() - askedMs >= (ended === "no" ? itsOwnMs : Math.min(itsOwnMs, leavingMs));
  const isAway = (error: unknown): boolean => hasCode(error, ...storeAway);

  /** Tells those whose time is up. What the store itself refuses may be stored yet for the others. */
  const giveUp = (items: readonly Item[], error: unknown): Promise<void> | void => {
    const left = items.filter((item) => hasCode(error, ...sharedFates) && !isLate(item));
    reject(
      items.filter((item) => !left.includes(item)),
      error,
    );
    if (left.length > 0) return store(left);
  };

  /** Until it is known what became of it. Only an error that says that nothing was stored is thrown. */
  const commit = async (record: LogRecord, items: readonly Item[]): Promise<Committed> => {
    let unknown = false;
    for (let tries = 1; ; tries++) {
      try {
        return await journal.commit(head, record);
      } catch (error) {
        unknown ||= hasCode(error, "unknown_outcome");
        if (!unknown && (items.some(isLate) || !hasCode(error, ...sharedFates))) throw error;
        if (tries === 1) log.warn({ log: head.logId, error: messageOf(error) }, "a record waits");
        await sleep(clock, Math.min(contentionMs(tries, random), retryMostMs));
        // Whoever closes the store can't wait for it any more; what became of the record is for the
        // next owner to see.
        if (hasCode(error, "closed")) return { type: "fenced" };
      }
    }
  };

  const apply = (draft: Draft): void => {
    for (const [sessionId, header] of draft.headers) {
      const slot = slots.get(sessionId);
      if (slot) slot.header = header;
      else slots.set(sessionId, { header, waiting: undefined });
    }
    for (const { sessionId, clientId, seq } of draft.record.entries) {
      if (clientId !== null) known.add(sessionId, clientId, seq);
    }
    for (const { sessionId, clientId, seq } of draft.unstored) known.add(sessionId, clientId, seq);
    if (slots.size > slotsMost) forget();
  };

  /** Those of whom something is asked stay: without its header a session would be taken for none. */
  const forget = (): void => {
    const asked = new Set([...underWay, ...queue].map(({ sessionId }) => sessionId));
    for (const sessionId of held.keys()) asked.add(sessionId);
    for (const [sessionId, slot] of slots) {
      if (slots.size <= slotsMost * 0.9) return;
      if (!slot.waiting && !slot.header?.work && !asked.has(sessionId)) slots.delete(sessionId);
    }
  };

  const reject = (items: readonly Item[], error: unknown): void => {
    waiting -= items.length;
    for (const item of items) item.reject(error);
  };
  const refuseAll = (items: readonly Item[]): void => reject(items, moved(head.logId));
  /** None of it was put into a record, so that its callers needn't doubt a later refusal. */
  const turnAway = (items: readonly Item[]): void => reject(items, notTaken(head.logId));

  const settle = (draft: Draft): void => {
    waiting -= draft.outcomes.length;
    for (const [item, outcome] of draft.outcomes) {
      if (outcome instanceof FlotillaError) item.reject(outcome);
      else item.resolve(outcome);
    }
  };

  const fenced = (items: readonly Item[]): void => {
    refuseAll(items);
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
    refuseAll(rest);
  };

  const put = (item: Item): void => {
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
    onGivenUp: () => void,
  ): Promise<void> => {
    for (let tries = 1; ; tries++) {
      try {
        await read();
        return release(slot);
      } catch (error) {
        const asked = slot.waiting ?? [];
        const left = asked.filter((item) => ended === "no" && isAway(error) && !isLate(item));
        const lost = asked.filter((item) => !left.includes(item));
        slot.waiting = left;
        if (left.length === 0) onGivenUp();
        if (ended === "no") reject(lost, error);
        else turnAway(lost);
        if (left.length === 0) return;
      }
      await sleep(clock, Math.min(contentionMs(tries, random), retryMostMs));
    }
  };

  const load = (sessionId: string, slot: Slot, first: Item): Promise<void> => {
    const read = async (): Promise<void> => {
      const header = await journal.header(sessionId);
      const names = [...(header?.agents ?? []), ...first.agents];
      await parts.prime(header?.tenant ?? first.tenant, names);
      slot.header = header;
    };
    return fill(slot, read, () => slots.delete(sessionId));
  };

  const admit = (item: Item): void => {
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
      if (slots.size > slotsMost) forget();
      void load(item.sessionId, made, item);
    }
  };

  const release = (slot: Slot): void => {
    const asked = slot.waiting ?? [];
    slot.waiting = undefined;
    // One that stops has waited for all that it was to store: the log may be given up by now.
    if (ended !== "no") return turnAway(asked);
    for (const each of asked) put(each);
  };

  return {
    get head() {
      return head;
    },
    submit(tenant, sessionId, command, { patienceMs: givenMs = patienceMs } = {}) {
      if (ended !== "no") return Promise.reject(notTaken(head.logId));
      if (waiting >= waitingMost) {
        const message = `${waitingMost} commands wait for log ${head.logId} already: slow down`;
        return Promise.reject(new FlotillaError("overloaded", message));
      }
      waiting++;
      const asked = {
        tenant,
        sessionId,
        command,
        agents: agentsOf(command),
        askedMs: clock.monotonic(),
        patienceMs: Math.min(givenMs, patienceMs),
      };
      return new Promise((resolve, reject) => admit({ ...asked, resolve, reject }));
    },
    look: (sessionId) => slots.get(sessionId)?.header,
    async stop() {
      if (ended === "no") ended = "stopping";
      if (scheduled) flush();
      while (committing) await committing;
      turnAway(takeHeld(held.keys()));
    },
    drop,
  };
}

/** Where the store itself is the trouble, halves would fare no better. */
const sharedFates = [
  "closed",
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_missing",
  "store_read_only",
  "store_unavailable",
] as const;

function moved(logId: number): FlotillaError {
  return new FlotillaError("not_owner", `another pod has log ${logId}: ask it again`);
}

function notTaken(logId: number): FlotillaError {
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
function knownIds(most = 65_536) {
  const seqs = new Map<string, number>();
  const key = (sessionId: string, clientId: string) => `${sessionId} ${clientId}`;
  return {
    seqOf: (sessionId: string, clientId: string) => seqs.get(key(sessionId, clientId)),
    add(sessionId: string, clientId: string, seq: number): void {
      seqs.set(key(sessionId, clientId), seq);
      if (seqs.size > most) seqs.delete(seqs.keys().next().value!);
    },
  };
}

type KnownIds = ReturnType<typeof knownIds>;

/**
 * What was stored isn't refused when it is sent again, whatever has become of its session since. An owner
 * may know nothing of what the one before it has stored, so it looks before it refuses.
 */
function createStoredBefore({
  journal,
  known,
}: {
  journal: Pick<Journal, "storedIds">;
  known: KnownIds;
}) {
  const looked = new WeakSet<Item>();
  return {
    /** Those that would be refused without anybody having looked. */
    doubted: ({ outcomes }: Draft): Item[] =>
      outcomes
        .filter(([item, outcome]) => outcome instanceof FlotillaError && !looked.has(item))
        .map(([item]) => item)
        .filter((item) => askedId(item) !== undefined),

    async look(items: readonly Item[]): Promise<void> {
      const asked = items.flatMap((item) => askedId(item) ?? []);
      for (const { sessionId, clientId, seq } of await journal.storedIds(asked)) {
        known.add(sessionId, clientId, seq);
      }
      for (const item of items) looked.add(item);
    },
  };
}

/** A regeneration stores no entry that would keep its id. */
function askedId({ sessionId, command }: Item): AskedId | undefined {
  if (command.type !== "append" && command.type !== "tool_result") return undefined;
  return { sessionId, clientId: command.clientId };
}
