import { FlotillaError } from "../../base/errors.ts";
import type { Header } from "../conversation/header.ts";
import type { Checkpoint, LogRecord } from "./journal.ts";

/** What a record changes, each row named once. Every journal stores exactly this, or nothing of it. */
export type Changes = {
  readonly entries: LogRecord["entries"];
  readonly headers: readonly Header[];
  /** Those whose users are to be what the header says. */
  readonly members: readonly Header[];
  readonly metadata: ReadonlyMap<string, string>;
  readonly reads: LogRecord["reads"];
  readonly checkpoints: readonly Checkpoint[];
  /** Turns that are over: what was kept of them, in case that their runners die, isn't wanted any more. */
  readonly ended: readonly { readonly sessionId: string; readonly epoch: number }[];
  /** Of these, nothing but the header stays. */
  readonly deleted: readonly string[];
};

export function changesOf(record: LogRecord): Changes {
  const headers = new Map(record.headers.map((each) => [each.sessionId, each]));
  const isThere = ({ sessionId }: { sessionId: string }) =>
    headers.get(sessionId)?.status !== "deleted";
  const ended = new Map<string, number>();
  for (const { sessionId, seq, epoch } of record.entries) {
    const header = headers.get(sessionId);
    if (header === undefined || header.lastSeq < seq) throw uncounted(sessionId);
    if (epoch !== undefined && header.work?.epoch !== epoch) ended.set(sessionId, epoch);
  }
  for (const { sessionId } of record.metadata) {
    if (!headers.has(sessionId)) throw uncounted(sessionId);
  }
  const deleted = record.headers.filter((each) => !isThere(each)).map((each) => each.sessionId);
  const stored = [...headers.values()].map((each) => (isThere(each) ? each : tombstone(each)));
  const changed = record.members && new Set([...record.members, ...deleted]);
  return {
    entries: deleted.length === 0 ? record.entries : record.entries.filter(isThere),
    headers: stored,
    members: changed ? stored.filter(({ sessionId }) => changed.has(sessionId)) : stored,
    metadata: new Map(
      record.metadata.filter(isThere).map((each) => [each.sessionId, each.metadata]),
    ),
    reads: furthest(record.reads.filter(isThere)),
    checkpoints: lastOfEach(
      record.checkpoints.filter((each) => isCurrent(each, headers.get(each.sessionId))),
    ),
    ended: [...ended].map(([sessionId, epoch]) => ({ sessionId, epoch })),
    deleted: [...new Set(deleted)],
  };
}

function uncounted(sessionId: string): FlotillaError {
  return new FlotillaError("internal", `a change of ${sessionId} comes without its header`);
}

/** Where the record says nothing of the session, whoever decided it has compared the numbers. */
function isCurrent(checkpoint: Checkpoint, header: Header | undefined): boolean {
  if (header === undefined) return true;
  const { status, work } = header;
  if (status === "deleted" || work === null) return false;
  return work.epoch === checkpoint.epoch && work.attempt === checkpoint.attempt;
}

/** Enough to know that the id was used, and nothing of what was said by whom. */
function tombstone(header: Header): Header {
  return {
    ...header,
    agents: [],
    users: [],
    work: null,
    pending: [],
    preview: "",
    previewAuthor: "",
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
