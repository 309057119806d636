import { FlotillaError, hasCode, storeAwayCodes } from "../../../base/errors.ts";
import { maxReadTogetherBytes, type StoredStep } from "../../../steps/model.ts";
import type { Entry } from "../../../protocol/message.ts";
import type { EndedStep } from "../../conversation/command.ts";
import type { Checkpoint, ClientIdRef, Reads } from "../journal.ts";
import { type EntriesAfter, entryBytes, type Peeks, type Unsure } from "./peek.ts";
import { compareTurns, isForgotten } from "./unarchived.ts";

export type MergedReadsParts = {
  /** What the owner of a session's log has that isn't archived. */
  peeks: (sessionId: string) => Peeks;
  /** The number of a session's log. */
  logOf: (sessionId: string) => Promise<number>;
  archive: Reads;
};

/**
 * Reads of sessions whose log is ahead of its archive: what isn't archived first, then the archive below
 * it. In this order nothing falls between them.
 */
export function createMergedReads({ peeks, logOf, archive: stored }: MergedReadsParts): Reads {
  /** What was archived must still be there before anything is read of it. */
  const below = ({ isUnsure }: Unsure): Reads => {
    if (!isUnsure) return stored;
    const message = "the archive of the session's log isn't reached yet: try again later";
    throw new FlotillaError("store_unavailable", message, { retryAfterMs: 1_000 });
  };

  const stepsOf: Reads["steps"] = async (turn) => {
    const part = await peeks(turn.sessionId).steps(turn);
    const before = part.isOver || part.isWhole ? [] : await below(part).steps(turn);
    const steps = new Map<string, StoredStep>();
    for (const step of before) {
      if (!isForgotten(step, part.forgotten)) steps.set(step.key, step);
    }
    for (const row of part.rows) {
      if ((steps.get(row.key)?.seq ?? 0) < row.seq) steps.set(row.key, toStoredStep(row));
    }
    return [...steps.values()].toSorted((one, other) => one.seq - other.seq);
  };

  return {
    async header(sessionId) {
      const part = await peeks(sessionId).header(sessionId);
      return part.header ?? below(part).header(sessionId);
    },

    async storedIds(ids) {
      const logIds = await Promise.all(ids.map(({ sessionId }) => logOf(sessionId)));
      const byLog = Map.groupBy(ids.keys(), (at) => logIds[at]!);
      const found = await Promise.all(
        [...byLog.values()].map((places) => idsOfLog(places.map((at) => ids[at]!))),
      );
      return found.flat();
    },

    async entries(sessionId, page) {
      const part = await peeks(sessionId).entries(sessionId, page);
      const { firstSeq, entries } = part;
      if (firstSeq === null && !part.isDeleted) return below(part).entries(sessionId, page);
      if (part.isDeleted || page.after >= firstSeq! - 1) return [...entries];
      const archived = await below(part).entries(sessionId, page);
      const lastSeq = archived.at(-1)?.seq ?? page.after;
      // The archive has more than the page takes.
      const isCut = archived.length > 0 && page.maxBytes !== undefined && lastSeq < firstSeq! - 1;
      if (isCut || archived.length >= page.limit) return archived;
      return cut([...archived, ...entries.filter(({ seq }) => seq > lastSeq)], page);
    },

    async tail(sessionId, page) {
      const part = await peeks(sessionId).tail(sessionId, page);
      const { firstSeq, entries } = part;
      if (part.isDeleted) return [...entries];
      if (firstSeq === null || firstSeq > page.upTo) return below(part).tail(sessionId, page);
      const lowest = entries[0]?.seq ?? page.upTo + 1;
      const isWhole = lowest <= firstSeq || entries.length === 0;
      if (!isWhole || firstSeq <= page.after + 1 || entries.length >= page.limit) {
        return [...entries];
      }
      const left = page.limit - entries.length;
      const range = { ...page, upTo: firstSeq - 1, limit: left };
      const archived = await below(part).tail(sessionId, range);
      const newestFirst = [...archived, ...entries].toReversed();
      return cut(newestFirst, page).toReversed();
    },

    async newest(sessionId, messageId) {
      const part = await peeks(sessionId).newest(sessionId, messageId);
      if (part.entry || part.isDeleted) return part.entry;
      return below(part).newest(sessionId, messageId);
    },

    async checkpoint(sessionId) {
      const part = await peeks(sessionId).checkpoint(sessionId);
      if (part.isDeleted) return undefined;
      const archived = part.isWhole ? undefined : await below(part).checkpoint(sessionId);
      const left = archived && archived.epoch > part.endedEpoch ? archived : undefined;
      const last = laterOf(left, part.checkpoint);
      if (!last || (!part.header && !part.checkpoint)) return last;
      const header = part.header ?? (await below(part).header(sessionId));
      return header?.work?.epoch === last.epoch ? last : undefined;
    },

    steps: stepsOf,

    async stepValue(turn, key) {
      const part = await peeks(turn.sessionId).steps(turn);
      const row = part.rows.find((each) => each.key === key);
      if (part.isOver || part.isWhole) return row?.value;
      if (!row && part.forgotten.length === 0) return below(part).stepValue(turn, key);
      const archived = (await below(part).steps(turn)).find((each) => each.key === key);
      if (row && (archived?.seq ?? 0) < row.seq) return row.value;
      if (!archived || isForgotten(archived, part.forgotten)) return undefined;
      return archived.value ?? below(part).stepValue(turn, key);
    },

    async turns(sessionId, page) {
      const part = await peeks(sessionId).turns(sessionId, page);
      const { isDeleted, turns } = part;
      if (isDeleted || turns.length >= page.limit) return [...turns];
      const archived = await below(part).turns(sessionId, page);
      const isNew = (each: (typeof turns)[number]) =>
        archived.every((other) => compareTurns(each, other) !== 0);
      return [...turns.filter(isNew), ...archived]
        .toSorted((one, other) => compareTurns(other, one))
        .slice(0, page.limit);
    },
  };

  /** Of sessions of one log. */
  async function idsOfLog(ids: readonly ClientIdRef[]): ReturnType<Reads["storedIds"]> {
    const part = await peeks(ids[0]!.sessionId).storedIds(ids);
    const isFound = ({ sessionId, clientId }: ClientIdRef) =>
      part.found.some((each) => each.sessionId === sessionId && each.clientId === clientId);
    const others = ids.filter((each) => !isFound(each) && !part.deleted.includes(each.sessionId));
    return others.length === 0
      ? [...part.found]
      : [...part.found, ...(await below(part).storedIds(others))];
  }
}

