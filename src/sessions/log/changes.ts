import { FlotillaError } from "../../base/errors.ts";
import type { Header } from "../conversation/header.ts";
import type { EndedStep } from "../conversation/command.ts";
import type { Checkpoint, LogRecord, TurnRef, TurnSteps } from "./journal.ts";
import { entryIdsOf } from "./record-codec.ts";

/** A member of a record that nothing is made of here does not compile. */
type EveryMember = { readonly [Member in Exclude<keyof LogRecord, "recordId">]-?: unknown };

/** The rows that a record changes, each row once. A journal stores all of them or none. */
export type Changes = EveryMember & {
  readonly entries: LogRecord["entries"];
  readonly headers: readonly Header[];
  /** Sessions whose users are replaced by those in the header. */
  readonly members: readonly Header[];
  readonly metadata: ReadonlyMap<string, string>;
  readonly reads: LogRecord["reads"];
  readonly checkpoints: readonly Checkpoint[];
  /** Turns that ended: their checkpoints, kept in case the runner dies, are no longer needed. */
  readonly ended: readonly { readonly sessionId: string; readonly epoch: number }[];
  /** Each row once. */
  readonly steps: readonly TurnStep[];
  readonly stepsOver: LogRecord["stepsOver"];
  readonly turns: NonNullable<LogRecord["turns"]>;
  readonly acts: NonNullable<LogRecord["acts"]>;
  readonly tenants: LogRecord["tenants"];
  /** They start whatever becomes of their session, because their ids were given out. */
  readonly tasks: NonNullable<LogRecord["tasks"]>;
  /** Sessions of which only the header stays. */
  readonly deleted: readonly string[];
};

/** A row in the journal of a turn. */
export type TurnStep = TurnRef & { readonly attempt: number; readonly step: EndedStep };

/** Reads the content of entries only where the entries of what it returns are read. */
export function changesOf(record: LogRecord): Changes {
  const headers = new Map(record.headers.map((each) => [each.sessionId, each]));
  const isThere = ({ sessionId }: { sessionId: string }) =>
    headers.get(sessionId)?.status !== "deleted";
  const ended = new Map<string, number>();
  for (const { sessionId, seq, epoch } of entryIdsOf(record)) {
    const header = headers.get(sessionId);
    if (header === undefined || header.lastSeq < seq) throw uncounted(sessionId);
    if (epoch !== undefined && header.work?.epoch !== epoch) ended.set(sessionId, epoch);
  }
  for (const { sessionId } of record.metadata) {
    if (!headers.has(sessionId)) throw uncounted(sessionId);
  }
  const deleted = record.headers.filter((each) => !isThere(each)).map((each) => each.sessionId);
  if (deleted.length === 0 && isPlain(record)) {
    return {
      ...nothing,
      get entries() {
        return record.entries;
      },
      headers: [...headers.values()],
      turns: record.turns ?? [],
      acts: record.acts ?? [],
      tenants: record.tenants,
      tasks: record.tasks ?? [],
      ended: ended.size === 0 ? [] : [...ended].map(toEnded),
    };
  }
  const stored = [...headers.values()].map((each) => (isThere(each) ? each : tombstone(each)));
  const changed = record.members && new Set([...record.members, ...deleted]);
  return {
    get entries() {
      return deleted.length === 0 ? record.entries : record.entries.filter(isThere);
    },
    headers: stored,
    members: changed ? stored.filter(({ sessionId }) => changed.has(sessionId)) : stored,
    metadata: new Map(
      record.metadata.filter(isThere).map((each) => [each.sessionId, each.metadata]),
    ),
    reads: furthest(record.reads.filter(isThere)),
    checkpoints: lastOfEach(
      record.checkpoints.filter((each) => isCurrent(each, headers.get(each.sessionId))),
    ),
    ended: [...ended].map(toEnded),
    steps: stepsOf(record.steps.filter((each) => isUnderWay(each, headers.get(each.sessionId)))),
    stepsOver: record.stepsOver,
    turns: (record.turns ?? []).filter(isThere),
    acts: record.acts ?? [],
    tenants: record.tenants,
    tasks: unlinkedFrom(record.tasks ?? [], new Set(deleted)),
    deleted: [...new Set(deleted)],
  };
}

/** The tasks without the links to sessions that are deleted, of which nothing is kept. */
export function unlinkedFrom(
  tasks: Changes["tasks"],
  deleted: ReadonlySet<string>,
): Changes["tasks"] {
  if (tasks.length === 0 || deleted.size === 0) return tasks;
  return tasks.map(({ origin, ...task }) =>
    origin && !deleted.has(origin.id) ? { ...task, origin } : task,
  );
}

const nothing = {
  members: [],
  metadata: new Map<string, string>(),
  reads: [],
  checkpoints: [],
  steps: [],
  stepsOver: [],
  deleted: [],
};

/** True of a record that changes entries and headers alone, as most do. */
function isPlain(record: LogRecord): boolean {
  const { members, metadata, reads, checkpoints, steps, stepsOver } = record;
  const others = metadata.length + reads.length + checkpoints.length;
  return members?.length === 0 && others + steps.length + stepsOver.length === 0;
}

function toEnded([sessionId, epoch]: readonly [string, number]) {
  return { sessionId, epoch };
}

function uncounted(sessionId: string): FlotillaError {
  return new FlotillaError("internal", `the record changes ${sessionId} without its header`);
}

/** If the record has no header of the session, the decision has compared epoch and attempt already. */
function isCurrent(checkpoint: Checkpoint, header: Header | undefined): boolean {
  if (header === undefined) return true;
  const { status, work } = header;
  if (status === "deleted" || work === null) return false;
  return work.epoch === checkpoint.epoch && work.attempt === checkpoint.attempt;
}

/**
 * An attempt that began in the same record reads the steps of the one before it. Only the steps of a turn
 * that ended are of no use any more.
 */
function isUnderWay({ epoch }: TurnSteps, header: Header | undefined): boolean {
  return header === undefined || (header.status !== "deleted" && header.work?.epoch === epoch);
}

/** The last row of each key. */
function stepsOf(all: readonly TurnSteps[]): TurnStep[] {
  const byKey = new Map<string, TurnStep>();
  for (const { rows, ...turn } of all) {
    for (const step of rows) {
      const key = JSON.stringify([turn.sessionId, turn.epoch, step.key]);
      const known = byKey.get(key)?.step;
      if (known && known.seq >= step.seq) continue;
      const forgets = step.forgets || known?.forgets === true;
      byKey.set(key, { ...turn, step: { ...step, forgets } });
    }
  }
  return [...byKey.values()];
}

/** Keeps the fact that the id was used, and removes all content and names. */
function tombstone(header: Header): Header {
  return {
    ...header,
    agents: [],
    users: [],
    work: null,
    pending: [],
    preview: "",
    previewAuthor: "",
    ...(header.approvals && { approvals: { seq: header.lastSeq, calls: [] } }),
  };
}

function lastOfEach<Each extends { readonly sessionId: string }>(all: readonly Each[]): Each[] {
  return [...new Map(all.map((each) => [each.sessionId, each])).values()];
}

function furthest(reads: LogRecord["reads"]): LogRecord["reads"] {
  const highest = new Map<string, LogRecord["reads"][number]>();
  for (const read of reads) {
    const key = JSON.stringify([read.sessionId, read.user]);
    if ((highest.get(key)?.seq ?? 0) < read.seq) highest.set(key, read);
  }
  return [...highest.values()];
}
