import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Entry } from "../../protocol/message.ts";
import { innerRanges } from "../../steps/key.ts";
import { maxReadTogetherBytes } from "../../steps/model.ts";
import type { EndedStep, EndedTurn } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import { changesOf, type Changes } from "./changes.ts";
import type {
  Checkpoint,
  Head,
  Journal,
  Log,
  LogRecord,
  Presence,
  StoredClientId,
} from "./journal.ts";
import { decodeRecord, encodeRecord } from "./record-codec.ts";

type StoredEntry = {
  readonly seq: number;
  readonly clientId: string | null;
  readonly text: string;
};

type Stored = {
  /** As JSON, so that callers cannot change stored objects. */
  header: string;
  entries: Map<number, StoredEntry>;
  seqs: Map<string, number>;
  checkpoint: Checkpoint | undefined;
  /** By epoch and key. */
  steps: Map<number, Map<string, EndedStep>>;
  turns: EndedTurn[];
};

type MemoryJournalParts = {
  ids: Ids;
  /** Default: no limit. */
  maxRecordBytes?: number;
};

/**
 * A journal in the memory of its process, for tests. Its logs are the bytes of their records, from which a
 * new owner recovers. Besides it keeps only what `Reads` has: read positions and metadata exist in the
 * database alone.
 */
export function createMemoryJournal({
  ids,
  maxRecordBytes = Infinity,
}: MemoryJournalParts): Journal {
  const heads: Head[] = [];
  /** The records of each log, in their order. */
  const records: Uint8Array[][] = [];
  const sessions = new Map<string, Stored>();

  /** Compares the log's head with `seen`, and with `to`, where the record would move it. */
  const compareHead = (seen: Head, to: Head): "before" | "there" | "elsewhere" => {
    const head = heads[seen.logId];
    if (!head || head.incarnation !== seen.incarnation) return "elsewhere";
    if (isAt(head, to)) return "there";
    return isAt(head, seen) ? "before" : "elsewhere";
  };

  type Named = Pick<LogRecord["entries"][number], "sessionId" | "clientId">;
  const find = ({ sessionId, clientId }: Named): StoredClientId[] => {
    if (clientId === null) return [];
    const seq = sessions.get(sessionId)?.seqs.get(clientId);
    return seq === undefined ? [] : [{ sessionId, clientId, seq }];
  };

  const apply = (changes: Changes): void => {
    const { headers, entries, checkpoints, ended, turns, deleted } = changes;
    for (const header of headers) {
      const { sessionId } = header;
      const made = sessions.get(sessionId) ?? freshSession();
      made.header = JSON.stringify(header);
      sessions.set(sessionId, made);
    }
    for (const { sessionId, clientId, ...entry } of entries) {
      const stored = sessions.get(sessionId)!;
      stored.entries.set(entry.seq, { seq: entry.seq, clientId, text: JSON.stringify(entry) });
      if (clientId !== null) stored.seqs.set(clientId, entry.seq);
    }
    for (const { sessionId, epoch } of ended) {
      const stored = sessions.get(sessionId)!;
      if ((stored.checkpoint?.epoch ?? Infinity) <= epoch) stored.checkpoint = undefined;
    }
    for (const checkpoint of checkpoints) {
      const stored = sessions.get(checkpoint.sessionId);
      if (stored && !isNewer(stored.checkpoint, checkpoint)) stored.checkpoint = { ...checkpoint };
    }
    for (const { sessionId, epoch } of changes.stepsOver) {
      sessions.get(sessionId)?.steps.delete(epoch);
    }
    for (const { sessionId, epoch, step } of changes.steps) {
      const ofSession = sessions.get(sessionId)!.steps;
      const ofTurn = ofSession.get(epoch) ?? new Map<string, EndedStep>();
      ofSession.set(epoch, ofTurn);
      if ((ofTurn.get(step.key)?.seq ?? 0) < step.seq) ofTurn.set(step.key, step);
    }
    for (const { sessionId, epoch, step } of changes.steps) {
      if (step.forgets) dropInner(sessions.get(sessionId)!.steps.get(epoch)!, step);
    }
    for (const { sessionId, ...turn } of turns) sessions.get(sessionId)!.turns.push({ ...turn });
    for (const sessionId of deleted) {
      const { header } = sessions.get(sessionId)!;
      sessions.set(sessionId, { ...freshSession(), header });
    }
  };

  const headerOf = ({ header }: Stored) => JSON.parse(header) as Header;
  const entriesOf = (sessionId: string) => [...(sessions.get(sessionId)?.entries.values() ?? [])];

  return {
    maxRecordBytes,

    heads: async () => heads.map((each) => ({ ...each })),

    async create(logs) {
      if (heads.length > 0) return;
      for (let logId = 0; logId < logs; logId++) {
        heads.push(freshHead(logId, ids.next()));
        records.push([]);
      }
    },

    async take(seen, { podId, host, recordId }) {
      const record = { term: seen.term + 1, offset: seen.offset + 1, recordId };
      const standing = compareHead(seen, { ...seen, ...record });
      if (standing === "elsewhere") return undefined;
      const head = heads[seen.logId]!;
      if (standing === "there" && head.owner !== podId) return undefined;
      return { ...(heads[seen.logId] = { ...head, ...record, owner: podId, host }) };
    },

    async recover({ logId }) {
      const headers = new Map<string, Header>();
      for (const bytes of records[logId]!) {
        for (const header of changesOf(decodeRecord(bytes)).headers) {
          headers.set(header.sessionId, header);
        }
      }
      return { busy: [...headers.values()].filter(({ work }) => work !== null) };
    },

    async release(podId, released) {
      for (const known of released) {
        const head = heads[known.logId];
        if (head?.owner !== podId || !isAt(head, known)) continue;
        const record = { offset: head.offset + 1, recordId: ids.next() };
        heads[head.logId] = { ...head, ...record, owner: null, host: null };
      }
    },

    async commit(at, record) {
      const bytes = encodeRecord(record, { maxBytes: maxRecordBytes });
      const changes = changesOf(decodeRecord(bytes));
      const moved = { offset: at.offset + 1, recordId: record.recordId };
      const standing = compareHead(at, { ...at, ...moved });
      if (standing === "elsewhere") return { type: "fenced" };
      if (standing === "there") return { type: "committed", head: { ...heads[at.logId]! } };
      const found = changes.entries.flatMap(find);
      if (found.length > 0) return { type: "duplicate", found };
      for (const { sessionId, seq } of changes.entries) {
        if (sessions.get(sessionId)?.entries.has(seq)) {
          throw new FlotillaError("internal", `session ${sessionId} already has an entry ${seq}`);
        }
      }
      const head = (heads[at.logId] = { ...heads[at.logId]!, ...moved });
      records[at.logId]!.push(bytes);
      apply(changes);
      return { type: "committed", head: { ...head } };
    },

    async header(sessionId) {
      const stored = sessions.get(sessionId);
      return stored && headerOf(stored);
    },

    async storedIds(ids) {
      return ids.flatMap(find);
    },

    async entries(sessionId, { after, limit, maxBytes = Infinity }) {
      let bytes = 0;
      const page: Entry[] = [];
      for (const { seq, text } of entriesOf(sessionId)) {
        if (seq <= after) continue;
        bytes += Buffer.byteLength(text);
        if (page.length >= limit || (bytes > maxBytes && page.length > 0)) break;
        page.push(JSON.parse(text) as Entry);
      }
      return page;
    },

    async tail(sessionId, { after, upTo, limit, maxBytes = Infinity }) {
      let bytes = 0;
      const page: Entry[] = [];
      for (const { seq, text } of entriesOf(sessionId).toReversed()) {
        if (seq > upTo) continue;
        bytes += Buffer.byteLength(text);
        const isFull = page.length >= limit || (bytes > maxBytes && page.length > 0);
        if (seq <= after || isFull) break;
        page.push(JSON.parse(text) as Entry);
      }
      return page.toReversed();
    },

    async newest(sessionId, messageId) {
      const all = entriesOf(sessionId).map(({ text }) => JSON.parse(text) as Entry);
      return all.findLast((each) => each.messageId === messageId);
    },

    async checkpoint(sessionId) {
      const stored = sessions.get(sessionId);
      if (stored?.checkpoint?.epoch !== (stored && headerOf(stored).work?.epoch)) return undefined;
      return stored?.checkpoint;
    },

    async steps({ sessionId, epoch }) {
      const rows = [...(sessions.get(sessionId)?.steps.get(epoch)?.values() ?? [])];
      return rows
        .toSorted((one, other) => one.seq - other.seq)
        .map(({ key, seq, kind, inputHash, value }) => {
          const bytes = Buffer.byteLength(value);
          const isSmall = bytes <= maxReadTogetherBytes;
          // Only waits need it, and turns have none.
          const ageMs = 0;
          return { key, seq, kind, inputHash, bytes, ageMs, value: isSmall ? value : undefined };
        });
    },

    async stepValue({ sessionId, epoch }, key) {
      return sessions.get(sessionId)?.steps.get(epoch)?.get(key)?.value;
    },

    async turns(sessionId, { before, limit }) {
      const own = sessions.get(sessionId)?.turns ?? [];
      const isBefore = ({ epoch, attempt }: EndedTurn) =>
        before === undefined ||
        epoch < before.epoch ||
        (epoch === before.epoch && attempt < before.attempt);
      return own.filter(isBefore).toReversed().slice(0, limit);
    },
  };
}

