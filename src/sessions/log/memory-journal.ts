import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Entry } from "../../protocol/message.ts";
import { innerRanges } from "../../steps/key.ts";
import { maxReadTogetherBytes } from "../../steps/model.ts";
import type { EndedStep, EndedTurn } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import { changesOf, type Changes } from "./changes.ts";
import type { Checkpoint, StoredClientId, Head, Journal, LogRecord } from "./journal.ts";

type StoredEntry = {
  readonly seq: number;
  readonly clientId: string | null;
  readonly text: string;
};

type Stored = {
  logId: number;
  /** As JSON, so that callers cannot change stored objects. */
  header: string;
  entries: Map<number, StoredEntry>;
  seqs: Map<string, number>;
  checkpoint: Checkpoint | undefined;
  /** By epoch and key. */
  steps: Map<number, Map<string, EndedStep>>;
  turns: EndedTurn[];
};

/**
 * A journal in the memory of its process, for tests. It keeps only what the Journal type can read: read
 * positions and metadata exist in the database alone.
 */
export function createMemoryJournal({ ids }: { ids: Ids }): Journal {
  const heads: Head[] = [];
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

  const apply = (changes: Changes, head: Head): void => {
    const { headers, entries, checkpoints, ended, turns, deleted } = changes;
    for (const header of headers) {
      const { sessionId } = header;
      const made = sessions.get(sessionId) ?? freshSession(head.logId);
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
      sessions.set(sessionId, { ...freshSession(head.logId), header });
    }
  };

  const isOwn = (podId: string, { logId, term }: { logId: number; term: number }) =>
    heads[logId]?.owner === podId && heads[logId].term === term;
  const headerOf = ({ header }: Stored) => JSON.parse(header) as Header;
  const entriesOf = (sessionId: string) => [...(sessions.get(sessionId)?.entries.values() ?? [])];

  return {
    heads: async () => heads.map((each) => ({ ...each })),

    async create(logs) {
      if (heads.length > 0) return;
      for (let logId = 0; logId < logs; logId++) heads.push(freshHead(logId, ids.next()));
    },

    async take(seen, { podId, host, recordId }) {
      const record = { term: seen.term + 1, offset: seen.offset + 1, recordId };
      const standing = compareHead(seen, { ...seen, ...record });
      if (standing === "elsewhere") return undefined;
      const { beat, owner } = heads[seen.logId]!;
      if (standing === "there" && owner !== podId) return undefined;
      return {
        ...(heads[seen.logId] = { ...seen, ...record, owner: podId, host, beat: beat + 1 }),
      };
    },

    async release(podId, logs) {
      for (const { logId } of logs.filter((each) => isOwn(podId, each))) {
        heads[logId] = { ...heads[logId]!, owner: null, host: null };
      }
    },

    async beat(podId, logs) {
      const own = logs.filter((each) => isOwn(podId, each)).map(({ logId }) => logId);
      for (const logId of own) heads[logId] = { ...heads[logId]!, beat: heads[logId]!.beat + 1 };
      return { owned: own.toSorted((one, other) => one - other), heads: [...heads] };
    },

    async commit(at, record) {
      const changes = changesOf(record);
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
      apply(changes, head);
      return { type: "committed", head: { ...head } };
    },

    async header(sessionId) {
      const stored = sessions.get(sessionId);
      return stored && headerOf(stored);
    },

    async busy(logId) {
      const own = [...sessions.values()].filter((each) => each.logId === logId);
      return own.map(headerOf).filter(({ work }) => work !== null);
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

function freshHead(logId: number, incarnation: string): Head {
  const at = { term: 0, owner: null, host: null, offset: 0, recordId: "", beat: 0 };
  return { logId, incarnation, ...at };
}

function freshSession(logId: number): Stored {
  return {
    logId,
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
