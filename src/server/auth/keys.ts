import { createHash, timingSafeEqual } from "node:crypto";
import { sessionVerbs, type Verb, verbs } from "../../protocol/frames.ts";
import type { ApiKey } from "../../runtime/server-config.ts";

/** What a key is good for. */
export type KeyHolder = {
  /** Tells keys apart, and says nothing of what they are. */
  readonly id?: string;
  readonly name?: string;
  /** Absent: it acts for whichever tenant a request names. */
  readonly tenant?: string;
  readonly verbs: ReadonlySet<Verb>;
};

/** Finds the holder of a key. Only hashes are kept. */
export function createKeyring(
  apiKeys: readonly ApiKey[],
): (given: string) => KeyHolder | undefined {
  const held = apiKeys.map((each, at) => ({
    hash: hashOf(each),
    holder: { ...holderOf(each), id: String(at) },
  }));
  return (given) => {
    const hashed = hash(given);
    // Every key is compared, in full, so that the time taken tells nothing.
    return held.filter((each) => timingSafeEqual(each.hash, hashed))[0]?.holder;
  };
}

function hashOf(given: ApiKey): Buffer {
  const { key = "", hash: hashed = key } = typeof given === "string" ? { key: given } : given;
  const hex = /^sha256:([0-9a-f]{64})$/i.exec(hashed)?.[1];
  return hex === undefined ? hash(hashed) : Buffer.from(hex, "hex");
}

function holderOf(given: ApiKey): KeyHolder {
  if (typeof given === "string") return { verbs: new Set(verbs) };
  const { name, tenant, verbs: chosen, admin } = given;
  const isAdmin = admin ?? (tenant === undefined && chosen === undefined);
  const allowed = isAdmin ? verbs : (chosen ?? sessionVerbs);
  // An administrator acts for all tenants, so that a key of one can't be one, whatever else it says.
  const isOfTenant = tenant !== undefined;
  return {
    ...(name !== undefined && { name }),
    ...(isOfTenant && { tenant }),
    verbs: new Set(isOfTenant ? allowed.filter((verb) => verb !== "admin") : allowed),
  };
}

function hash(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
