import { beginAct, type WriteEntry } from "../audit/act.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Role, Verb } from "../protocol/verbs.ts";
import type { Row } from "../store/database.ts";
import { hashOfKey, newSecretText, type SignInOwner } from "./key.ts";
import { changeCredentials, type KeysParts } from "./keys.ts";
import {
  endSignIn,
  endReplacedSignIn,
  insertSignIn,
  listSignIns,
  pruneSignIns,
  readSignIn,
  signInExists,
  signInIsOpen,
} from "./sql.ts";

/** Browsers that have signed in with a key, and hold a cookie instead of it. */
export type SignIns = {
  /** For servers: stores that a browser has signed in. The cookie's text is in the answer and nowhere else. */
  create(options: NewSignIn): Promise<CreatedSignIn>;
  /** A page of those that count, the newest first. */
  list(options?: SignInListOptions): Promise<SignInPage>;
  /** Ends one at once, with its open sockets and streams. Ending it again changes nothing. */
  end(signInId: string, options?: EndSignInOptions): Promise<SignInView>;
};

/** A sign-in as lists show it. */
export type SignInView = {
  readonly signInId: string;
  /** The key of the store that it was made with; null for a key of a config. */
  readonly keyId: string | null;
  readonly keyName: string;
  /** What the key allowed when it was made. What counts is what the key allows now. */
  readonly role: Role | null;
  readonly tenant: string | null;
  readonly verbs: readonly Verb[];
  /** The only address of a server at which it counts, such as `https://ops.example`. */
  readonly origin: string;
  /** The address that it was made from. */
  readonly address: string | null;
  readonly createdAtMs: number;
  /** Within the last minute or so. */
  readonly lastUsedAtMs: number;
  /** When it ends in any case. */
  readonly expiresAtMs: number;
};

export type NewSignIn = Pick<SignInView, "keyName" | "role" | "tenant" | "origin" | "address"> & {
  readonly verbs: Iterable<Verb>;
  /** Of a key of the store. */
  readonly keyId?: string;
  /** Of a key of a config: what proves which it was, given the cookie's text. */
  readonly bind?: (text: string) => string;
  /** The text of the cookie that the browser had before. That sign-in ends. */
  readonly replaces?: string | undefined;
};

export type CreatedSignIn = { readonly signIn: SignInView; readonly text: string };

export type SignInListOptions = {
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
  /** Only those of one key. Default: all. */
  owner?: SignInOwner;
};

export type EndSignInOptions = {
  /** Ends it only if it is this key's own, and leaves no entry in the audit. Default: any. */
  owner?: SignInOwner;
};

export type SignInPage = { readonly signIns: readonly SignInView[]; readonly next: string | null };

// A working day.
const lifeMs = 12 * 3_600_000;
const idleMs = 3_600_000;
/** A sign-in ends after the first however much it is used, and after the second without use. */
export const signInTimes = { lifeMs, idleMs };
// Every server keeps all of them in memory.
const maxSignIns = 10_000;
// One key must not take the sign-ins of all.
const maxPerKey = 100;
// Nor by signing in and out: rows are kept for a while after their end.
const maxKeptPerKey = 1_000;
// Servers read everything once a minute, so that a row may be deleted some minutes later.
const endedKeptMs = 600_000;

export function createSignIns(parts: KeysParts): SignIns {
  const { database, random, ids } = parts;

  return {
    async create({ bind, replaces, keyId, verbs, ...shown }) {
      const text = newSecretText(random);
      const signInId = ids.next();
      const replacedHash = replaces === undefined ? undefined : hashOfKey(replaces);
      const row = {
        ...shown,
        signInId,
        hash: hashOfKey(text),
        keyId: keyId ?? null,
        binding: bind?.(text) ?? null,
        verbs: JSON.stringify([...verbs]),
      };
      const act = await beginAct(parts, { action: "sign-ins.create", subject: signInId });
      const after = JSON.stringify({ origin: shown.origin });
      const limits = { max: maxSignIns, maxPerKey, maxKept: maxKeptPerKey };
      const [stored] = await changeCredentials(parts, act, (entry: WriteEntry) => [
        pruneSignIns(endedKeptMs, signInTimes),
        insertSignIn({ ...row, replacedHash }, signInTimes, limits),
        ...(replacedHash === undefined ? [] : [endReplacedSignIn(replacedHash, signInId)]),
        ...entry({ when: signInExists(signInId), after }),
        readSignIn(signInId, undefined),
      ]);
      if (stored) return { signIn: toSignInView(stored), text };
      throw new FlotillaError(
        "overloaded",
        `a key has at most ${maxPerKey} sign-ins at once, and a store ${maxSignIns}: end some with \`flotilla sign-ins end\``,
      );
    },

    async list(options = {}) {
      checkOptions("signIns.list", options, ["cursor", "limit", "owner"]);
      const { cursor, limit = 50, owner } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (cursor !== undefined) checkId(cursor);
      const rows = await database.read(listSignIns(owner, signInTimes, cursor, limit + 1));
      const page = fitPage(rows.slice(0, limit).map(toSignInView), rows.length > limit);
      return { signIns: page.items, next: page.hasMore ? page.items.at(-1)!.signInId : null };
    },

    async end(signInId, options = {}) {
      checkId(signInId);
      checkOptions("signIns.end", options, ["owner"]);
      const { owner } = options;
      const act = await beginAct(parts, { action: "sign-ins.end", subject: signInId });
      const [stored] = await changeCredentials(parts, act, (entry: WriteEntry) => [
        // To sign out must be possible also while the audit is full.
        ...(owner ? [] : entry({ when: signInIsOpen(signInId) })),
        endSignIn(signInId, owner),
        readSignIn(signInId, owner),
      ]);
      if (stored) return toSignInView(stored);
      throw new FlotillaError(
        "not_found",
        `there is no sign-in ${signInId}: \`flotilla sign-ins list\` shows them`,
      );
    },
  };
}

function toSignInView(row: Row): SignInView {
  return {
    signInId: row["sign_in_id"],
    keyId: row["key_id"],
    keyName: row["key_name"],
    role: row["role"],
    tenant: row["tenant"],
    verbs: JSON.parse(row["verbs"]) as Verb[],
    origin: row["origin"],
    address: row["address"],
    createdAtMs: Number(row["created_at"]),
    lastUsedAtMs: Number(row["last_used_at"]),
    expiresAtMs: Number(row["expires_at"]),
  };
}

function checkId(signInId: unknown): void {
  checkText("a sign-in's id", signInId, { max: 100 });
}
