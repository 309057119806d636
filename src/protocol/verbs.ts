/**
 * What a caller may do. Each route and each frame needs one of these; `admin` allows everything, including
 * what does not concern sessions.
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
  "admin",
] as const;

export type Verb = (typeof verbs)[number];

/** What a user's token allows if it names no verbs. */
export const usualVerbs: readonly Verb[] = ["sessions:read", "sessions:write", "inbox:read"];

/** Everything that concerns sessions, which is what a server key of one tenant gets. */
export const sessionVerbs: readonly Verb[] = verbs.filter(
  (verb) => verb !== "admin" && verb !== "tasks:read",
);