/** The first of both that doesn't find the database away. The second is asked at once if it was away just now. */
export function eitherOf(first: Reads, second: Reads, isAway: () => boolean): Reads {
  const either =
    (name: keyof Reads) =>
    async (...args: readonly unknown[]) => {
      const ask = (reads: Reads) =>
        (reads[name] as (...all: typeof args) => Promise<unknown>)(...args);
      if (isAway()) return ask(second);
      try {
        return await ask(first);
      } catch (error) {
        if (!hasCode(error, ...storeAwayCodes)) throw error;
        return ask(second);
      }
    };
  const names = Object.keys(first) as (keyof Reads)[];
  return Object.fromEntries(names.map((name) => [name, either(name)])) as unknown as Reads;
}

/** As many as a page takes, and one at least. */
function cut(entries: readonly Entry[], { limit, maxBytes = Infinity }: EntriesAfter): Entry[] {
  const page: Entry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    bytes += maxBytes === Infinity ? 0 : entryBytes(entry);
    if (page.length >= limit || (bytes > maxBytes && page.length > 0)) break;
    page.push(entry);
  }
  return page;
}

function laterOf(
  stored: Checkpoint | undefined,
  added: Checkpoint | undefined,
): Checkpoint | undefined {
  if (!stored || !added) return stored ?? added;
  const isNewer =
    stored.epoch > added.epoch || (stored.epoch === added.epoch && stored.attempt > added.attempt);
  return isNewer ? stored : added;
}

function toStoredStep({ key, seq, kind, inputHash, value }: EndedStep): StoredStep {
  const bytes = Buffer.byteLength(value);
  const isSmall = bytes <= maxReadTogetherBytes;
  // Only waits need their age, and turns have none.
  return { key, seq, kind, inputHash, bytes, ageMs: 0, value: isSmall ? value : undefined };
}
