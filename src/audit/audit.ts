import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Database, Row } from "../store/database.ts";
import { type EntryCursor, listEntries } from "./sql.ts";

/** An act that was done: by which actor, to what, and how it was before and after. */
export type AuditEntry = {
  readonly id: string;
  readonly atMs: number;
  /** Its kind, and its name where it has one: `key/web`, `user/zoe`, `local`, `program`, `cli/root`. */
  readonly actor: string;
  readonly kind: string;
  readonly tenant: string;
  readonly keyName: string | null;
  readonly user: string | null;
  readonly role: string | null;
  /** The address of the connection, or the name of the machine. */
  readonly address: string | null;
  readonly action: string;
  readonly subject: string | null;
  /** What was selected, where that may be many. */
  readonly filter: Json;
  /** How many were changed; null where that isn't known yet, as of a redrive. */
  readonly count: number | null;
  readonly before: Json;
  readonly after: Json;
  /** `begun` while an act of several transactions goes on, or where it was cut short. */
  readonly outcome: "begun" | "done" | "full" | "over";
  readonly reason: string | null;
  /** The id that the caller gave the act. */
  readonly actId: string | null;
};

export type AuditPage = { readonly entries: AuditEntry[]; readonly next: string | null };

export type AuditListOptions = {
  /** Only of this actor, such as `key/web`. */
  actor?: string;
  /** Only this action, such as `tasks.cancel`. */
  action?: string;
  /** Only on the task, run, name, schedule or other thing with this id. */
  subject?: string;
  /** Only from this time on, in milliseconds since 1970. */
  sinceMs?: number;
  /** Only up to this time. */
  untilMs?: number;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

/** Reads who did what. Nothing here changes an entry. */
export type Audit = {
  /** A page of entries, newest first. */
  list(options?: AuditListOptions): Promise<AuditPage>;
};

const optionNames = ["actor", "action", "subject", "sinceMs", "untilMs", "cursor", "limit"];
const timeRange = { min: 0, max: 8.64e15 };
const maxChars = 1_000;

export function createAudit({ database }: { database: Database }): Audit {
  return {
    async list(options = {}) {
      checkOptions("audit.list", options, optionNames);
      const { cursor, limit = 50, sinceMs, untilMs, ...names } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (sinceMs !== undefined) checkNumber("sinceMs", sinceMs, timeRange);
      if (untilMs !== undefined) checkNumber("untilMs", untilMs, timeRange);
      for (const [name, text] of Object.entries(names)) checkText(name, text, { max: maxChars });
      const before = cursor === undefined ? undefined : cursorOf(cursor);
      const rows = await database.read(
        listEntries({
          ...names,
          ...(sinceMs !== undefined && { sinceMs }),
          ...(untilMs !== undefined && { untilMs }),
          ...(before && { before }),
          limit: limit + 1,
        }),
        { cold: true },
      );
      const page = fitPage(rows.slice(0, limit).map(toEntry), rows.length > limit);
      const last = page.items.at(-1);
      return {
        entries: page.items,
        next: page.hasMore && last ? `${last.atMs}.${last.id}` : null,
      };
    },
  };
}

function toEntry(row: Row): AuditEntry {
  const actor = row["actor"] as string;
  return {
    id: row["id"],
    atMs: Number(row["at"]),
    actor,
    kind: actor.split("/")[0]!,
    tenant: row["tenant"],
    keyName: row["key_name"],
    user: row["user_id"] === "" ? null : row["user_id"],
    role: row["role"],
    address: row["address"],
    action: row["action"],
    subject: row["subject"],
    filter: jsonOf(row["filter"]),
    count: row["count"] === null ? null : Number(row["count"]),
    before: jsonOf(row["before"]),
    after: jsonOf(row["after"]),
    outcome: row["outcome"],
    reason: row["reason"],
    actId: row["act_id"],
  };
}

function jsonOf(text: string | null): Json {
  return text === null ? null : (JSON.parse(text) as Json);
}

function cursorOf(cursor: string): EntryCursor {
  const [, atMs, id] = /^(\d{1,16})\.(.+)$/s.exec(cursor) ?? [];
  if (id !== undefined) return { atMs: Number(atMs), id };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
