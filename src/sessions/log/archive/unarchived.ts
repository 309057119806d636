import { innerRanges } from "../../../steps/key.ts";
import type { EndedTurn } from "../../conversation/command.ts";
import type { Header } from "../../conversation/header.ts";
import { type Changes, changesOf } from "../changes.ts";
import type { LogRecord, StoredClientId, TurnRef, TurnsPage } from "../journal.ts";
import { estimateBytes } from "../record.ts";
import { entryIdsOf } from "../record-codec.ts";

/** A record of the log, where it is, and the hash over all up to it. */
export type LoggedRecord = {
  readonly offset: number;
  readonly chain: string;
  readonly record: LogRecord;
  /** How many bytes it has in the log, if it was read there. */
  readonly bytes?: number;
};

/** The same as it is kept. What is too much for memory has no `record`, and is read from the log again. */
export type KeptRecord = Omit<LoggedRecord, "record" | "bytes"> & {
  readonly recordId: string;
  readonly entries: number;
  readonly bytes: number;
  readonly addedMs: number;
  /** The sessions that it changes. */
  readonly sessionIds: ReadonlySet<string>;
  readonly record: LogRecord | undefined;
};

/** Where the body of something is: in which record, and at which place of its member there. */
export type BodyRef = { readonly offset: number; readonly at: number };

type EntryRef = BodyRef & {
  readonly seq: number;
  readonly messageId: string;
  readonly clientId: string | null;
};
type CheckpointRef = BodyRef & { readonly epoch: number; readonly attempt: number };
type StepRef = BodyRef & {
  readonly row: number;
  readonly epoch: number;
  readonly key: string;
  readonly seq: number;
  readonly forgets: boolean;
};

/** What records above the watermark add to one session, each with the offset of its record. */
type SessionPart = {
  header: { readonly offset: number; readonly header: Header } | undefined;
  /** The record that has deleted it: nothing of what the archive has counts any more. */
  deletedAt: number | undefined;
  entries: EntryRef[];
  /** The seqs of those that have a client id. */
  ids: Map<string, number>;
  metadata: BodyRef | undefined;
  reads: { readonly offset: number; readonly user: string; readonly seq: number }[];
  ended: { readonly offset: number; readonly epoch: number }[];
  checkpoints: CheckpointRef[];
  stepsOver: { readonly offset: number; readonly epoch: number }[];
  steps: StepRef[];
  turns: { readonly offset: number; readonly turn: EndedTurn }[];
};

/** Steps that the archive may have, and that don't count any more: those in a range with a lower seq. */
export type Forgotten = { readonly low: string; readonly high: string; readonly beforeSeq: number };

/**
 * What a log has and its archive doesn't: the part of every session that records above the watermark have
 * changed. Nothing leaves it before the archive has it. It holds records that the archive has, too, if that
 * wasn't known when they were added: what is read of both together is the same.
 */
export type Unarchived = {
  readonly records: number;
  readonly entries: number;
  readonly bytes: number;
  /** When the oldest record was added; undefined if there is none. */
  readonly oldestMs: number | undefined;
  /** Adds the record that follows all others. */
  add(logged: LoggedRecord, nowMs: number): void;
  /** The archive has everything up to this offset. Returns which sessions that changes. */
  archived(offset: number): ReadonlySet<string>;
  /** The records from the first on. */
  first(count: number): readonly KeptRecord[];
  /** A record that is in memory. */
  recordAt(offset: number): LogRecord | undefined;
  isDeleted(sessionId: string): boolean;
  header(sessionId: string): Header | undefined;
  storedId(sessionId: string, clientId: string): StoredClientId | undefined;
  /** Where the entries of a session are, in order. */
  entriesOf(sessionId: string): readonly EntryRef[];
  newest(sessionId: string, messageId: string): BodyRef | undefined;
  /** The last checkpoint, and the last turn that has ended. */
  checkpoint(sessionId: string): {
    readonly ref: CheckpointRef | undefined;
    readonly endedEpoch: number;
  };
  steps(turn: TurnRef): {
    /** The turn has ended meanwhile: none of the steps that the archive has counts. */
    readonly isOver: boolean;
    readonly rows: readonly StepRef[];
    readonly forgotten: readonly Forgotten[];
  };
  turns(sessionId: string, page: TurnsPage): readonly EndedTurn[];
  /** What isn't read with the log elsewhere: the metadata, and up to where users have read. */
  facts(sessionId: string): {
    readonly metadata: BodyRef | undefined;
    readonly reads: ReadonlyMap<string, number>;
  };
};

