import type { DecidedAct } from "../../audit/sql.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { TenantChange } from "../../quotas/sql.ts";
import type { KeyPolicy, LinkOrigin, NewTask } from "../../tasks/sql/enqueue.ts";
import type { EndedStep } from "../conversation/command.ts";
import type {
  Compaction,
  ForkPlace,
  Header,
  Pending,
  PendingApproval,
  SessionApprovals,
  Steering,
  Turn,
  Wake,
  WokenBy,
} from "../conversation/header.ts";
import type { Checkpoint, LogRecord, TurnRef, TurnSteps } from "./journal.ts";

/**
 * A record as the bytes that a log keeps: two lines of JSON. The first has its members and `v`, the version;
 * of entries it has their ids alone. The second has the content of entries, most of the bytes, which is read
 * when it is asked for: a pod that takes a log needs to know what is in it before it serves, and not yet
 * what users said. The version rises when a record may hold what earlier releases cannot apply; they refuse
 * it, since a record that is applied in part would lose the rest. Fields within a member may be added
 * without that, and pass through.
 */
export const recordVersion = 1;

type Check = (value: unknown) => boolean;
/** What each field must be. A field without a check does not compile. */
type Fields<Value> = { readonly [Field in keyof Required<Value>]: Check };

const isText: Check = (value) => typeof value === "string";
const isFlag: Check = (value) => typeof value === "boolean";
// What isn't finite would come back as null.
const isNumber: Check = (value) => Number.isFinite(value);
const isWhole: Check = (value) => Number.isSafeInteger(value);
const isList: Check = (value) => Array.isArray(value);
const isObject: Check = (value) => typeof value === "object" && value !== null;
const isAnything: Check = () => true;
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);
const orNullText = orNull(isText);
const orNullWhole = orNull(isWhole);
const listOf =
  (check: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return false;
    for (const each of value) if (!check(each)) return false;
    return true;
  };

/** Plain loops, because a pod that takes a log checks all of it before it serves. */
function shaped<Value>(fields: Fields<Value>): Check {
  const names = Object.keys(fields);
  const checks = Object.values<Check>(fields);
  return (value) => {
    if (typeof value !== "object" || value === null) return false;
    const given = value as Readonly<Record<string, unknown>>;
    for (let at = 0; at < names.length; at++) {
      if (!checks[at]!(given[names[at]!])) return false;
    }
    return true;
  };
}

const isWokenBy = shaped<WokenBy>({
  key: isText,
  atMs: isNumber,
  author: isText,
  message: optional(isText),
});

const isTurn = shaped<Turn>({
  type: (value) => value === "turn",
  epoch: isWhole,
  attempt: isWhole,
  lost: isWhole,
  agent: isText,
  runner: orNull(isText),
  beganAtMs: optional(isNumber),
  upToSeq: isWhole,
  trigger: isText,
  wake: optional(isWokenBy),
  messageId: isText,
  replaces: orNull(isWhole),
  stopping: isFlag,
  waits: optional(shaped<NonNullable<Turn["waits"]>>({ attempt: isWhole, count: isWhole })),
  alone: optional(isText),
  steering: optional(shaped<Steering>({ waiting: listOf(isWhole), heardSeq: isWhole })),
  hasSteps: optional(isFlag),
  trace: optional(isText),
});

const isCompaction = shaped<Compaction>({
  type: (value) => value === "compaction",
  epoch: isWhole,
  attempt: isWhole,
  lost: isWhole,
  agent: isText,
  runner: orNull(isText),
  toSeq: isWhole,
  tokens: isNumber,
  alone: optional(isText),
});

const isPending = shaped<Pending>({
  agent: isText,
  fromSeq: isWhole,
  tokensBefore: isNumber,
  upToSeq: isWhole,
  trigger: isText,
  replaces: orNull(isWhole),
  messageId: isText,
  wake: optional(isWokenBy),
  trace: optional(isText),
});

const isWake = shaped<Wake>({
  key: isText,
  taskId: isText,
  agent: isText,
  atMs: isNumber,
  cron: optional(isText),
  timezone: optional(isText),
  preview: optional(isText),
  author: isText,
  setAtMs: isNumber,
  setSeq: isWhole,
});

const isApproval = shaped<PendingApproval>({
  messageId: isText,
  toolCallId: isText,
  tool: isText,
  signal: optional(isText),
  approvalId: optional(isText),
  sinceMs: isNumber,
  untilMs: optional(isNumber),
});

const isHeader = shaped<Header>({
  sessionId: isText,
  tenant: isText,
  agents: listOf(isText),
  users: listOf(isText),
  status: isText,
  parent: optional(shaped<ForkPlace>({ sessionId: isText, atSeq: isWhole })),
  lastSeq: isWhole,
  replacedSeq: optional(isWhole),
  resultSeq: optional(isWhole),
  epoch: isWhole,
  work: (value) => value === null || isTurn(value) || isCompaction(value),
  pending: listOf(isPending),
  summarySeq: isWhole,
  compactedSeq: isWhole,
  tokens: isNumber,
  compactionFailures: isWhole,
  failedAtTokens: isNumber,
  needsCompaction: isFlag,
  metadataVersion: isWhole,
  preview: isText,
  previewAuthor: isText,
  createdAtMs: isNumber,
  activeAtMs: isNumber,
  approvals: optional(shaped<SessionApprovals>({ seq: isWhole, calls: listOf(isApproval) })),
  bytes: optional(isNumber),
  wakes: optional(listOf(isWake)),
  endedWakes: optional(listOf(isText)),
});

