/**
 * What a caller may do. Each route and each frame needs one of these; `admin` allows everything. Most
 * callers that look after a fleet have a role, which is a set of them.
 */
export const verbs = [
  /** Read and follow sessions that the caller is a member of. */
  "sessions:read",
  /** Write in them: messages, tool results, regenerate, stop, read positions. */
  "sessions:write",
  /** Create sessions. */
  "sessions:create",
  /** Change them: metadata, members, archive, compact, delete. */
  "sessions:manage",
  /** All of the above in sessions that the caller is not a member of, too. */
  "sessions:any",
  /** Follow the caller's own inbox. */
  "inbox:read",
  /** Read one task or run of the tenant, by its id. */
  "tasks:read",
  /** Read the fleet: tasks, runs, sessions, schedules, failures, throttles, pods, metrics. */
  "fleet:read",
  /** Act on it: retry, cancel, resume, signal, pause, redrive; stop, approve and compact in sessions. */
  "fleet:operate",
  /** See payloads, results, messages and stacks of the fleet; without it only their shapes. */
  "payloads:read",
  /** Everything: what is started, limits, pins, agents, what is discarded or deleted. */
  "admin",
] as const;

export type Verb = (typeof verbs)[number];

export const roles = ["viewer", "operator", "admin"] as const;

export type Role = (typeof roles)[number];

const viewerVerbs = ["fleet:read", "tasks:read"] as const;

/** `payloads:read` is granted beside a role, because most of what is operated needs no look inside. */
export const verbsOfRole: Readonly<Record<Role, readonly Verb[]>> = {
  viewer: viewerVerbs,
  operator: [...viewerVerbs, "fleet:operate"],
  admin: verbs,
};

/** The least role that has a verb; undefined for what concerns a user's own sessions. */
export function leastRole(verb: Verb): Role | undefined {
  const role = roles.find((each) => verbsOfRole[each].includes(verb));
  return role === "admin" && verb !== "admin" ? undefined : role;
}

/** What a user's token allows if it names no verbs. */
export const usualVerbs: readonly Verb[] = ["sessions:read", "sessions:write", "inbox:read"];

/** Everything that concerns sessions, which is what a server key of one tenant gets. */
export const sessionVerbs: readonly Verb[] = verbs.filter(
  (verb) => verb.startsWith("sessions:") || verb === "inbox:read",
);
