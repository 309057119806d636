/**
 * What somebody may do. Each route and each frame needs one of these; `admin` is everything, also what
 * has nothing to do with sessions.
 */
export const verbs = [
  /** Read sessions that one takes part in, and follow them. */
  "sessions:read",
  /** Write in them: messages, tool results, regenerate, stop, what has been read. */
  "sessions:write",
  /** Make new ones. */
  "sessions:create",
  /** Change them: metadata, members, archive, compact, delete. */
  "sessions:manage",
  /** All of the above in sessions that one takes no part in, too. */
  "sessions:any",
  /** Follow one's own inbox. */
  "inbox:read",
  /** Read one task or run of the tenant, by its id. */
  "tasks:read",
  "admin",
] as const;

export type Verb = (typeof verbs)[number];

/** What a user's token allows where it doesn't say. */
export const usualVerbs: readonly Verb[] = ["sessions:read", "sessions:write", "inbox:read"];

/** All that concerns sessions, which is what a server of one tenant gets. */
export const sessionVerbs: readonly Verb[] = verbs.filter(
  (verb) => verb !== "admin" && verb !== "tasks:read",
);