type RecordEntry = LogRecord["entries"][number];

/** What is known of an entry without its content. */
export type EntryIds = Pick<RecordEntry, "sessionId" | "clientId" | "seq" | "messageId" | "epoch">;
/** The same as it is written. Null in place of an epoch: it has none. */
type WrittenIds = readonly [
  sessionId: string,
  seq: number,
  messageId: string,
  clientId: string | null,
  epoch: number | null,
];

const isEntry = shaped<RecordEntry>({
  sessionId: isText,
  clientId: orNull(isText),
  seq: isWhole,
  kind: isText,
  role: isText,
  author: isText,
  messageId: isText,
  replaces: optional(isWhole),
  epoch: optional(isWhole),
  upToSeq: optional(isWhole),
  beganSeq: optional(isWhole),
  outcome: optional(isText),
  error: optional(isObject),
  tokens: isNumber,
  parts: isList,
  metadata: isAnything,
  results: optional(isObject),
  tasks: optional(listOf(isText)),
  throughSeq: optional(isWhole),
  stop: optional(isObject),
  wake: optional(isObject),
  atMs: isNumber,
});

const areEntries = listOf(isEntry);

const isStep = shaped<EndedStep>({
  key: isText,
  seq: isWhole,
  kind: isText,
  inputHash: orNull(isText),
  value: isText,
  tookMs: isNumber,
  forgets: isFlag,
});

// Tasks of messages get the files of their session by what their payloads name.
const isTask = shaped<Omit<NewTask, "files">>({
  taskId: isText,
  tenant: isText,
  name: isText,
  payload: isText,
  priority: isNumber,
  delayMs: isNumber,
  runAtMs: optional(isNumber),
  scheduledAtMs: optional(isNumber),
  maxAttempts: orNull(isWhole),
  key: orNull(isText),
  policy: optional(
    shaped<KeyPolicy>({ onDuplicate: isText, whileUnfinished: isFlag, forMs: orNull(isNumber) }),
  ),
  trace: orNull(isText),
  scope: optional(orNull(isText)),
  limited: optional(isFlag),
  depends: optional(isWhole),
  after: optional(listOf(isText)),
  isRun: optional(isFlag),
  parentId: optional(isText),
  origin: optional(shaped<LinkOrigin>({ id: isText, what: isText })),
  outdates: optional(listOf(isText)),
});

/** Every member of a record. One without a check does not compile. */
const members: Fields<LogRecord> = {
  recordId: isText,
  entries: areEntries,
  headers: listOf(isHeader),
  members: optional(listOf(isText)),
  metadata: listOf(shaped<LogRecord["metadata"][number]>({ sessionId: isText, metadata: isText })),
  reads: listOf(
    shaped<LogRecord["reads"][number]>({ sessionId: isText, user: isText, seq: isWhole }),
  ),
  checkpoints: listOf(
    shaped<Checkpoint>({ sessionId: isText, epoch: isWhole, attempt: isWhole, body: isText }),
  ),
  steps: listOf(
    shaped<TurnSteps>({
      sessionId: isText,
      epoch: isWhole,
      attempt: isWhole,
      rows: listOf(isStep),
    }),
  ),
  stepsOver: listOf(shaped<TurnRef>({ sessionId: isText, epoch: isWhole })),
  turns: optional(
    listOf(
      shaped<NonNullable<LogRecord["turns"]>[number]>({
        sessionId: isText,
        epoch: isWhole,
        attempt: isWhole,
        agent: isText,
        podId: orNull(isText),
        beganAtMs: isNumber,
        firstChunkAtMs: orNull(isNumber),
        endedAtMs: isNumber,
        outcome: isText,
        usage: orNull(isObject),
      }),
    ),
  ),
  acts: optional(
    listOf(
      shaped<DecidedAct>({
        id: isText,
        actor: isText,
        tenant: isText,
        userId: isText,
        keyName: orNull(isText),
        role: orNull(isText),
        address: orNull(isText),
        action: isText,
        subject: orNull(isText),
        filter: orNull(isText),
        reason: orNull(isText),
        actId: orNull(isText),
        before: isText,
        after: isText,
      }),
    ),
  ),
  tenants: optional(
    listOf(
      shaped<TenantChange>({
        tenant: isText,
        sessions: isNumber,
        turns: isNumber,
        bytes: isNumber,
      }),
    ),
  ),
  tasks: optional(listOf(isTask)),
};
const areIds = listOf((value) => {
  if (!Array.isArray(value) || value.length !== 5) return false;
  const [sessionId, seq, messageId, clientId, epoch] = value as unknown[];
  const hasNames = isText(sessionId) && isText(messageId);
  return hasNames && isWhole(seq) && orNullText(clientId) && orNullWhole(epoch);
});
const lineEnd = 0x0a;
const utf8 = new TextDecoder("utf-8", { fatal: true });
const memberNames = Object.keys(members) as (keyof LogRecord)[];

