import type { ActEntry } from "../../audit/sql.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type {
  CommandResult,
  Command,
  CommandDecision,
  SessionEffect,
  Facts,
} from "../conversation/command.ts";
import { endedTurn } from "../conversation/ended-turn.ts";
import { decideCommand } from "../conversation/decide.ts";
import { outdatedBy } from "../conversation/wakes.ts";
import type { Header } from "../conversation/header.ts";
import type { TenantChange } from "../../quotas/sql.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import { entryBodyBytes } from "./entry-body.ts";
import type { Checkpoint, LogRecord, TurnRef, TurnSteps } from "./journal.ts";

/** A command submitted to a session, with the callbacks of its caller. */
export type PendingCommand = {
  readonly tenant: string;
  readonly sessionId: string;
  readonly command: Command;
  /** Agents that the command names besides those of its session. */
  readonly agents: readonly string[];
  readonly submittedMs: number;
  /** How long the caller waits, counted from `submittedMs`. */
  readonly limitMs: number;
  readonly resolve: (answer: CommandResult) => void;
  readonly reject: (error: unknown) => void;
};

/** Decisions that are not committed yet. Nothing of it is visible before the commit. */
export type RecordDraft = {
  readonly isEmpty: boolean;
  readonly record: LogRecord;
  readonly headers: ReadonlyMap<string, Header>;
  readonly effects: readonly (readonly [sessionId: string, SessionEffect])[];
  /** Users that the record removes, by session id. */
  readonly formerUsers: ReadonlyMap<string, readonly string[]>;
  readonly outcomes: readonly (readonly [PendingCommand, CommandResult | FlotillaError])[];
  /** The seqs of the record's client ids, by key. Some commands store no entry to keep theirs. */
  readonly ids: ReadonlyMap<string, number>;
};

export type RecordDraftParts = {
  /** The committed header. */
  header: (sessionId: string) => Header | undefined;
  /** The seq under which the client id with this key was stored, if known. */
  seqOf: (key: string) => number | undefined;
  facts: (tenant: string) => Facts;
  recordId: string;
  /** Whether quotas need to know what tenants use. */
  countsTenants: boolean;
};

