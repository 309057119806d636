import { createHmac, timingSafeEqual } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { hourMs, minuteMs } from "../base/durations.ts";
import { readSecret } from "../bus/secret.ts";
import type { Database } from "../store/database.ts";
import { createOutage, unguarded } from "./outage.ts";

/**
 * Addresses of files that need no credentials, for what can't send any: an `<img>` of a page, a provider that
 * downloads, an agent behind a URL. Each opens the files of one session, and expires.
 */
export type FileAccess = {
  grant(tenant: string, sessionId: string): Promise<GrantedAccess>;
  /** Whose files it opens; undefined for one that is forged, garbled or expired. */
  check(access: string): Promise<OpenedBy | undefined>;
};

export type GrantedAccess = {
  /** Goes into the path: `/v1/files/{access}/{hash}`. */
  readonly access: string;
  readonly expiresAtMs: number;
};

export type OpenedBy = {
  readonly tenant: string;
  readonly sessionId: string;
  readonly expiresAtMs: number;
};

const leastMs = hourMs;
/** The same address is given for so long, so that browsers keep what they have read. */
const stepMs = 30 * minuteMs;
const maxAccessChars = 4_000;

type FileAccessParts = {
  database: Pick<Database, "read">;
  /** The secret of the store. Default: read from the database. */
  readSecret?: (() => Promise<string>) | undefined;
  clock: Clock;
  /** As for `createFiles`. */
  goesOn?: boolean | undefined;
};

export function createFileAccess(parts: FileAccessParts): FileAccess {
  const { database, clock, readSecret: read = () => readSecret(database) } = parts;
  const whileThere = parts.goesOn ? createOutage(clock) : unguarded;
  let known: Promise<Buffer> | undefined;
  const key = (): Promise<Buffer> => {
    known ??= whileThere(read).then((secret) =>
      createHmac("sha256", secret).update("access to files").digest(),
    );
    known.catch(() => (known = undefined));
    return known;
  };
  const sign = async (claims: string) =>
    createHmac("sha256", await key())
      .update(claims)
      .digest();

  return {
    async grant(tenant, sessionId) {
      const expiresAtMs = (Math.floor((clock.now() + leastMs) / stepMs) + 1) * stepMs;
      const claims = Buffer.from(JSON.stringify([tenant, sessionId, expiresAtMs])).toString(
        "base64url",
      );
      const signature = (await sign(claims)).toString("base64url");
      return { access: `${claims}.${signature}`, expiresAtMs };
    },
    async check(access) {
      const [claims = "", signature = ""] =
        access.length <= maxAccessChars ? access.split(".", 2) : [];
      const given = Buffer.from(signature, "base64url");
      const wanted = await sign(claims);
      if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return undefined;
      const signed = JSON.parse(Buffer.from(claims, "base64url").toString("utf8")) as unknown;
      const [tenant, sessionId, expiresAtMs] = signed as [string, string, number];
      return expiresAtMs > clock.now() ? { tenant, sessionId, expiresAtMs } : undefined;
    },
  };
}
