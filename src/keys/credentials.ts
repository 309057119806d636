import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { settledWithin, withTimeout } from "../base/timeout.ts";
import { type Role, roles, type Verb, verbsOfRole } from "../protocol/verbs.ts";
import type { Database, Row } from "../store/database.ts";
import { hashOfKey, isKeyText, isSecretText } from "./key.ts";
import { credentialChannel } from "./keys.ts";
import { maxTokenAgeMs } from "./revocations.ts";
import { signInTimes } from "./sign-ins.ts";
import {
  keysSince,
  noteSignInUses,
  noteUses,
  readVersion,
  revocationsSince,
  signInsSince,
} from "./sql.ts";

/**
 * What a server knows of keys, sign-ins and revocations: all of them, in memory, so that no request reads the store.
 * It reads what has changed twice a second, and at once where it is notified; everything once a minute,
 * because rows may have been changed by hand or restored from a back-up.
 *
 * While the store can't be read, known keys are accepted for a minute more, or for ten where sessions go on
 * without it; of unknown ones it can't say that they don't exist. Reading begins with the first question.
 */
export type Credentials = {
  /**
   * The key with this text, which counts as used; undefined where there is none. Throws or rejects with
   * `unauthorized` where it has ended, and with `unavailable` where that can't be known.
   */
  keyOf(text: string): KnownKey | undefined | Promise<KnownKey | undefined>;
  /** The sign-in of a cookie's text, with its key if that is in the store; otherwise like `keyOf`. */
  signInOf(text: string): KnownSignIn | undefined | Promise<KnownSignIn | undefined>;
  /** A request was let in by this sign-in: it isn't idle. */
  useSignIn(signInId: string): void;
  /** Why a credential is refused now; undefined while it is accepted. */
  refusalOf(credential: Credential): FlotillaError | undefined;
  /** Calls back once, when the credential is refused from now on. The returned function ends the watch. */
  watch(credential: Credential, onEnd: (refusal: FlotillaError) => void): () => void;
  /** Resolves after the first read, whether it has succeeded or not, to how many keys are known. */
  ready(): Promise<number>;
  close(): Promise<void>;
};

/** What a caller has shown, where it can end before the caller is gone. */
export type Credential =
  | { readonly kind: "key"; readonly keyId: string }
  | {
      readonly kind: "sign-in";
      readonly signInId: string;
      /** The key of the store that it was made with. */
      readonly keyId?: string;
    }
  | {
      readonly kind: "token";
      readonly tenant: string;
      readonly user: string;
      readonly jti?: string;
      readonly issuedAtMs?: number;
    };

export type KnownKey = {
  readonly keyId: string;
  readonly name: string;
  readonly role: Role;
  readonly tenant?: string;
  readonly payloads: boolean;
  readonly verbs: ReadonlySet<Verb>;
  readonly expiresAtMs: number | null;
  readonly isRevoked: boolean;
};

export type KnownSignIn = {
  readonly signInId: string;
  /** The key of the store that it was made with. */
  readonly key?: KnownKey;
  /** Of one that was made with a key of a config: what proves which, given the cookie's text. */
  readonly binding?: string;
  /** The only address at which it counts. */
  readonly origin: string;
  readonly expiresAtMs: number;
};

/** A sign-in as its row has it. */
type StoredSignIn = Omit<KnownSignIn, "key"> & {
  readonly keyId: string | null;
  readonly isEnded: boolean;
  usedAtMs: number;
};

type CredentialsParts = {
  database: Pick<Database, "read" | "write" | "subscribe">;
  clock: Clock;
  log?: Logger | undefined;
  /** Whether sessions go on while the store is away, because their logs are on streams. Default: they don't. */
  hasStreamLogs?: (() => boolean) | undefined;
};

type Changes = {
  readonly version: number;
  readonly isWhole: boolean;
  readonly keys: readonly Row[];
  readonly signIns: readonly Row[];
  readonly revocations: readonly Row[];
};

type Watch = {
  readonly credential: Credential;
  readonly onEnd: (refusal: FlotillaError) => void;
};

// Half of the second within which a revoked key is refused everywhere.
const pollMs = 500;
// On SQLite every commit of another process is a notification.
const minGapMs = 50;
const wholeEveryMs = 60_000;
const readTimeoutMs = 5_000;
/** How long known keys are accepted after the last successful read. */
const staleAfterMs = 60_000;
/**
 * The same where sessions go on without the store: as long as their logs do. Also how old a token may be that
 * is accepted before the first read.
 */
const staleOnStreamsMs = 600_000;
// The clock of a token's issuer may be ahead a little.
const clockToleranceMs = 5_000;
const noteEveryMs = 60_000;
const closeTimeoutMs = 1_000;
// Requests with unknown keys that wait for the next read. Others are refused at once.
const maxWaiting = 1_000;
// Cookies of which it is remembered that they are unknown. Others wait for a read again.
const maxStrangers = 10_000;

