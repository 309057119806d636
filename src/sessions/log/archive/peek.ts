import type { Entry } from "../../../protocol/message.ts";
import type { EndedStep, EndedTurn } from "../../conversation/command.ts";
import type { Header } from "../../conversation/header.ts";
import { entryBody } from "../entry-body.ts";
import type {
  Checkpoint,
  ClientIdRef,
  LogRecord,
  StoredClientId,
  TurnRef,
  TurnsPage,
} from "../journal.ts";
import type { BodyRef, Forgotten, Unarchived } from "./unarchived.ts";

/**
 * What the owner of a log has that its archive lacks, one read at a time. All of it is JSON, because other
 * pods ask for it over the bus. A reader asks here first and the archive after that: what moves from one to
 * the other meanwhile is met twice, and never missed.
 */
export type Peeks = {
  header(sessionId: string): Promise<HeaderPart>;
  storedIds(ids: readonly ClientIdRef[]): Promise<IdsPart>;
  entries(sessionId: string, page: EntriesAfter): Promise<EntriesPart>;
  tail(sessionId: string, page: EntriesUpTo): Promise<EntriesPart>;
  newest(sessionId: string, messageId: string): Promise<NewestPart>;
  checkpoint(sessionId: string): Promise<CheckpointPart>;
  steps(turn: TurnRef): Promise<StepsPart>;
  turns(sessionId: string, page: TurnsPage): Promise<TurnsPart>;
  facts(sessionId: string): Promise<FactsPart>;
};

/** Of every answer: whether the archive may lack what it had, since its owner hasn't reached it yet. */
export type Unsure = { readonly isUnsure?: true };

export type EntriesAfter = {
  readonly after: number;
  readonly limit: number;
  readonly maxBytes?: number;
};
export type EntriesUpTo = EntriesAfter & { readonly upTo: number };

export type HeaderPart = Unsure & { readonly header?: Header };
export type IdsPart = Unsure & {
  readonly found: readonly StoredClientId[];
  /** Sessions of which the archive may have ids that don't count any more. */
  readonly deleted: readonly string[];
};
/** `isDeleted`: nothing that the archive has of the session counts any more. */
export type EntriesPart = Unsure & {
  readonly isDeleted: boolean;
  /** The first entry that may not be archived; null if all are. */
  readonly firstSeq: number | null;
  readonly entries: readonly Entry[];
};
export type NewestPart = Unsure & { readonly isDeleted: boolean; readonly entry?: Entry };
export type CheckpointPart = Unsure & {
  readonly isDeleted: boolean;
  /** The archive has none of the present turn, or an older one. */
  readonly isWhole: boolean;
  readonly header?: Header;
  readonly checkpoint?: Checkpoint;
  /** The last turn that has ended; -1 if none has. */
  readonly endedEpoch: number;
};
export type StepsPart = Unsure & {
  /** None of the steps that the archive has counts any more. */
  readonly isOver: boolean;
  /** The archive has no others: all of the turn is in records that were looked at. */
  readonly isWhole: boolean;
  readonly rows: readonly EndedStep[];
  readonly forgotten: readonly Forgotten[];
};
export type TurnsPart = Unsure & {
  readonly isDeleted: boolean;
  readonly turns: readonly EndedTurn[];
};
export type FactsPart = Unsure & {
  readonly metadata?: string;
  /** Users, each with the entry up to which they have read. */
  readonly reads: readonly (readonly [user: string, seq: number])[];
};

/** Every read by its name, so that one that comes over the bus is known. One that is missing does not compile. */
export const peekNames = {
  header: true,
  storedIds: true,
  entries: true,
  tail: true,
  newest: true,
  checkpoint: true,
  steps: true,
  turns: true,
  facts: true,
} as const satisfies { readonly [Name in keyof Peeks]: true };

/** What one answer holds of entries at most, whatever its caller asks for: pods send each other 16 MiB. */
export const maxPeekBytes = 8 * 1_024 * 1_024;

/** Gives the record at an offset that isn't archived, from memory or from the log. */
export type LoadRecord = (offset: number) => Promise<LogRecord>;

/**
 * `unarchived` may be more than that: all records that the log still has. Then the archive is asked for less.
 */
