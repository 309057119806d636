import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { settledWithin, withTimeout } from "../base/timeout.ts";
import { type Role, roles, type Verb, verbsOfRole } from "../protocol/verbs.ts";
import type { Database, Row } from "../store/database.ts";
import { hashOfKey, isKeyText } from "./key.ts";
import { credentialChannel } from "./keys.ts";
import { maxTokenAgeMs } from "./revocations.ts";
import { keysSince, noteUses, readVersion, revocationsSince } from "./sql.ts";

/**
 * What a server knows of keys and revocations: all of them, in memory, so that no request reads the store.
 * It reads what has changed twice a second, and at once where it is notified; everything once a minute,
 * because rows may have been changed by hand or restored from a back-up.
 *
 * While the store can't be read, known keys are accepted for a minute more; of unknown ones it can't say
 * that they don't exist. Reading begins with the first question.
 */
export type Credentials = {
  /**
   * The key with this text, which counts as used; undefined where there is none. Throws or rejects with
   * `unauthorized` where it has ended, and with `unavailable` where that can't be known.
   */
  keyOf(text: string): KnownKey | undefined | Promise<KnownKey | undefined>;
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

type CredentialsParts = {
  database: Pick<Database, "read" | "write" | "subscribe">;
  clock: Clock;
  log?: Logger | undefined;
};

type Changes = {
  readonly version: number;
  readonly isWhole: boolean;
  readonly keys: readonly Row[];
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
const noteEveryMs = 60_000;
const closeTimeoutMs = 1_000;
// Requests with unknown keys that wait for the next read. Others are refused at once.
const maxWaiting = 1_000;

export function createCredentials(parts: CredentialsParts): Credentials {
  const { database, clock, log = silentLogger } = parts;
  const hashes = new Map<string, KnownKey>();
  const keys = new Map<string, KnownKey>();
  /** Until when tokens are refused, by what they are refused for. */
  const revocations = new Map<string, { beforeMs: number; expiresAtMs: number }>();
  const watches = new Set<Watch>();
  /** When keys were used, until it is stored. */
  const uses = new Map<string, number>();
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
      return { version: current, isWhole, keys: [], revocations: [] };
    const since = isWhole ? -1 : version;
    const [changedKeys, changedRevocations] = await Promise.all([
      database.read(keysSince(since)),
      database.read(revocationsSince(since)),
    ]);
    return { version: current, isWhole, keys: changedKeys, revocations: changedRevocations };
  };

  const apply = (changes: Changes) => {
    if (changes.isWhole) {
      for (const known of [hashes, keys, revocations]) known.clear();
      wholeMs = startedMs;
    }
    for (const row of changes.keys) {
      const key = toKnownKey(row);
      hashes.set(row["hash"], key);
      keys.set(key.keyId, key);
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
    if (isDue && uses.size > 0) noting ??= note().finally(() => (noting = undefined));
  };
  const note = async (): Promise<void> => {
    const noted = [...uses];
    uses.clear();
    notedMs = clock.monotonic();
    try {
      await database.write([noteUses(noted)], { channels: [], lossy: true });
    } catch {
      // The next note has them, unless the keys were used again.
      for (const [keyId, atMs] of noted) if (!uses.has(keyId)) uses.set(keyId, atMs);
    }
  };

  const refusalOfKey = ({ isRevoked, expiresAtMs }: KnownKey): FlotillaError | undefined => {
    if (isRevoked) return unauthorized("the key was revoked: use another one");
    if (expiresAtMs !== null && clock.now() >= expiresAtMs)
      return unauthorized("the key has expired: use another one");
    const isStale = readMs === undefined || clock.monotonic() - readMs > staleAfterMs;
    return isStale ? unavailable() : undefined;
  };

  const refusalOfToken = (
    token: Extract<Credential, { kind: "token" }>,
  ): FlotillaError | undefined => {
    // Without any read, all tokens that were ever revoked would be accepted.
    if (readMs === undefined) return unavailable();
    const { tenant, user, jti, issuedAtMs } = token;
    const nowMs = clock.now();
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

  return {
    keyOf(text) {
      if (!isKeyText(text) || isClosed()) return undefined;
      const hash = hashOfKey(text);
      const known = hashes.get(hash);
      if (known) return use(known);
      start();
      if (hasFailed) throw unavailable();
      if (waitingCount >= maxWaiting) return undefined;
      // It may have been made a moment ago. All that are unknown wait for the same read, which is made anyway.
      waitingCount++;
      const reading = readMs === undefined ? first! : (waiting ??= Promise.withResolvers()).promise;
      return reading.then((isRead) => {
        const found = hashes.get(hash);
        if (found) return use(found);
        if (!isRead) throw unavailable();
        return undefined;
      });
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
      if (uses.size > 0) await settledWithin(clock, closeTimeoutMs, note());
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

/** NUL separates the parts, because no name contains it. */
function revocationKey(kind: "jti" | "user", tenant: string, subject: string): string {
  return [kind, tenant, subject].join("\0");
}

function unauthorized(message: string): FlotillaError {
  return new FlotillaError("unauthorized", message);
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
