import { sessionVerbs, type Verb, verbs } from "./verbs.ts";

/** What a key may do, from the least to the most. */
export const roles = ["viewer", "operator", "admin"] as const;

export type Role = (typeof roles)[number];

const verbsByRole: Readonly<Record<Role, readonly Verb[]>> = {
  /** Reads. */
  viewer: ["sessions:read", "sessions:any", "inbox:read", "tasks:read"],
  /** Also acts on what is there. */
  operator: [...sessionVerbs, "tasks:read"],
  /** Everything, for all tenants. */
  admin: verbs,
};

export function verbsOfRole(role: Role): readonly Verb[] {
  return verbsByRole[role];
}
