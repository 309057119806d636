import * as telemetry from "@opentelemetry/api";
import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { sharedRedactor } from "../redaction/redactor.ts";
import type { Database, Row, WriteOptions } from "../store/database.ts";
import { type RetryOptions, sendUntilKnown } from "../store/retry.ts";
import type { Statement } from "../store/sql.ts";
import { type Actor, actorName, currentActor } from "./actor.ts";
import {
  countEntry,
  endEntry,
  type EntryFacts,
  insertEntry,
  type ActEntry,
  readEntry,
} from "./sql.ts";

/** Every act that leaves an entry, and the entry of a full audit. */
export const actions = [
  "agents.create",
  "agents.remove",
  "agents.replace",
  "audit.full",
  "bulk.start",
  "bulk.stop",
  "failures.ignore",
  "failures.reopen",
  "failures.resolve",
  "keys.create",
  "keys.revoke",
  "keys.rotate",
  "limits.set",
  "names.pause",
  "names.resume",
  "pods.drain",
  "pods.undrain",
  "redrives.cancel",
  "redrives.start",
  "runs.cancel",
  "runs.resume",
  "runs.retry",
  "runs.signal",
  "schedules.fire",
  "schedules.pause",
  "schedules.put",
  "schedules.remove",
  "schedules.resume",
  "sessions.archive",
  "sessions.cancel_wake",
  "sessions.compact",
  "sessions.decide",
  "sessions.members",
  "sessions.metadata",
  "sessions.regenerate",
  "sessions.remove",
  "sessions.signal",
  "sessions.stop",
  "sessions.unarchive",
  "sessions.wake",
  "sign-ins.create",
  "sign-ins.end",
  "tasks.cancel",
  "tasks.discard",
  "tasks.prune",
  "tasks.resume",
  "tasks.retry",
  "tasks.signal",
  "throttles.pin",
  "throttles.unpin",
  "tokens.revoke",
] as const;

export type Action = (typeof actions)[number];

/** What is being done, and to what. It holds no payload and no secret. */
export type ActAbout = {
  readonly action: Action;
  /** The id or name of what is changed, where it is one thing. */
  readonly subject?: string;
  /** Which things are changed, where they are many. */
  readonly filter?: object;
  readonly reason?: string | null;
};

/** Makes the statements of an act's entry, for the transaction of the act: none if it leaves none. */
export type WriteEntry = (facts?: EntryFacts) => readonly Statement[];

export const noEntry: WriteEntry = () => [];

/** An act as its entry was stored. */
export type StoredAct = {
  readonly id: string;
  readonly action: string;
  readonly outcome: string;
  readonly count: number;
  readonly after: Readonly<Record<string, unknown>>;
};

/** An act that is about to be written. */
export type Act = {
  /** The id of its entry, which is also in the events of what it changes. */
  readonly id: string;
  readonly entry: WriteEntry;
  /** The entry, if the caller has sent this act before: then it is not done again. */
  readonly stored: StoredAct | undefined;
  /** Reads the entry. */
  find(): Promise<StoredAct | undefined>;
  /** Whether an act that has changed nothing may have been stored for another call of its caller. */
  readonly isShared: boolean;
  /** Reports the act if its entry is among the answers to these statements. Returns whether it is. */
  report(statements: readonly Statement[], tables: readonly Row[][]): boolean;
  /** Reports the act if this is its own entry, which was stored by a send whose answer was lost. */
  reportStored(stored: StoredAct): void;
};

export type ActParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log?: Logger;
};

/** Begins an act. In handlers and agents it leaves no entry. */
export async function beginAct(
  { database, ids, log }: Pick<ActParts, "database" | "ids" | "log">,
  about: ActAbout,
): Promise<Act> {
  const actor = currentActor();
  const id = ids.next();
  const none = { id, entry: noEntry, stored: undefined, find: async () => undefined };
  if (!actor) {
    return { ...none, isShared: false, report: () => false, reportStored: () => {} };
  }
  const entry = entryOf(actor, id, about);
  const written = new Set<Statement>();
  let isReported = false;
  const reportOnce = ({ action, outcome }: Pick<StoredAct, "action" | "outcome">) => {
    if (!isReported) reportEntry(log, { ...entry, action, outcome });
    isReported = true;
  };
  const find = async () => {
    const [row] = await database.read(readEntry(entry));
    return row && toStoredAct(row, entry);
  };
  return {
    id,
    entry(facts) {
      const statement = insertEntry(entry, facts);
      written.add(statement);
      return [statement];
    },
    stored: entry.actId === null ? undefined : await find(),
    find,
    isShared: entry.actId !== null,
    report(statements, tables) {
      const at = statements.findIndex((each, place) => written.has(each) && tables[place]![0]);
      const row = tables[at]?.[0];
      if (row) reportOnce({ action: row["action"], outcome: row["outcome"] });
      return row !== undefined;
    },
    reportStored(stored) {
      if (stored.id === id) reportOnce(stored);
    },
  };
}

/** What is known of an act before it is written. */
export function entryOf(actor: Actor, id: string, about: ActAbout): ActEntry {
  return {
    id,
    actor: actorName(actor),
    tenant: actor.tenant ?? "default",
    userId: actor.user ?? "",
    keyName: actor.keyName ?? null,
    role: actor.role ?? null,
    address: actor.address ?? null,
    action: about.action,
    subject: about.subject ?? null,
    filter: about.filter === undefined ? null : JSON.stringify(about.filter),
    reason: about.reason ?? null,
    actId: actor.actId ?? null,
  };
}

/** An entry as it is reported, after its commit. */
export type ReportedEntry = ActEntry & { readonly outcome: string };

