import crypto from "node:crypto";
import { type Random, drawBytes } from "../base/random.ts";
import type { Role } from "../protocol/verbs.ts";
import type { Row } from "../store/database.ts";

/** A key as lists show it. Its text is shown once, when it is made. */
export type KeyView = {
  readonly keyId: string;
  readonly name: string;
  readonly role: Role;
  /** The only tenant that it may act for; null for any that a request names. */
  readonly tenant: string | null;
  /** Whether it may read payloads and results. */
  readonly payloads: boolean;
  readonly status: "active" | "expired" | "revoked";
  readonly createdAtMs: number;
  readonly createdBy: string | null;
  readonly expiresAtMs: number | null;
  /** Within the last minute or so. */
  readonly lastUsedAtMs: number | null;
  readonly revokedAtMs: number | null;
  /** The key that it was rotated to. */
  readonly replacedBy: string | null;
};

/** Whose sign-ins are meant: all of one key, and one by its id. */
export type SignInOwner = {
  /** Of a key of the store. */
  readonly keyId?: string;
  /** Of a key of the config, by its name and tenant. */
  readonly keyName?: string;
  readonly tenant?: string;
  readonly signInId?: string;
};

// What finds leaked keys in files and logs looks for this.
const prefix = "fl_";
const keyBytes = 32;
const form = new RegExp(`^${prefix}[\\w-]{43}$`);

/** The text of a new key. */
export function newKeyText(random: Random): string {
  return prefix + newSecretText(random);
}

/** 256 random bits, as 43 characters. */
export function newSecretText(random: Random): string {
  return Buffer.from(drawBytes(random, keyBytes)).toString("base64url");
}

export function isSecretText(text: string): boolean {
  return /^[\w-]{43}$/.test(text);
}

export function isKeyText(text: string): boolean {
  return form.test(text);
}

/**
 * What is stored of a key, and of a cookie. It needs no salt and no slow hash, as a password does: nothing can guess 256
 * random bits.
 */
export function hashOfKey(text: string): string {
  return crypto.hash("sha256", text, "hex");
}

export function toKeyView(row: Row): KeyView {
  const time = (column: string) => (row[column] === null ? null : Number(row[column]));
  const revokedAtMs = time("revoked_at");
  const expiresAtMs = time("expires_at");
  const isExpired = expiresAtMs !== null && expiresAtMs <= Number(row["now_at"]);
  return {
    keyId: row["key_id"],
    name: row["name"],
    role: row["role"],
    tenant: row["tenant"],
    payloads: Number(row["payloads"]) === 1,
    status: revokedAtMs !== null ? "revoked" : isExpired ? "expired" : "active",
    createdAtMs: Number(row["created_at"]),
    createdBy: row["created_by"],
    expiresAtMs,
    lastUsedAtMs: time("last_used_at"),
    revokedAtMs,
    replacedBy: row["replaced_by"],
  };
}