/** Decides commands one after the other, as if each were committed before the next was submitted. */
export function draftRecord(
  items: readonly PendingCommand[],
  parts: RecordDraftParts,
): RecordDraft {
  const headers = new Map<string, Header>();
  const ids = new Map<string, number>();
  const entries: LogRecord["entries"][number][] = [];
  const metadata = new Map<string, string>();
  const members = new Set<string>();
  const formerUsers = new Map<string, readonly string[]>();
  const reads: LogRecord["reads"][number][] = [];
  const checkpoints = new Map<string, Checkpoint>();
  const steps: TurnSteps[] = [];
  const stepsOver: TurnRef[] = [];
  const turns: NonNullable<LogRecord["turns"]>[number][] = [];
  const acts: NonNullable<LogRecord["acts"]>[number][] = [];
  const tasks: NonNullable<LogRecord["tasks"]>[number][] = [];
  const effects: (readonly [string, SessionEffect])[] = [];
  const outcomes: (readonly [PendingCommand, CommandResult | FlotillaError])[] = [];

  for (const item of items) {
    const { tenant, sessionId, command } = item;
    const before = headers.get(sessionId) ?? parts.header(sessionId);
    const refusal = refusalOf(before, tenant, command);
    if (refusal) {
      outcomes.push([item, refusal]);
      continue;
    }
    const clientId = idOf(command);
    // Made once for each command, because hashing it takes a while.
    const key = clientId === undefined ? undefined : keyOfId(sessionId, clientId);
    const seq = key === undefined ? undefined : (ids.get(key) ?? parts.seqOf(key));
    if (seq !== undefined) {
      outcomes.push([item, { seq, lastSeq: before?.lastSeq ?? seq, duplicate: true }]);
      continue;
    }
    const facts = parts.facts(tenant);
    const decision = decideSafely(before, command, facts);
    if (decision.type === "refused") {
      const { code, message, details } = decision;
      outcomes.push([item, new FlotillaError(code, message, details && { details })]);
      continue;
    }
    outcomes.push([item, decision.answer]);
    if (command.type === "regenerate" && key !== undefined) ids.set(key, decision.header.lastSeq);
    if (decision.header.users !== before?.users) {
      members.add(sessionId);
      const removed = (before?.users ?? []).filter((user) => !decision.header.users.includes(user));
      if (removed.length > 0) formerUsers.set(sessionId, removed);
    }
    let bytes = 0;
    for (const entry of decision.entries) {
      const added = { ...entry, sessionId };
      entries.push(added);
      if (parts.countsTenants) bytes += entryBodyBytes(added);
      if (entry.clientId === null) continue;
      const isOwn = entry.clientId === clientId && key !== undefined;
      ids.set(isOwn ? key : keyOfId(sessionId, entry.clientId), entry.seq);
    }
    const started = startedBy(before, command, decision);
    if (started) tasks.push(...started);
    // A stored header shows that the tasks of its record were stored with it.
    if (decision.header !== before || started) {
      const { header } = decision;
      headers.set(sessionId, bytes === 0 ? header : { ...header, bytes: bytesOf(header) + bytes });
    }
    if (decision.metadata !== undefined) metadata.set(sessionId, decision.metadata);
    if (decision.read) reads.push({ sessionId, ...decision.read });
    if (decision.checkpoint) checkpoints.set(sessionId, { sessionId, ...decision.checkpoint });
    if (decision.steps) steps.push({ sessionId, ...decision.steps });
    const over = before && endedWithSteps(before, decision.header);
    if (over) stepsOver.push(over);
    const ended = endedTurn(before, command, decision, facts.nowMs);
    if (ended) turns.push({ ...ended, sessionId });
    const act = before && actOf(before, command, decision.header);
    if (act) acts.push(act);
    for (const effect of decision.effects) effects.push([sessionId, effect]);
  }

  const record: LogRecord = {
    recordId: parts.recordId,
    entries,
    headers: [...headers.values()],
    metadata: [...metadata].map(([sessionId, text]) => ({ sessionId, metadata: text })),
    members: [...members],
    reads,
    checkpoints: [...checkpoints.values()],
    steps,
    stepsOver,
    turns,
    acts,
    ...(parts.countsTenants && { tenants: tenantChanges(headers, parts.header) }),
    ...(tasks.length > 0 && { tasks }),
  };
  const isEmpty =
    headers.size === 0 &&
    entries.length === 0 &&
    reads.length === 0 &&
    checkpoints.size === 0 &&
    steps.length === 0;
  return { isEmpty, record, headers, effects, formerUsers, outcomes, ids };
}

/** The tasks that start with a command, if it has stored what they belong to. */
function startedBy(
  before: Header | undefined,
  command: Command,
  { entries, steps, header }: Extract<CommandDecision, { type: "decided" }>,
): readonly NewTask[] | undefined {
  if (!("tasks" in command) || command.tasks === undefined) return undefined;
  const isStored =
    command.type === "turn_steps"
      ? steps !== undefined
      : command.type === "wake_fired"
        ? header.wakes?.some(({ taskId }) => taskId === command.next?.taskId)
        : entries.length > 0;
  const { tasks } = command;
  if (!isStored || tasks.length === 0) return undefined;
  const outdates = command.type === "wake_set" && before ? outdatedBy(before, header) : [];
  return outdates.length === 0 ? tasks : tasks.map((task) => ({ ...task, outdates }));
}

/** The entry of a command in the audit, if it has changed a session that its actor isn't a member of. */
function actOf(before: Header, command: Command, after: Header) {
  const act = "act" in command ? command.act : undefined;
  if (!act || before === after || isOfMember(before, act)) return undefined;
  return { ...act, before: auditedFacts(before), after: auditedFacts(after) };
}

/** What the audit says of a session, which is nothing that was said in it. */
function auditedFacts({ status, users, metadataVersion, work }: Header): string {
  const stopping = work?.type === "turn" && work.stopping;
  return JSON.stringify({
    status,
    users: users.length,
    metadataVersion,
    work: work && (stopping ? "stopping" : work.type),
  });
}