/**
 * The line of an act in the log, and its record for OpenTelemetry. A process that dies before writes
 * neither: the table is the truth.
 */
export function reportEntry(log: Logger | undefined, entry: ReportedEntry): void {
  const { userId, outcome, ...line } = entry;
  log?.info({ ...line, user: userId, outcome }, "audited act");
  emitEntry(entry);
}

// The number of INFO. The API has a name for it only where it has logs.
const infoSeverity = 9;

/**
 * Emits an entry as a log record, by the SDK that the program has registered, if any. A release of the API
 * before 1.10 has no logs. An SDK that throws costs the record, and never the act.
 */
export function emitEntry(entry: Partial<ReportedEntry>): void {
  const { logs, diag } = telemetry as Partial<typeof telemetry>;
  try {
    logs?.getLogger("flotilla").emit({
      eventName: "flotilla.audit",
      severityNumber: infoSeverity,
      severityText: "INFO",
      body: "audited act",
      attributes: attributesOf(entry),
    });
  } catch (error) {
    diag?.error(`flotilla: the record of an act was lost: ${messageOf(error)}`);
  }
}

/** What an entry says, without what it doesn't, and without secrets in what a caller has written. */
function attributesOf(entry: Partial<ReportedEntry>): Record<string, string> {
  const { id, actor, tenant, userId, keyName, role, address } = entry;
  const { action, subject, filter, reason, actId, outcome } = entry;
  const who = { actor, tenant, user: userId, key: keyName, role, address };
  const what = { id, action, subject, filter, reason, act_id: actId, outcome };
  const given = Object.entries({ ...who, ...what }).filter(
    ([, text]) => text != null && text !== "",
  );
  return Object.fromEntries(
    given.map(([name, text]) => [`flotilla.audit.${name}`, sharedRedactor.text(text!)]),
  );
}

export type ActWrite = {
  /**
   * The statements of its transaction, given the id of the act. The last one reads the answer, which a
   * repeated act is answered with too, unless `hasAnswer` is false.
   */
  statements: (id: string, entry: WriteEntry) => readonly Statement[];
  hasAnswer?: boolean;
} & Pick<WriteOptions, "notify" | "channels">;

export type ActWritten = {
  readonly tables: readonly Row[][];
  /** Whether an earlier send may have landed. */
  readonly repeated: boolean;
  /** The entry, if the act was stored before: by an earlier send, or for an earlier call. */
  readonly stored?: StoredAct;
};

/**
 * Writes an act and its entry in one transaction, until the outcome is known. The entry is also what keeps
 * the act from being done twice: one whose entry is stored is refused as a whole.
 */
export async function writeAct(
  { database, clock, random }: Pick<ActParts, "database" | "clock" | "random">,
  act: Act,
  { statements, hasAnswer = true, ...writeOptions }: ActWrite,
  options: Pick<RetryOptions, "limitMs" | "codes">,
): Promise<ActWritten> {
  const answer = async (stored: StoredAct): Promise<ActWritten> => {
    act.reportStored(stored);
    const read = () => database.read(statements(stored.id, noEntry).at(-1)!);
    return { tables: [hasAnswer ? await read() : []], repeated: true, stored };
  };
  if (act.stored) return answer(act.stored);
  const all = statements(act.id, act.entry);
  const send = async (repeated: boolean): Promise<ActWritten> => {
    try {
      const tables = await database.write(all, writeOptions);
      if (act.report(all, tables)) return { tables, repeated };
      if (act.isShared) {
        const before = await act.find();
        return before ? await answer(before) : { tables, repeated };
      }
      if (repeated) await reportLost(act);
      return { tables, repeated };
    } catch (error) {
      const stored = hasCode(error, "duplicate_key") ? await act.find() : undefined;
      if (stored) return answer(stored);
      throw error;
    }
  };
  return sendUntilKnown(send, {
    clock,
    random,
    ...options,
    onFailed: ({ waitMs }) => database.report?.({ type: "resent", waitMs }),
  });
}

/** Reports an act that an earlier send has stored, if one has. What is done doesn't fail with its report. */
export async function reportLost(act: Act): Promise<void> {
  const own = await act.find().catch(() => undefined);
  if (own) act.reportStored(own);
}

/**
 * The next transaction of an act that has changed something in earlier ones: it adds to the count of the
 * entry that these have stored.
 */
export function continued(act: Act, countBefore: number): Act {
  if (countBefore === 0 || act.entry === noEntry) return act;
  const entry: WriteEntry = ({ count = 1 } = {}) => [countEntry(act.id, countBefore, count)];
  return { ...act, entry, isShared: false };
}

/** Ends an act of several transactions, if it has an entry. */
export async function endAct(
  { database }: Pick<ActParts, "database">,
  { id, entry }: Act,
): Promise<void> {
  if (entry !== noEntry) await database.write([endEntry(id)]);
}

/** Throws if the id that the caller gave this act is that of another. */
function toStoredAct(row: Row, { action, subject, filter, actId }: ActEntry): StoredAct {
  // A run may be cancelled as a task, and its entry says what it is.
  const asTask = (each: string) => each.replace(/^runs\./, "tasks.");
  const isSame = asTask(row["action"]) === asTask(action) && row["filter"] === filter;
  if (!isSame || row["subject"] !== subject) {
    throw new FlotillaError(
      "conflict",
      `the act ${actId} was ${row["action"]}${row["subject"] === null ? "" : ` of ${row["subject"]}`}: give another act another id`,
    );
  }
  return {
    id: row["id"],
    action: row["action"],
    outcome: row["outcome"],
    count: Number(row["count"] ?? 0),
    after: row["after"] === null ? {} : (JSON.parse(row["after"]) as Record<string, unknown>),
  };
}