/**
 * Throws `payload_too_large` for a record of more bytes, and `payload_not_storable` for what `decodeRecord`
 * would refuse, because a log keeps it for good.
 */
export function encodeRecord(record: LogRecord, { maxBytes }: { maxBytes: number }): Uint8Array {
  const wrong = memberNames.find((name) => !members[name](record[name]));
  if (wrong !== undefined) {
    const message = `a record can't be stored: its ${wrong} are not what a record holds`;
    throw new FlotillaError("payload_not_storable", message, { details: { member: wrong } });
  }
  const body: Record<string, unknown> = { v: recordVersion };
  for (const name of memberNames) body[name] = record[name];
  body["entries"] = record.entries.map(toWritten);
  const content = record.entries.map(withoutIds);
  // Neither text has the end of a line: JSON escapes it.
  const bytes = Buffer.from(`${JSON.stringify(body)}\n${JSON.stringify(content)}`);
  if (bytes.length <= maxBytes) return bytes;
  throw new FlotillaError(
    "payload_too_large",
    `what is to be stored at once has ${bytes.length} bytes, and the log of the session takes ${maxBytes}: send less`,
    { details: { bytes: bytes.length, maxBytes } },
  );
}

/**
 * Throws `store_newer` for a record of a later release, and `store_corrupt` for what is no record. The
 * content of entries is read, and may throw `store_corrupt`, when `entries` is first asked for.
 */
export function decodeRecord(bytes: Uint8Array): LogRecord {
  const end = bytes.indexOf(lineEnd);
  if (end < 0) throw noRecord("it has one line");
  const { v, ...record } = parsed(bytes.subarray(0, end));
  if (typeof v !== "number") throw noRecord("it has no version");
  const unknown = Object.keys(record).filter((name) => !Object.hasOwn(members, name));
  if (v > recordVersion || unknown.length > 0) {
    const what = v > recordVersion ? `version ${v}` : `a record with ${unknown.join(", ")}`;
    throw new FlotillaError(
      "store_newer",
      `the log holds ${what}, which a later release of Flotilla has stored: update this process`,
      { details: { version: v, unknown } },
    );
  }
  const isRight = (name: keyof LogRecord): boolean =>
    (name === "entries" ? areIds : members[name])(record[name]);
  const wrong = memberNames.find((name) => !isRight(name));
  if (wrong !== undefined) throw noRecord(`its ${wrong} are not what a record holds`);
  const ids = (record["entries"] as readonly WrittenIds[]).map(toIds);
  const decoded = withContent(record, () => contentOf(bytes.subarray(end + 1), ids));
  entryIds.set(decoded, ids);
  return decoded;
}

/** The ids of entries whose content may not have been read yet. */
const entryIds = new WeakMap<LogRecord, readonly EntryIds[]>();

/** The ids of a record's entries, in their order, for which their content isn't read. */
export function entryIdsOf(record: LogRecord): readonly EntryIds[] {
  return entryIds.get(record) ?? record.entries;
}

/** The record, whose entries are read once they are asked for. */
function withContent(record: object, read: () => readonly RecordEntry[]): LogRecord {
  const shown = { configurable: true, enumerable: true };
  Object.defineProperty(record, "entries", {
    ...shown,
    get() {
      const entries = read();
      Object.defineProperty(record, "entries", { ...shown, value: entries });
      return entries;
    },
  });
  return record as LogRecord;
}

function contentOf(bytes: Uint8Array, ids: readonly EntryIds[]): readonly RecordEntry[] {
  const content = parsed(bytes);
  if (!Array.isArray(content) || content.length !== ids.length) {
    throw noRecord("it hasn't the content of each entry");
  }
  const entries: unknown[] = content.map((each: unknown, at) => ({
    ...(each as object),
    ...ids[at]!,
  }));
  if (!areEntries(entries)) throw noRecord("its entries are not what a record holds");
  return entries as readonly RecordEntry[];
}

function toWritten({ sessionId, seq, messageId, clientId, epoch }: RecordEntry): WrittenIds {
  return [sessionId, seq, messageId, clientId, epoch ?? null];
}

function toIds([sessionId, seq, messageId, clientId, epoch]: WrittenIds): EntryIds {
  const ids = { sessionId, seq, messageId, clientId };
  return epoch === null ? ids : { ...ids, epoch };
}

function withoutIds(entry: RecordEntry): object {
  const { sessionId: _, seq: __, messageId: ___, clientId: ____, epoch: _____, ...content } = entry;
  return content;
}

function parsed(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  let body: unknown;
  try {
    body = JSON.parse(utf8.decode(bytes));
  } catch (error) {
    throw noRecord(messageOf(error));
  }
  if (typeof body !== "object" || body === null) throw noRecord("it is no object");
  return body as Readonly<Record<string, unknown>>;
}

function noRecord(why: string): FlotillaError {
  return new FlotillaError("store_corrupt", `the log holds something that is no record: ${why}`);
}