export function createPeeks(unarchived: Unarchived, load: LoadRecord): Peeks {
  const recordAt = async (offset: number): Promise<LogRecord> =>
    unarchived.recordAt(offset) ?? load(offset);
  const entryAt = async ({ offset, at }: BodyRef): Promise<Entry> => {
    const { sessionId: _, clientId: __, ...entry } = (await recordAt(offset)).entries[at]!;
    return entry;
  };

  /** The bodies of these, until they are more than a page takes. */
  const read = async (
    refs: readonly BodyRef[],
    { limit, maxBytes: wanted = maxPeekBytes }: EntriesAfter,
  ): Promise<Entry[]> => {
    const maxBytes = Math.min(wanted, maxPeekBytes);
    const page: Entry[] = [];
    let bytes = 0;
    for (const ref of refs.slice(0, limit)) {
      const entry = await entryAt(ref);
      bytes += entryBytes(entry);
      if (bytes > maxBytes && page.length > 0) break;
      page.push(entry);
    }
    return page;
  };

  const common = (sessionId: string) => ({
    isDeleted: unarchived.isDeleted(sessionId),
    firstSeq: unarchived.entriesOf(sessionId)[0]?.seq ?? null,
  });

  /** A turn begins behind the entries that it answers, so what has those has all of it. */
  const hasWhole = (sessionId: string, epoch: number | undefined): boolean => {
    const work = unarchived.header(sessionId)?.work;
    const { firstSeq } = common(sessionId);
    if (work?.type !== "turn" || firstSeq === null) return false;
    return work.upToSeq >= firstSeq && (epoch === undefined || work.epoch === epoch);
  };

  return {
    async header(sessionId) {
      const header = unarchived.header(sessionId);
      return header ? { header } : {};
    },

    async storedIds(ids) {
      const sessionIds = new Set(ids.map(({ sessionId }) => sessionId));
      return {
        found: ids.flatMap((each) => unarchived.storedId(each.sessionId, each.clientId) ?? []),
        deleted: [...sessionIds].filter((each) => unarchived.isDeleted(each)),
      };
    },

    async entries(sessionId, page) {
      const facts = common(sessionId);
      const refs = unarchived.entriesOf(sessionId).filter(({ seq }) => seq > page.after);
      return { ...facts, entries: await read(refs, page) };
    },

    async tail(sessionId, page) {
      const facts = common(sessionId);
      const refs = unarchived
        .entriesOf(sessionId)
        .filter(({ seq }) => seq > page.after && seq <= page.upTo)
        .toReversed();
      return { ...facts, entries: (await read(refs, page)).toReversed() };
    },

    async newest(sessionId, messageId) {
      const { isDeleted } = common(sessionId);
      const ref = unarchived.newest(sessionId, messageId);
      return ref ? { isDeleted, entry: await entryAt(ref) } : { isDeleted };
    },

    async checkpoint(sessionId) {
      const { isDeleted } = common(sessionId);
      const header = unarchived.header(sessionId);
      const { ref, endedEpoch } = unarchived.checkpoint(sessionId);
      const checkpoint = ref && (await recordAt(ref.offset)).checkpoints[ref.at];
      // What is in a record that was looked at is newer than whatever the archive has.
      const isNewest = checkpoint !== undefined && header?.work?.epoch === checkpoint.epoch;
      return {
        isDeleted,
        isWhole: isNewest || hasWhole(sessionId, undefined),
        endedEpoch,
        ...(header && { header }),
        ...(checkpoint && { checkpoint }),
      };
    },

    async steps(turn) {
      const { isOver, rows, forgotten } = unarchived.steps(turn);
      const steps: EndedStep[] = [];
      for (const { offset, at, row } of rows) {
        steps.push((await recordAt(offset)).steps[at]!.rows[row]!);
      }
      return { isOver, isWhole: hasWhole(turn.sessionId, turn.epoch), rows: steps, forgotten };
    },

    async turns(sessionId, page) {
      const { isDeleted } = common(sessionId);
      return { isDeleted, turns: unarchived.turns(sessionId, page) };
    },

    async facts(sessionId) {
      const { metadata: ref, reads } = unarchived.facts(sessionId);
      const found = ref && (await recordAt(ref.offset)).metadata[ref.at];
      return { reads: [...reads], ...(found && { metadata: found.metadata }) };
    },
  };
}

/** A read of an owner. `isKept`: of all that its log still has. */
export type PeekRequest = { readonly args: readonly unknown[]; readonly isKept: boolean };

/** The names are those of the type, so the arguments that came with one are what it takes. */
export function callPeek(
  peeks: Peeks,
  name: keyof Peeks,
  args: readonly unknown[],
): Promise<Unsure> {
  return (peeks[name] as (...all: readonly unknown[]) => Promise<Unsure>)(...args);
}

/** What the archive has is only known once its owner has reached it. */
export async function callOwn(
  own: {
    readonly peeks: Peeks;
    keptPeeks(): Promise<Peeks>;
    readonly watermark: object | undefined;
  },
  name: keyof Peeks,
  { args, isKept }: PeekRequest,
): Promise<Unsure> {
  const { watermark } = own;
  const part = await callPeek(isKept ? await own.keptPeeks() : own.peeks, name, args);
  return watermark ? part : { ...part, isUnsure: true };
}

/** About how many bytes an entry takes, as the archive counts them. */
export function entryBytes(entry: Entry): number {
  const { author, messageId } = entry;
  return 200 + Buffer.byteLength(entryBody(entry)) + Buffer.byteLength(author + messageId);
}