/** What the records of one log take in memory at most. */
const usualHeldBytes = 32 * 1_024 * 1_024;

export function createUnarchived({
  maxHeldBytes = usualHeldBytes,
}: { maxHeldBytes?: number | undefined } = {}): Unarchived {
  let kept: KeptRecord[] = [];
  const byOffset = new Map<number, KeptRecord>();
  const parts = new Map<string, SessionPart>();
  let entries = 0;
  let bytes = 0;
  let heldBytes = 0;

  const partOf = (sessionId: string): SessionPart => {
    const found = parts.get(sessionId) ?? emptyPart();
    parts.set(sessionId, found);
    return found;
  };

  const drop = (record: KeptRecord): void => {
    byOffset.delete(record.offset);
    entries -= record.entries;
    bytes -= record.bytes;
    if (record.record) heldBytes -= record.bytes;
  };

  return {
    get records() {
      return kept.length;
    },
    get entries() {
      return entries;
    },
    get bytes() {
      return bytes;
    },
    get oldestMs() {
      return kept[0]?.addedMs;
    },

    add({ offset, chain, record, bytes: size = estimateBytes(record) }, nowMs) {
      const changes = changesOf(record);
      // The newest are left out, because the oldest are archived next.
      const isHeld = heldBytes + size <= maxHeldBytes;
      const sessionIds = new Set<string>();
      const changed = (sessionId: string): SessionPart => {
        sessionIds.add(sessionId);
        return partOf(sessionId);
      };
      for (const index of Object.values(indexes)) index(changed, { offset, record, changes });
      const next: KeptRecord = {
        offset,
        chain,
        recordId: record.recordId,
        entries: entryIdsOf(record).length,
        bytes: size,
        addedMs: nowMs,
        sessionIds,
        record: isHeld ? record : undefined,
      };
      kept.push(next);
      byOffset.set(offset, next);
      entries += next.entries;
      bytes += size;
      if (isHeld) heldBytes += size;
    },

    archived(offset) {
      const changed = new Set<string>();
      let count = 0;
      for (; count < kept.length && kept[count]!.offset <= offset; count++) {
        const record = kept[count]!;
        drop(record);
        for (const sessionId of record.sessionIds) changed.add(sessionId);
      }
      if (count > 0) kept = kept.slice(count);
      for (const sessionId of changed) {
        const part = parts.get(sessionId)!;
        shorten(part, offset);
        if (isEmpty(part)) parts.delete(sessionId);
      }
      return changed;
    },

    first: (count) => kept.slice(0, count),
    recordAt: (offset) => byOffset.get(offset)?.record,
    isDeleted: (sessionId) => parts.get(sessionId)?.deletedAt !== undefined,
    header: (sessionId) => parts.get(sessionId)?.header?.header,

    storedId(sessionId, clientId) {
      const seq = parts.get(sessionId)?.ids.get(clientId);
      return seq === undefined ? undefined : { sessionId, clientId, seq };
    },

    entriesOf: (sessionId) => parts.get(sessionId)?.entries ?? [],
    newest: (sessionId, messageId) =>
      parts.get(sessionId)?.entries.findLast((each) => each.messageId === messageId),

    checkpoint(sessionId) {
      const { ended = [], checkpoints = [] } = parts.get(sessionId) ?? {};
      const endedEpoch = Math.max(0, ...ended.map(({ epoch }) => epoch));
      let ref: CheckpointRef | undefined;
      for (const each of checkpoints) {
        const isPast = ended.some(
          ({ offset, epoch }) => each.offset < offset && each.epoch <= epoch,
        );
        const isOlder =
          ref !== undefined &&
          (ref.epoch > each.epoch || (ref.epoch === each.epoch && ref.attempt > each.attempt));
        if (!isPast && !isOlder) ref = each;
      }
      return { ref, endedEpoch };
    },

    steps({ sessionId, epoch }) {
      const { steps = [], stepsOver = [], deletedAt } = parts.get(sessionId) ?? {};
      const overAt = Math.max(
        deletedAt ?? -1,
        ...stepsOver.filter((each) => each.epoch === epoch).map(({ offset }) => offset),
      );
      const rows = new Map<string, StepRef>();
      const forgotten: Forgotten[] = [];
      for (const each of steps) {
        // In the record that ends the turn, no steps of it are left.
        if (each.epoch !== epoch || each.offset <= overAt) continue;
        if ((rows.get(each.key)?.seq ?? 0) < each.seq) rows.set(each.key, each);
        if (!each.forgets) continue;
        for (const [low, high] of innerRanges(each.key)) {
          forgotten.push({ low, high, beforeSeq: each.seq });
        }
        for (const { key, seq } of rows.values()) {
          if (isForgotten({ key, seq }, forgotten)) rows.delete(key);
        }
      }
      return { isOver: overAt >= 0, rows: [...rows.values()], forgotten };
    },

    turns(sessionId, { before, limit }) {
      const all = parts.get(sessionId)?.turns.map(({ turn }) => turn) ?? [];
      return all
        .filter((turn) => before === undefined || compareTurns(turn, before) < 0)
        .toSorted((one, other) => compareTurns(other, one))
        .slice(0, limit);
    },

    facts(sessionId) {
      const { metadata, reads = [] } = parts.get(sessionId) ?? {};
      const furthest = new Map<string, number>();
      for (const { user, seq } of reads) {
        furthest.set(user, Math.max(seq, furthest.get(user) ?? 0));
      }
      return { metadata, reads: furthest };
    },
  };
}

