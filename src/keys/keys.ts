import { type Act, beginAct, writeAct, type WriteEntry } from "../audit/act.ts";
import type { Clock } from "../base/clock.ts";
import { dayMs, yearMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { type Role, roles, type Verb, verbsOfRole } from "../protocol/verbs.ts";
import type { Database, Row } from "../store/database.ts";
import { untilKnown } from "../store/retry.ts";
import type { Statement } from "../store/sql.ts";
import { hashOfKey, type KeyView, newKeyText, toKeyView } from "./key.ts";
import {
  expireRotated,
  insertKey,
  insertRotated,
  keyExists,
  keyIsUnrevoked,
  listKeys,
  nextVersion,
  pruneKeys,
  readKeys,
  revokeKey,
} from "./sql.ts";

/** Keys in the store. Servers on the store accept them, and refuse them once they are revoked. */
export type Keys = {
  /** Makes a key. Its text is in the answer and nowhere else. */
  create(options: NewKey): Promise<CreatedKey>;
  /** A page, the newest first. Keys that were revoked or have expired are kept for 30 days. */
  list(options?: KeyListOptions): Promise<KeyPage>;
  /** Ends a key at once, with its open sockets and streams. Revoking it again changes nothing. */
  revoke(keyId: string): Promise<KeyView>;
  /** Makes a key with the same rights. The old one goes on working for the overlap. */
  rotate(keyId: string, options?: RotateOptions): Promise<RotatedKey>;
};

export type NewKey = {
  /** For lists, logs and the audit. Several keys may have the same. */
  name: string;
  role: Role;
  /** The only tenant that it may act for. Default: any that a request names. Not for an `admin`. */
  tenant?: string;
  /** Whether it may read payloads and results. Default false. */
  payloads?: boolean;
  /** Default: it doesn't expire. */
  expiresAtMs?: number;
} & Grant;

/** Who makes a key. */
export type Grant = {
  /** For the list. */
  by?: string;
  /** The rights of the maker: the key gets no others. Default: all. */
  within?: Rights;
};

export type Rights = {
  readonly verbs: ReadonlySet<Verb>;
  readonly payloads: boolean;
  /** Absent: any tenant. */
  readonly tenant?: string;
};

export type KeyListOptions = { cursor?: string; limit?: number };

export type RotateOptions = {
  /** How long the old key still works. Default: 24 hours. 0 ends it at once. */
  overlapMs?: number;
} & Grant;

export type CreatedKey = {
  readonly key: KeyView;
  /** `fl_…`: what callers send. It can't be shown again. */
  readonly text: string;
};

export type RotatedKey = CreatedKey & {
  /** The old key, with the time at which it ends. */
  readonly replaced: KeyView;
};

export type KeyPage = { readonly keys: readonly KeyView[]; readonly next: string | null };

export type KeysParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log?: Logger;
};

/** Servers listen to this channel, and read what has changed. */
export const credentialChannel = "credentials";
// Every server keeps all of them in memory.
const maxKeys = 10_000;
const endedKeptMs = 30 * dayMs;
const maxNameChars = 200;
const maxTenantChars = 500;
const maxMakerChars = 500;
const overlapRange = { min: 0, max: yearMs };

