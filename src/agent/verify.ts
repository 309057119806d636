import { type Clock, systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkNumber } from "../base/options.ts";
import { fromBase64, secretKey } from "../protocol/agent-http.ts";
import { type Refusal, createRefusal } from "./refusal.ts";

export type VerifyOptions = {
  /** What signs the agent's requests: `whsec_…`. Several while one is replaced by another. */
  secret: string | readonly string[];
  /** How far the clock of whoever signed may be from this one. Default 5 minutes. */
  toleranceMs?: number;
  /** What a request may take. Default 8 MiB. */
  maxBytes?: number;
  /** Default: the system's. */
  clock?: Clock;
};

/** What is signed. A `Request` is one, and so is what Node has of one. */
export type SignedRequest = {
  readonly headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The bytes as they came: what was parsed and written again isn't what was signed. */
  readonly body: RequestBody;
  readonly bodyUsed?: boolean;
};

export type Verified = {
  readonly ok: true;
  /** The same for every try of the same turn, and for no other. */
  readonly webhookId: string;
  readonly body: string;
};

type Key = Parameters<typeof crypto.subtle.sign>[1];

const toleranceByDefaultMs = 300_000;
const bytesByDefault = 8 * 1024 * 1024;
// More than a rotation ever needs; each costs a hash of the whole body.
const maxSecrets = 8;
const maxSignatures = 32;
const maxIdChars = 256;

/**
 * Checks that a request comes from who knows a secret, and isn't an old one, after Standard Webhooks.
 * Gives its body, or the refusal to send.
 */
export function verify(
  request: SignedRequest,
  options: VerifyOptions,
): Promise<Verified | Refusal> {
  return createVerifier(options)(request);
}

/** The same for many requests: the secrets are looked at once, and wrong ones throw here. */
export function createVerifier({
  secret,
  toleranceMs = toleranceByDefaultMs,
  maxBytes = bytesByDefault,
  clock = systemClock,
}: VerifyOptions): (request: SignedRequest) => Promise<Verified | Refusal> {
  checkNumber("toleranceMs", toleranceMs, { min: 0, max: 86_400_000 });
  checkNumber("maxBytes", maxBytes, { min: 1, max: 1024 * 1024 * 1024 });
  const secrets = secretsOf(secret);
  let keys: Promise<Key[]> | undefined;

  return async (request) => {
    if (request.bodyUsed === true) throw new FlotillaError("invalid_option", bodyWasRead);
    const header = headersOf(request);
    const id = header("webhook-id");
    const at = header("webhook-timestamp");
    const signatures = header("webhook-signature");
    if (!id || !at || !signatures) return unsigned("the request isn't signed");
    const isShort = id.length <= maxIdChars && signatures.length <= maxSignatures * 128;
    if (!isShort || !/^\d{1,12}$/.test(at)) return unsigned("the signature can't be read");
    if (Math.abs(clock.now() - Number(at) * 1_000) > toleranceMs) {
      return unsigned("the request is too old, or the clocks differ too much");
    }
    const bytes = await readBytes(request.body, { maxBytes, announced: header("content-length") });
    if ("ok" in bytes) return bytes;
    // Not before there is a request: some platforms allow nothing like it while a program loads.
    keys ??= Promise.all(secrets.map(importKey));
    const start = new TextEncoder().encode(`${id}.${at}.`);
    const signed = joined([start, bytes], start.length + bytes.length);
    if (!(await isSigned(signed, signatures, await keys))) {
      return unsigned("the signature is of another secret or another body");
    }
    const body = textIn(bytes);
    if (body === undefined) return createRefusal(400, "invalid_input", "the body isn't UTF-8");
    return { ok: true, webhookId: id, body };
  };
}

function secretsOf(secret: VerifyOptions["secret"]): Uint8Array<ArrayBuffer>[] {
  const all: readonly unknown[] = Array.isArray(secret) ? secret : [secret];
  // A variable that isn't set must not be a door that is open.
  if (all.length === 0 || all.length > maxSecrets) {
    throw new FlotillaError("invalid_option", `an agent has 1 to ${maxSecrets} secrets`);
  }
  return all.map((each) => secretKey("the agent's handler", each));
}

function importKey(key: Uint8Array<ArrayBuffer>): Promise<Key> {
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

async function isSigned(
  signed: Uint8Array<ArrayBuffer>,
  header: string,
  keys: readonly Key[],
): Promise<boolean> {
  const signatures = header
    .split(" ", maxSignatures)
    .map((each) => (each.startsWith("v1,") ? fromBase64(each.slice(3)) : undefined));
  let found = 0;
  for (const key of keys) {
    const expected = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
    for (const each of signatures) found |= each ? same(each, expected) : 0;
  }
  return found === 1;
}

/** 1 where they are alike. Takes as long wherever they differ, so that nobody can guess byte by byte. */
function same(a: Uint8Array, b: Uint8Array): 0 | 1 {
  if (a.length !== b.length) return 0;
  let different = 0;
  for (let index = 0; index < a.length; index++) different |= a[index]! ^ b[index]!;
  return different === 0 ? 1 : 0;
}

function headersOf({ headers }: SignedRequest): (name: string) => string | undefined {
  const get = (headers as Partial<Headers>).get;
  if (typeof get === "function") return (name) => get.call(headers, name) ?? undefined;
  return (name) => {
    const value = (headers as Record<string, string | readonly string[] | undefined>)[name];
    return typeof value === "string" ? value : value?.[0];
  };
}

function textIn(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function unsigned(message: string): Refusal {
  return createRefusal(401, "unauthorized", message);
}

export type RequestBody = ReadableStream<Uint8Array> | Uint8Array | string | null;

/** How to have the body that was signed, for whoever has read it already. */
export const bodyWasRead =
  "the body was read before its signature could be checked, which is of the very bytes: " +
  "mount the agent before express.json() and the like, keep them with express.json({ verify(request, _response, bytes) { request.rawBody = bytes } }), " +
  "or use express.raw({ type: () => true }) for its route";

/** The whole body, or why it isn't taken. */
async function readBytes(
  body: RequestBody,
  { maxBytes, announced }: { maxBytes: number; announced: string | undefined },
): Promise<Uint8Array | Refusal> {
  // Said before it is sent, so that none of it has to be held.
  if (Number(announced ?? 0) > maxBytes) return tooLarge(maxBytes);
  if (body === null) return new Uint8Array();
  if (typeof body === "string") return within(new TextEncoder().encode(body), maxBytes);
  if (body instanceof Uint8Array) return within(body, maxBytes);
  if (body.locked) throw new FlotillaError("invalid_option", bodyWasRead);
  const reader = body.getReader();
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return joined(pieces, length);
      length += value.length;
      if (length > maxBytes) return tooLarge(maxBytes);
      pieces.push(value);
    }
  } finally {
    // Not cancelled: that would close the connection before the refusal is sent.
    reader.releaseLock();
  }
}

function within(bytes: Uint8Array, maxBytes: number): Uint8Array | Refusal {
  return bytes.length > maxBytes ? tooLarge(maxBytes) : bytes;
}

function tooLarge(maxBytes: number): Refusal {
  return createRefusal(
    413,
    "payload_too_large",
    `a request may take ${maxBytes} bytes: raise \`maxBytes\` here, or have the agent told less by its \`history\``,
  );
}

function joined(pieces: readonly Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