/** Whether a step within another one was stored before that one, which stands for it. */
export function isForgotten(
  { key, seq }: { readonly key: string; readonly seq: number },
  forgotten: readonly Forgotten[],
): boolean {
  return forgotten.some(({ low, high, beforeSeq }) => key >= low && key < high && seq < beforeSeq);
}

type AnAttempt = Pick<EndedTurn, "epoch" | "attempt">;

/** The order in which attempts at turns have ended. */
export function compareTurns(one: AnAttempt, other: AnAttempt): number {
  return one.epoch - other.epoch || one.attempt - other.attempt;
}

type Added = {
  readonly offset: number;
  readonly record: LogRecord;
  readonly changes: Changes;
};
type Index = (partOf: (sessionId: string) => SessionPart, added: Added) => void;

/**
 * What each member of a record adds to its sessions. One that is missing does not compile. Acts, counts of
 * tenants and tasks are of no session, and nothing is read of them but from the archive.
 */
const indexes: { readonly [Member in keyof Changes]-?: Index } = {
  // Before all others, because nothing of before stays, and what comes with it may.
  deleted(partOf, { offset, changes }) {
    for (const sessionId of changes.deleted) {
      Object.assign(partOf(sessionId), { ...emptyPart(), deletedAt: offset });
    }
  },
  headers(partOf, { offset, changes }) {
    for (const header of changes.headers) partOf(header.sessionId).header = { offset, header };
  },
  // They are in the header.
  members() {},
  entries(partOf, { offset, record, changes }) {
    const isGone = new Set(changes.deleted);
    entryIdsOf(record).forEach(({ sessionId, seq, messageId, clientId }, at) => {
      if (isGone.has(sessionId)) return;
      const part = partOf(sessionId);
      part.entries.push({ offset, at, seq, messageId, clientId });
      if (clientId !== null) part.ids.set(clientId, seq);
    });
  },
  metadata(partOf, { offset, record, changes }) {
    record.metadata.forEach(({ sessionId }, at) => {
      if (changes.metadata.has(sessionId)) partOf(sessionId).metadata = { offset, at };
    });
  },
  reads(partOf, { offset, changes }) {
    for (const { sessionId, user, seq } of changes.reads) {
      partOf(sessionId).reads.push({ offset, user, seq });
    }
  },
  ended(partOf, { offset, changes }) {
    for (const { sessionId, epoch } of changes.ended) {
      partOf(sessionId).ended.push({ offset, epoch });
    }
  },
  checkpoints(partOf, { offset, record, changes }) {
    for (const checkpoint of changes.checkpoints) {
      const { sessionId, epoch, attempt } = checkpoint;
      const at = record.checkpoints.lastIndexOf(checkpoint);
      const part = partOf(sessionId);
      // Only the last of an attempt is ever read.
      const before = part.checkpoints.at(-1);
      if (before?.epoch === epoch && before.attempt === attempt) part.checkpoints.pop();
      part.checkpoints.push({ offset, at, epoch, attempt });
    }
  },
  stepsOver(partOf, { offset, changes }) {
    for (const { sessionId, epoch } of changes.stepsOver) {
      partOf(sessionId).stepsOver.push({ offset, epoch });
    }
  },
  steps(partOf, { offset, record, changes }) {
    const underWay = new Set(
      changes.steps.map(({ sessionId, epoch }) => JSON.stringify([sessionId, epoch])),
    );
    record.steps.forEach(({ sessionId, epoch, rows }, at) => {
      if (!underWay.has(JSON.stringify([sessionId, epoch]))) return;
      rows.forEach(({ key, seq, forgets }, row) => {
        partOf(sessionId).steps.push({ offset, at, row, epoch, key, seq, forgets });
      });
    });
  },
  turns(partOf, { offset, changes }) {
    for (const { sessionId, ...turn } of changes.turns) {
      partOf(sessionId).turns.push({ offset, turn });
    }
  },
  acts() {},
  tenants() {},
  tasks() {},
};