/** The beats of owners, for pods in one process. */
export function createMemoryPresence(log: Pick<Log, "heads">): Presence {
  const beats = new Map<number, number>();
  return {
    async beat(podId, known) {
      const heads = await log.heads();
      const isOwn = ({ logId, term }: Head) =>
        heads[logId]?.owner === podId && heads[logId].term === term;
      const owned = known.filter(isOwn).map(({ logId }) => logId);
      for (const logId of owned) beats.set(logId, (beats.get(logId) ?? 0) + 1);
      return {
        owned: owned.toSorted((one, other) => one - other),
        heads: heads.map((head) => ({ ...head, beat: beats.get(head.logId) ?? 0 })),
      };
    },
  };
}

function freshHead(logId: number, incarnation: string): Head {
  const at = { term: 0, owner: null, host: null, offset: 0, recordId: "" };
  return { logId, incarnation, ...at };
}

function freshSession(): Stored {
  return {
    header: "",
    entries: new Map(),
    seqs: new Map(),
    checkpoint: undefined,
    steps: new Map(),
    turns: [],
  };
}

function dropInner(ofTurn: Map<string, EndedStep>, outer: EndedStep): void {
  const ranges = innerRanges(outer.key);
  for (const { key, seq } of ofTurn.values()) {
    const isWithin = ranges.some(([low, high]) => key >= low && key < high);
    if (isWithin && seq < outer.seq) ofTurn.delete(key);
  }
}

function isAt(head: Head, { term, offset, recordId }: Head): boolean {
  return head.term === term && head.offset === offset && head.recordId === recordId;
}

function isNewer(one: Checkpoint | undefined, other: Checkpoint): boolean {
  if (one === undefined || one.epoch < other.epoch) return false;
  return one.epoch > other.epoch || one.attempt > other.attempt;
}
