import { beginAct } from "../audit/act.ts";
import { dayMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions, checkText, isStorable } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Row } from "../store/database.ts";
import { changeCredentials, type KeysParts, makerOf } from "./keys.ts";
import {
  insertRevocation,
  listRevocations,
  pruneRevocations,
  readRevocation,
  revocationExists,
  type RevocationRow,
} from "./sql.ts";

/** Users' tokens that are refused though they have not expired. */
export type TokenRevocations = {
  /** Refuses one token, or all that a user was issued before now, and ends their sockets and streams. */
  revoke(options: RevokeTokens): Promise<Revocation>;
  /** A page of those that still matter. */
  revocations(options?: { cursor?: string; limit?: number }): Promise<RevocationPage>;
};

export type RevokeTokens = (
  | {
      /** The claim `jti` of the token. */
      jti: string;
      /** When the token expires, after which nothing has to be kept. Default: in 400 days. */
      expiresAtMs?: number;
    }
  | {
      /** Everything that this user was issued before now. */
      user: string;
      /** The user's tenant. Default `default`. */
      tenant?: string;
    }
) & {
  /** Who revokes, for the list. */
  by?: string;
};

export type Revocation = (
  | { readonly jti: string }
  | {
      readonly user: string;
      readonly tenant: string;
      /** Tokens that were issued up to here are refused. */
      readonly beforeMs: number;
    }
) & {
  /** When it is forgotten, because no token that it concerns is valid any more. */
  readonly expiresAtMs: number;
  readonly createdBy: string | null;
};

export type RevocationPage = {
  readonly revocations: readonly Revocation[];
  readonly next: string | null;
};

/** How old a token may be: older ones are refused, so that revocations needn't be kept for longer. */
export const maxTokenAgeMs = 400 * dayMs;
// Every server keeps all of them in memory.
const maxRevocations = 10_000;
const maxSubjectChars = 500;
const first = { kind: "", tenant: "", subject: "" };

export function createRevocations(parts: KeysParts): TokenRevocations {
  const { database, clock } = parts;

  return {
    async revoke(options) {
      const row = rowOf(options, clock.now());
      const { kind, tenant, subject } = row;
      const act = await beginAct(parts, {
        action: "tokens.revoke",
        subject,
        filter: kind === "user" ? { kind, tenant } : { kind },
      });
      const [stored] = await changeCredentials(parts, act, (entry) => [
        pruneRevocations(),
        insertRevocation(row, maxRevocations),
        ...entry({ when: revocationExists(row) }),
        readRevocation(row),
      ]);
      if (stored) return toRevocation(stored);
      throw new FlotillaError(
        "overloaded",
        `a store keeps at most ${maxRevocations} revocations: name \`expiresAtMs\` with a jti, or revoke everything of a user`,
      );
    },

    async revocations(options = {}) {
      checkOptions("tokens.revocations", options, ["cursor", "limit"]);
      const { cursor, limit = 50 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const after = cursor === undefined ? first : parseCursor(cursor);
      const rows = await database.read(listRevocations(after, limit + 1));
      const listed = rows.slice(0, limit);
      const page = fitPage(listed.map(toRevocation), rows.length > limit);
      const last = listed[page.items.length - 1];
      return { revocations: page.items, next: page.hasMore ? cursorOf(last!) : null };
    },
  };
}

function rowOf(options: RevokeTokens, nowMs: number): RevocationRow {
  checkOptions("tokens.revoke", options, ["jti", "user", "tenant", "expiresAtMs", "by"]);
  const { jti, expiresAtMs, user, tenant, by } = options as Partial<
    Extract<RevokeTokens, { jti: string }> & Extract<RevokeTokens, { user: string }>
  >;
  const createdBy = makerOf(by);
  if ((jti === undefined) === (user === undefined))
    throw new FlotillaError(
      "invalid_option",
      "name the `jti` of a token or a `user`, and not both",
    );
  if (user !== undefined) {
    if (expiresAtMs !== undefined)
      throw new FlotillaError("invalid_option", "`expiresAtMs` belongs to a `jti`");
    return {
      kind: "user",
      tenant: checkText("tenant", tenant ?? "default", { max: maxSubjectChars }),
      subject: checkText("user", user, { max: maxSubjectChars }),
      beforeMs: nowMs,
      expiresAtMs: nowMs + maxTokenAgeMs,
      createdBy,
    };
  }
  if (tenant !== undefined)
    throw new FlotillaError("invalid_option", "`tenant` belongs to a `user`");
  const range = { min: nowMs + 1, max: nowMs + maxTokenAgeMs };
  return {
    kind: "jti",
    tenant: "",
    subject: checkText("jti", jti, { max: maxSubjectChars }),
    beforeMs: nowMs,
    expiresAtMs: checkNumber("expiresAtMs", expiresAtMs ?? range.max, range),
    createdBy,
  };
}

function toRevocation(row: Row): Revocation {
  const rest = { expiresAtMs: Number(row["expires_at"]), createdBy: row["created_by"] };
  if (row["kind"] === "jti") return { jti: row["subject"], ...rest };
  const { subject: user, tenant, before_at: before } = row;
  return { user, tenant, beforeMs: Number(before), ...rest };
}

function cursorOf({ kind, tenant, subject }: Row): string {
  return Buffer.from(JSON.stringify([kind, tenant, subject])).toString("base64url");
}

function parseCursor(cursor: string): { kind: string; tenant: string; subject: string } {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    const [kind, tenant, subject] = parts as [string, string, string];
    const isText = (each: unknown) => typeof each === "string" && isStorable(each);
    if ([kind, tenant, subject].every(isText)) return { kind, tenant, subject };
  } catch {
    // Refused below.
  }
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
