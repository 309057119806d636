/** What an act was about, as far as a page can lead there. */
export type AuditSubject =
  | {
      readonly kind: "task" | "run" | "schedule" | "pod" | "name" | "limit" | "failures";
      readonly id: string;
    }
  | { readonly kind: "session"; readonly id: string; readonly tenant: string }
  | { readonly kind: "throttle"; readonly id: string; readonly key: string }
  | { readonly kind: "everything" }
  /** It has no page: an agent, a key, a sign-in, a bulk, a redrive. */
  | { readonly kind: "other"; readonly id: string };

type Subjects = AuditSubject["kind"];

/** Every act, in words that stand between the actor and the subject, and what its subject is. */
const acts: Readonly<Record<string, readonly [words: string, subject: Subjects]>> = {
  "agents.create": ["made the agent", "other"],
  "agents.remove": ["removed the agent", "other"],
  "agents.replace": ["replaced the agent", "other"],
  "audit.full": ["took no more acts, because the audit was full", "other"],
  "bulk.start": ["began an act on all that match", "other"],
  "bulk.stop": ["stopped the act on many", "other"],
  "failures.ignore": ["ignored the failures", "failures"],
  "failures.reopen": ["reopened the failures", "failures"],
  "failures.resolve": ["resolved the failures", "failures"],
  "keys.create": ["made the key", "other"],
  "keys.revoke": ["revoked the key", "other"],
  "keys.rotate": ["rotated the key", "other"],
  "limits.set": ["set the limit of", "limit"],
  "names.pause": ["paused", "name"],
  "names.resume": ["resumed", "name"],
  "pods.drain": ["drained the pod", "pod"],
  "pods.undrain": ["ended the drain of the pod", "pod"],
  "redrives.cancel": ["stopped the redrive", "other"],
  "redrives.start": ["began a redrive", "other"],
  "runs.cancel": ["cancelled the run", "run"],
  "runs.resume": ["resumed the run", "run"],
  "runs.retry": ["retried the run", "run"],
  "runs.signal": ["signalled the run", "run"],
  "schedules.fire": ["fired the schedule", "schedule"],
  "schedules.pause": ["paused the schedule", "schedule"],
  "schedules.put": ["stored the schedule", "schedule"],
  "schedules.remove": ["deleted the schedule", "schedule"],
  "schedules.resume": ["resumed the schedule", "schedule"],
  "sessions.archive": ["archived the session", "session"],
  "sessions.cancel_wake": ["cancelled a wake of the session", "session"],
  "sessions.compact": ["compacted the session", "session"],
  "sessions.decide": ["decided on a tool call of the session", "session"],
  "sessions.members": ["changed the members of the session", "session"],
  "sessions.metadata": ["changed the metadata of the session", "session"],
  "sessions.regenerate": ["regenerated an answer of the session", "session"],
  "sessions.remove": ["deleted the session", "session"],
  "sessions.signal": ["signalled the session", "session"],
  "sessions.stop": ["stopped a turn of the session", "session"],
  "sessions.unarchive": ["took out of the archive the session", "session"],
  "sessions.wake": ["set a wake in the session", "session"],
  "sign-ins.create": ["signed in", "other"],
  "sign-ins.end": ["ended the sign-in", "other"],
  "tasks.cancel": ["cancelled the task", "task"],
  "tasks.discard": ["discarded failed tasks", "other"],
  "tasks.prune": ["deleted tasks that had ended", "other"],
  "tasks.resume": ["resumed the task", "task"],
  "tasks.retry": ["retried the task", "task"],
  "tasks.signal": ["signalled the task", "task"],
  "throttles.pin": ["pinned the throttle", "throttle"],
  "throttles.unpin": ["unpinned the throttle", "throttle"],
  "tokens.revoke": ["revoked the tokens of", "other"],
};

/** The acts that an audit may have, for completion. */
export const auditActions: readonly string[] = Object.keys(acts);

const allNames = "*";

/** What an actor has done, for a sentence. An act that this page doesn't know is shown by its name. */
export function actWords(action: string): string {
  return Object.hasOwn(acts, action) ? acts[action]![0] : `did ${action} to`;
}

/** What it was done to; undefined where the act was about many, or about nothing. */
export function auditSubject(entry: {
  readonly action: string;
  readonly subject: string | null;
  readonly tenant: string;
  readonly filter: unknown;
}): AuditSubject | undefined {
  const { action, subject, tenant } = entry;
  if (subject === null) return undefined;
  const kind = Object.hasOwn(acts, action) ? acts[action]![1] : "other";
  if (kind === "name" && subject === allNames) return { kind: "everything" };
  // The tenant of an entry on a session is that of the session.
  if (kind === "session") return { kind, id: subject, tenant };
  if (kind === "throttle") return throttleIn(entry.filter) ?? { kind, id: subject, key: "" };
  return kind === "everything" ? { kind: "other", id: subject } : { kind, id: subject };
}

/** A throttle with its key, which can't be told from its subject, `name/key`: both may have slashes. */
function throttleIn(filter: unknown): AuditSubject | undefined {
  const { name, key } = (filter ?? {}) as { readonly name?: unknown; readonly key?: unknown };
  if (typeof name !== "string" || typeof key !== "string") return undefined;
  return { kind: "throttle", id: name, key };
}