export function createCredentials(parts: CredentialsParts): Credentials {
  const { database, clock, log = silentLogger, hasStreamLogs = () => false } = parts;
  const hashes = new Map<string, KnownKey>();
  const keys = new Map<string, KnownKey>();
  const signInHashes = new Map<string, StoredSignIn>();
  const signIns = new Map<string, StoredSignIn>();
  /** Hashes of cookies that a read hasn't found, until everything is read again. */
  const strangers = new Set<string>();
  /** Until when tokens are refused, by what they are refused for. */
  const revocations = new Map<string, { beforeMs: number; expiresAtMs: number }>();
  const watches = new Set<Watch>();
  /** When keys were used, until it is stored. */
  const uses = new Map<string, number>();
  const signInUses = new Map<string, number>();
  let version = 0;
  let state: "idle" | "reading" | "resting" | "closed" = "idle";
  let startedMs = -Infinity;
  let wholeMs = -Infinity;
  let notedMs = -Infinity;
  /** When the last successful read began. */
  let readMs: number | undefined;
  let hasFailed = false;
  let isNotified = false;
  let noting: Promise<void> | undefined;
  let waiting: PromiseWithResolvers<boolean> | undefined;
  let waitingCount = 0;
  let first: Promise<boolean> | undefined;
  let cancel = () => {};
  let unsubscribe = () => {};

  const readChanges = async (): Promise<Changes> => {
    const [row] = await database.read(readVersion());
    const current = Number(row?.["version"] ?? 0);
    const isWhole = current < version || startedMs - wholeMs >= wholeEveryMs;
    if (!isWhole && current === version)
      return { version: current, isWhole, keys: [], signIns: [], revocations: [] };
    const since = isWhole ? -1 : version;
    // Before the keys, so that no sign-in is known whose key isn't.
    const changedSignIns = await database.read(signInsSince(since));
    const [changedKeys, changedRevocations] = await Promise.all([
      database.read(keysSince(since)),
      database.read(revocationsSince(since)),
    ]);
    return {
      version: current,
      isWhole,
      keys: changedKeys,
      signIns: changedSignIns,
      revocations: changedRevocations,
    };
  };

  const apply = (changes: Changes) => {
    const before = changes.isWhole ? new Map(signIns) : signIns;
    if (changes.isWhole) {
      for (const known of [hashes, keys, signInHashes, signIns, strangers, revocations])
        known.clear();
      wholeMs = startedMs;
    }
    for (const row of changes.keys) {
      const key = toKnownKey(row);
      hashes.set(row["hash"], key);
      keys.set(key.keyId, key);
    }
    for (const row of changes.signIns) {
      const signIn = toStoredSignIn(row);
      // What was used here a moment ago isn't stored yet.
      const usedAtMs = before.get(signIn.signInId)?.usedAtMs ?? 0;
      signIn.usedAtMs = Math.max(signIn.usedAtMs, usedAtMs);
      signInHashes.set(row["hash"], signIn);
      signIns.set(signIn.signInId, signIn);
    }
    for (const row of changes.revocations) {
      const times = { beforeMs: Number(row["before_at"]), expiresAtMs: Number(row["expires_at"]) };
      revocations.set(revocationKey(row["kind"], row["tenant"], row["subject"]), times);
    }
    version = changes.version;
  };

  const pass = async (): Promise<void> => {
    state = "reading";
    isNotified = false;
    const served = waiting;
    waiting = undefined;
    waitingCount = 0;
    startedMs = clock.monotonic();
    try {
      // What comes after the limit is dropped, because a later read may have come first.
      apply(await withTimeout(clock, readTimeoutMs, readChanges(), tooLate));
      readMs = startedMs;
      hasFailed = false;
    } catch (error) {
      if (isClosed()) return served?.resolve(false);
      if (!hasFailed)
        log.warn({ error: messageOf(error) }, "keys of the store can't be read: trying again");
      hasFailed = true;
    }
    served?.resolve(!hasFailed);
    if (isClosed()) return;
    endRefused();
    noteSoon();
    state = "resting";
    cancel = clock.after(isNotified ? minGapMs : pollMs, () => void pass());
  };

  const isClosed = () => state === "closed";

  const start = () => {
    if (state !== "idle") return;
    unsubscribe = database.subscribe(() => {
      isNotified = true;
      if (state !== "resting") return;
      cancel();
      const sinceMs = clock.monotonic() - startedMs;
      cancel = clock.after(Math.max(0, minGapMs - sinceMs), () => void pass());
    }, credentialChannel);
    // The first question waits for the first read.
    waiting = Promise.withResolvers();
    first = waiting.promise;
    void pass();
  };

  const endRefused = () => {
    for (const watch of watches) {
      const refusal = refusalOf(watch.credential);
      if (!refusal) continue;
      watches.delete(watch);
      watch.onEnd(refusal);
    }
  };

  const noteSoon = () => {
    const isDue = clock.monotonic() - notedMs >= noteEveryMs;
    const hasUses = uses.size > 0 || signInUses.size > 0;
    if (isDue && hasUses) noting ??= note().finally(() => (noting = undefined));
  };
  const note = async (): Promise<void> => {
    const noted = [...uses];
    const notedSignIns = [...signInUses];
    uses.clear();
    signInUses.clear();
    notedMs = clock.monotonic();
    const statements = [
      ...(noted.length > 0 ? [noteUses(noted)] : []),
      ...(notedSignIns.length > 0 ? [noteSignInUses(notedSignIns)] : []),
    ];
    try {
      await database.write(statements, { channels: [], lossy: true });
    } catch {
      // The next note has them, unless they were used again.
      for (const [keyId, atMs] of noted) if (!uses.has(keyId)) uses.set(keyId, atMs);
      for (const [id, atMs] of notedSignIns) if (!signInUses.has(id)) signInUses.set(id, atMs);
    }
  };

  const refusalOfKey = ({ isRevoked, expiresAtMs }: KnownKey): FlotillaError | undefined => {
    if (isRevoked) return unauthorized("the key was revoked: use another one");
    if (expiresAtMs !== null && clock.now() >= expiresAtMs)
      return unauthorized("the key has expired: use another one");
    return isStale() ? unavailable() : undefined;
  };
  const isStale = () => {
    const limitMs = hasStreamLogs() ? staleOnStreamsMs : staleAfterMs;
    return readMs === undefined || clock.monotonic() - readMs > limitMs;
  };

  const refusalOfSignIn = (signIn: StoredSignIn | undefined): FlotillaError | undefined => {
    // A row that is gone has ended.
    if (!signIn || signIn.isEnded)
      return unauthorized("the sign-in has ended: sign in again", { signIn: "ended" });
    const nowMs = clock.now();
    if (nowMs >= signIn.expiresAtMs || nowMs - signIn.usedAtMs >= signInTimes.idleMs)
      return unauthorized("the sign-in has expired: sign in again", { signIn: "expired" });
    if (signIn.keyId === null) return isStale() ? unavailable() : undefined;
    const refusal = refusalOf({ kind: "key", keyId: signIn.keyId });
    if (!hasCode(refusal, "unauthorized")) return refusal;
    const message = "the sign-in's key was revoked or has expired: sign in with another one";
    return unauthorized(message, { signIn: "key" });
  };

  const refusalOfToken = (
    token: Extract<Credential, { kind: "token" }>,
  ): FlotillaError | undefined => {
    const { tenant, user, jti, issuedAtMs } = token;
    const nowMs = clock.now();
    // Without any read, all tokens that were ever revoked would be accepted. One that was issued a moment ago
    // is accepted for no longer than a server does that can't read the store any more.
    if (readMs === undefined && !(isFresh(issuedAtMs, nowMs) && hasStreamLogs()))
      return unavailable();
    if (issuedAtMs !== undefined && nowMs - issuedAtMs > maxTokenAgeMs)
      return unauthorized("the token was issued more than 400 days ago: get a new one");
    const one = jti === undefined ? undefined : revocations.get(revocationKey("jti", "", jti));
    const all = revocations.get(revocationKey("user", tenant, user));
    // A token that doesn't say when it was issued may have been issued before.
    const isBefore = all !== undefined && (issuedAtMs ?? -Infinity) <= all.beforeMs;
    const isRevoked = (one && one.expiresAtMs > nowMs) || (isBefore && all.expiresAtMs > nowMs);
    return isRevoked ? unauthorized("the token was revoked: get a new one") : undefined;
  };

  const refusalOf = (credential: Credential): FlotillaError | undefined => {
    start();
    if (credential.kind === "token") return refusalOfToken(credential);
    if (credential.kind === "sign-in") return refusalOfSignIn(signIns.get(credential.signInId));
    const key = keys.get(credential.keyId);
    // A row that is gone is as good as revoked.
    return key ? refusalOfKey(key) : unauthorized("the key was revoked: use another one");
  };

  const use = (key: KnownKey): KnownKey => {
    const refusal = refusalOfKey(key);
    if (refusal) throw refusal;
    uses.set(key.keyId, clock.now());
    return key;
  };

  const acceptSignIn = (signIn: StoredSignIn): KnownSignIn => {
    const refusal = refusalOfSignIn(signIn);
    if (refusal) throw refusal;
    const { keyId, isEnded: _ended, usedAtMs: _used, ...known } = signIn;
    return keyId === null ? known : { ...known, key: keys.get(keyId)! };
  };

  /** What is known under a hash, or may be after the next read. */
  const find = <Found>(
    look: () => Found | undefined,
  ): Found | undefined | Promise<Found | undefined> => {
    if (isClosed()) return undefined;
    const known = look();
    if (known) return known;
    start();
    if (hasFailed) throw unavailable();
    if (waitingCount >= maxWaiting) return undefined;
    // It may have been made a moment ago. All that are unknown wait for the same read, which is made anyway.
    waitingCount++;
    const reading = readMs === undefined ? first! : (waiting ??= Promise.withResolvers()).promise;
    return reading.then((isRead) => {
      const found = look();
      if (!found && !isRead) throw unavailable();
      return found;
    });
  };

  return {
    keyOf(text) {
      if (!isKeyText(text)) return undefined;
      const hash = hashOfKey(text);
      return find(() => {
        const known = hashes.get(hash);
        return known && use(known);
      });
    },
    signInOf(text) {
      if (!isSecretText(text)) return undefined;
      const hash = hashOfKey(text);
      if (strangers.has(hash)) return undefined;
      // A read that began before the question may have missed it.
      const isFirst = readMs === undefined;
      const found = find(() => {
        const known = signInHashes.get(hash);
        return known && acceptSignIn(known);
      });
      if (!(found instanceof Promise) || isFirst) return found;
      return found.then((known) => {
        // A browser has its cookie after the row is stored, and sends it for hours after the row is gone.
        if (!known && strangers.size < maxStrangers) strangers.add(hash);
        return known;
      });
    },
    useSignIn(signInId) {
      const signIn = signIns.get(signInId);
      if (!signIn) return;
      signIn.usedAtMs = clock.now();
      signInUses.set(signInId, signIn.usedAtMs);
      if (signIn.keyId !== null) uses.set(signIn.keyId, signIn.usedAtMs);
    },
    refusalOf,
    watch(credential, onEnd) {
      const watch = { credential, onEnd };
      watches.add(watch);
      return () => void watches.delete(watch);
    },
    async ready() {
      start();
      await first;
      return keys.size;
    },
    async close() {
      if (isClosed()) return;
      state = "closed";
      cancel();
      unsubscribe();
      waiting?.resolve(false);
      watches.clear();
      await settledWithin(clock, closeTimeoutMs, noting ?? Promise.resolve());
      if (uses.size > 0 || signInUses.size > 0) await settledWithin(clock, closeTimeoutMs, note());
    },
  };
}