function emptyPart(): SessionPart {
  return {
    header: undefined,
    deletedAt: undefined,
    entries: [],
    ids: new Map(),
    metadata: undefined,
    reads: [],
    ended: [],
    checkpoints: [],
    stepsOver: [],
    steps: [],
    turns: [],
  };
}

/** Takes away what comes from records up to an offset. */
function shorten(part: SessionPart, offset: number): void {
  const isAbove = (each: { readonly offset: number }) => each.offset > offset;
  const rest = <Item extends { readonly offset: number }>(all: Item[]): Item[] =>
    all.length === 0 || isAbove(all[0]!) ? all : all.filter(isAbove);
  for (const { clientId, seq, ...ref } of part.entries) {
    if (isAbove(ref)) break;
    if (clientId !== null && part.ids.get(clientId) === seq) part.ids.delete(clientId);
  }
  part.entries = rest(part.entries);
  part.reads = rest(part.reads);
  part.ended = rest(part.ended);
  part.checkpoints = rest(part.checkpoints);
  part.stepsOver = rest(part.stepsOver);
  part.steps = rest(part.steps);
  part.turns = rest(part.turns);
  if (part.header && !isAbove(part.header)) part.header = undefined;
  if (part.metadata && !isAbove(part.metadata)) part.metadata = undefined;
  if (part.deletedAt !== undefined && part.deletedAt <= offset) part.deletedAt = undefined;
}

function isEmpty({ ids, ...part }: SessionPart): boolean {
  const isNone = (each: unknown) => (Array.isArray(each) ? each.length === 0 : each === undefined);
  return ids.size === 0 && Object.values(part).every(isNone);
}