export function createKeys(parts: KeysParts): Keys {
  const { database, random, ids } = parts;

  const find = async (keyId: string): Promise<KeyView> => {
    checkId(keyId);
    const [row] = await database.read(readKeys([keyId]));
    if (row) return toKeyView(row);
    throw missing(keyId);
  };

  /** The keys with these ids after the change. */
  const change = async (
    act: Act,
    statements: (entry: WriteEntry) => readonly Statement[],
    keyIds: readonly string[],
  ) => {
    const rows = await changeCredentials(parts, act, (entry) => [
      pruneKeys(endedKeptMs),
      ...statements(entry),
      readKeys(keyIds),
    ]);
    return new Map(rows.map((row) => [row["key_id"] as string, toKeyView(row)]));
  };

  return {
    async create(options) {
      checkOptions("keys.create", options, [
        "name",
        "role",
        "tenant",
        "payloads",
        "expiresAtMs",
        "by",
        "within",
      ]);
      const { name, role, tenant, payloads = false, expiresAtMs, by, within } = options;
      checkText("a key's name", name, { max: maxNameChars });
      checkChoice("a key's role", role, roles);
      if (tenant !== undefined) checkText("a key's tenant", tenant, { max: maxTenantChars });
      if (typeof payloads !== "boolean")
        throw new FlotillaError("invalid_option", "payloads must be true or false");
      if (expiresAtMs !== undefined) checkExpiry(expiresAtMs, parts.clock.now());
      if (role === "admin" && tenant !== undefined) {
        throw new FlotillaError(
          "invalid_option",
          "an administrator acts for all tenants: leave out `tenant`, or choose another role",
        );
      }
      checkGrant({ role, tenant: tenant ?? null, payloads }, within);
      const text = newKeyText(random);
      const keyId = ids.next();
      const row = {
        keyId,
        hash: hashOfKey(text),
        name,
        role,
        tenant: tenant ?? null,
        payloads,
        createdBy: makerOf(by),
        expiresAtMs: expiresAtMs ?? null,
      };
      const act = await beginAct(parts, { action: "keys.create", subject: keyId });
      if (act.stored) throw shownBefore();
      const after = JSON.stringify({ name, role, tenant: row.tenant, payloads });
      const inserting = (entry: WriteEntry) => [
        insertKey(row, maxKeys),
        ...entry({ when: keyExists(keyId), after }),
      ];
      const key = (await change(act, inserting, [keyId])).get(keyId);
      if (key) return { key, text };
      throw tooManyKeys();
    },

    async list(options = {}) {
      checkOptions("keys.list", options, ["cursor", "limit"]);
      const { cursor, limit = 50 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (cursor !== undefined) checkId(cursor);
      const rows = await database.read(listKeys(cursor, limit + 1));
      const page = fitPage(rows.slice(0, limit).map(toKeyView), rows.length > limit);
      return { keys: page.items, next: page.hasMore ? page.items.at(-1)!.keyId : null };
    },

    async revoke(keyId) {
      checkId(keyId);
      const act = await beginAct(parts, { action: "keys.revoke", subject: keyId });
      const revoking = (entry: WriteEntry) => [
        ...entry({ when: keyIsUnrevoked(keyId) }),
        revokeKey(keyId),
      ];
      const key = (await change(act, revoking, [keyId])).get(keyId);
      if (key) return key;
      throw missing(keyId);
    },

    async rotate(keyId, options = {}) {
      checkOptions("keys.rotate", options, ["overlapMs", "by", "within"]);
      const { overlapMs = dayMs, by, within } = options;
      checkNumber("overlapMs", overlapMs, overlapRange);
      // The rights of a key never change, so that they hold until it is rotated below.
      checkGrant(await find(keyId), within);
      const text = newKeyText(random);
      const newKeyId = ids.next();
      const hash = hashOfKey(text);
      const row = { keyId, newKeyId, hash, createdBy: makerOf(by), overlapMs };
      const act = await beginAct(parts, { action: "keys.rotate", subject: keyId });
      if (act.stored) throw shownBefore();
      const after = JSON.stringify({ keyId: newKeyId, overlapMs });
      const rotating = (entry: WriteEntry) => [
        insertRotated(row, maxKeys),
        ...entry({ when: keyExists(newKeyId), after }),
        expireRotated(row),
      ];
      const found = await change(act, rotating, [keyId, newKeyId]);
      const [key, replaced] = [found.get(newKeyId), found.get(keyId)];
      if (!replaced) throw missing(keyId);
      if (key) return { key, text, replaced };
      if (replaced.status === "active" && replaced.replacedBy === null) throw tooManyKeys();
      throw notRotatable(replaced);
    },
  };
}

/**
 * Changes keys or revocations, and notifies servers. Returns the rows of the last statement. The statements
 * may be sent again, where the outcome of a write is unknown.
 */
export async function changeCredentials(
  parts: KeysParts,
  act: Act,
  statements: (entry: WriteEntry) => readonly Statement[],
): Promise<Row[]> {
  const { tables } = await writeAct(
    parts,
    act,
    {
      statements: (_, entry) => [nextVersion(), ...statements(entry)],
      channels: [credentialChannel],
    },
    untilKnown,
  );
  return tables.at(-1)!;
}

function shownBefore(): FlotillaError {
  return new FlotillaError(
    "conflict",
    "this act was done before, and a key's text is shown once: rotate the key",
  );
}

/** Who makes a key or a revocation, for lists. */
export function makerOf(by: string | undefined): string | null {
  return by === undefined ? null : checkText("by", by, { max: maxMakerChars });
}

function checkGrant(
  { role, tenant, payloads }: Pick<KeyView, "role" | "tenant" | "payloads">,
  within: Rights | undefined,
): void {
  if (!within) return;
  const isAdmin = within.verbs.has("admin");
  const lacks = isAdmin ? [] : verbsOfRole[role].filter((verb) => !within.verbs.has(verb));
  const isForeign = within.tenant !== undefined && within.tenant !== tenant;
  if (lacks.length === 0 && !isForeign && (!payloads || within.payloads)) return;
  throw new FlotillaError(
    "forbidden",
    "a key can't make one that may do more than itself: choose a lesser role, leave out `payloads`, or use another key",
    { details: { role, ...(lacks.length > 0 && { lacks }) } },
  );
}

function checkExpiry(expiresAtMs: unknown, nowMs: number): void {
  const range = { min: 1, max: 8.64e15 };
  if (checkNumber("expiresAtMs", expiresAtMs, range) > nowMs) return;
  throw new FlotillaError("invalid_option", "expiresAtMs has passed: name a time to come");
}

function checkId(keyId: unknown): void {
  checkText("a key's id", keyId, { max: 100 });
}

function missing(keyId: string): FlotillaError {
  return new FlotillaError(
    "not_found",
    `there is no key ${keyId}: \`flotilla keys list\` shows them`,
  );
}

function tooManyKeys(): FlotillaError {
  return new FlotillaError(
    "overloaded",
    `a store keeps at most ${maxKeys} keys, those that ended in the last 30 days included: use tokens for users`,
  );
}

function notRotatable({ keyId, status, replacedBy }: KeyView): FlotillaError {
  const why =
    replacedBy !== null
      ? `was rotated to ${replacedBy} already: rotate that one`
      : `${status === "revoked" ? "was revoked" : "has expired"}: make a new one`;
  return new FlotillaError("conflict", `the key ${keyId} ${why}`, { details: { keyId } });
}