/** What the sessions of each tenant come to, as the difference to what is stored. */
function tenantChanges(
  headers: ReadonlyMap<string, Header>,
  storedHeader: (sessionId: string) => Header | undefined,
): TenantChange[] {
  const byTenant = new Map<string, TenantChange>();
  for (const [sessionId, header] of headers) {
    const { tenant } = header;
    const [after, before] = [countsOf(header), countsOf(storedHeader(sessionId))];
    const sum = byTenant.get(tenant) ?? { tenant, sessions: 0, turns: 0, bytes: 0 };
    byTenant.set(tenant, {
      tenant,
      sessions: sum.sessions + after.sessions - before.sessions,
      turns: sum.turns + after.turns - before.turns,
      bytes: sum.bytes + after.bytes - before.bytes,
    });
  }
  return [...byTenant.values()].filter(
    ({ sessions, turns, bytes }) => sessions !== 0 || turns !== 0 || bytes !== 0,
  );
}

/** A deleted session counts for nothing. */
function countsOf(header: Header | undefined): Omit<TenantChange, "tenant"> {
  if (!header || header.status === "deleted") return { sessions: 0, turns: 0, bytes: 0 };
  return { sessions: 1, turns: header.work?.type === "turn" ? 1 : 0, bytes: bytesOf(header) };
}

function bytesOf({ bytes = 0 }: Header): number {
  return bytes;
}

/**
 * Whether a member acts, or a program for one. The user of the command line is one of its machine, and what
 * has a role may name a member that it isn't: a key any user, a user another tenant. Administrators' keys
 * are left out, because programs serve their users with them.
 */
function isOfMember({ users }: Header, { actor, role, userId }: ActEntry): boolean {
  const kind = actor.split("/")[0];
  const isBelieved = role === null ? kind !== "cli" : role === "admin" && kind !== "user";
  return isBelieved && users.includes(userId);
}

/** The turn that a decision has ended, if it had stored steps. */
function endedWithSteps({ sessionId, work }: Header, after: Header): TurnRef | undefined {
  if (work?.type !== "turn" || !work.hasSteps || work.epoch === after.work?.epoch) return undefined;
  return { sessionId, epoch: work.epoch };
}

/** About how many bytes a command or a record has: nearly all of them are those of its texts. */
export function estimateBytes(given: Command | LogRecord): number {
  let bytes = 0;
  const left: object[] = [given];
  for (let value = left.pop(); value !== undefined; value = left.pop()) {
    const items: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
    for (const item of items) {
      bytes += 8;
      if (typeof item === "string") bytes += item.length;
      else if (typeof item === "object" && item !== null) left.push(item);
    }
  }
  return bytes;
}

export function keyOfId(sessionId: string, clientId: string): string {
  return `${sessionId} ${clientId}`;
}

/** Regenerations have ids of their own, so a message may use the same id. */
function idOf(command: Command): string | undefined {
  if (command.type === "regenerate") return `\0${command.clientId}`;
  return "clientId" in command ? command.clientId : undefined;
}

/** A pod of another release may send a command that cannot be decided here. Only that command fails. */
function decideSafely(header: Header | undefined, command: Command, facts: Facts): CommandDecision {
  try {
    return decideCommand(header, command, facts);
  } catch (error) {
    const message = `cannot decide the command "${command.type}": ${messageOf(error)}`;
    return { type: "refused", code: "internal", message };
  }
}

/** For another tenant the session does not exist. */
function refusalOf(
  header: Header | undefined,
  tenant: string,
  command: Command,
): FlotillaError | undefined {
  if (!header || header.tenant === tenant) return undefined;
  return command.type === "create"
    ? new FlotillaError("conflict", "a session with this id already exists")
    : new FlotillaError("not_found", "there is no such session");
}

const noAgents: readonly string[] = [];

/** Agents that a command names besides those of its session. */
export function agentsOf(command: Command): readonly string[] {
  if (command.type === "create" || command.type === "check_agents") return command.agents;
  if (command.type === "members") return command.agents ?? noAgents;
  return command.type === "append" && command.to !== undefined ? [command.to] : noAgents;
}