function toKnownKey(row: Row): KnownKey {
  const { key_id: keyId, name, role, tenant, expires_at: expiresAt } = row;
  // A later release may have stored a role that this one doesn't know.
  const granted = roles.includes(role) ? verbsOfRole[role as Role] : [];
  const payloads = Number(row["payloads"]) === 1;
  const verbs: readonly Verb[] = payloads ? [...granted, "payloads:read"] : granted;
  // An administrator acts for all tenants, so a key of one tenant never gets `admin`.
  const allowed = tenant === null ? verbs : verbs.filter((verb) => verb !== "admin");
  return {
    keyId,
    name,
    role,
    ...(tenant !== null && { tenant }),
    payloads,
    verbs: new Set(allowed),
    expiresAtMs: expiresAt === null ? null : Number(expiresAt),
    isRevoked: row["revoked_at"] !== null,
  };
}

function toStoredSignIn(row: Row): StoredSignIn {
  return {
    signInId: row["sign_in_id"],
    keyId: row["key_id"],
    ...(row["binding"] !== null && { binding: row["binding"] as string }),
    origin: row["origin"],
    expiresAtMs: Number(row["expires_at"]),
    isEnded: row["ended_at"] !== null,
    usedAtMs: Number(row["last_used_at"]),
  };
}

function isFresh(issuedAtMs: number | undefined, nowMs: number): boolean {
  if (issuedAtMs === undefined) return false;
  const ageMs = nowMs - issuedAtMs;
  return ageMs >= -clockToleranceMs && ageMs <= staleOnStreamsMs;
}

/** NUL separates the parts, because no name contains it. */
function revocationKey(kind: "jti" | "user", tenant: string, subject: string): string {
  return [kind, tenant, subject].join("\0");
}

function unauthorized(message: string, details?: { signIn: string }): FlotillaError {
  return new FlotillaError("unauthorized", message, details && { details });
}

function unavailable(): FlotillaError {
  return new FlotillaError(
    "unavailable",
    "keys and tokens can't be checked right now, because the store is away: try again soon",
    { retryAfterMs: 1_000 },
  );
}

function tooLate(): FlotillaError {
  return new FlotillaError("timeout", `the store took more than ${readTimeoutMs} ms`);
}
