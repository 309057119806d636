import { type Clock, systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkNumber } from "../base/options.ts";
import { fromBase64, secretKey } from "../protocol/agent-http.ts";
import { type Refusal, createRefusal } from "./refusal.ts";

export type VerifyOptions = {
  /** The secret that signs the agent's requests: `whsec_…`. Several during a rotation. */
  secret: string | readonly string[];
  /** How far the signer's clock may differ from this one. Default 5 minutes. */
  toleranceMs?: number;
  /** The maximum size of a request. Default 8 MiB. */
  maxBytes?: number;
  /** Default: the system clock. */
  clock?: Clock;
};

/** A signed request. A `Request` fits, and so does Node's. */
export type SignedRequest = {
  readonly headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The bytes as received: a body that was parsed and serialised again no longer matches its signature. */
  readonly body: RequestBody;
  readonly bodyUsed?: boolean;
};

export type RequestBody = ReadableStream<Uint8Array> | Uint8Array | string | null;

export type Verified = {
  readonly ok: true;
  /** The same for every try of the same turn, and unique to it. */
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

/** How to keep the signed bytes, for servers that have read the body already. */
export const bodyWasRead =
  "the body was read before its signature could be checked, and only its exact bytes can be checked: " +
  "mount the agent before express.json() and the like, keep them with express.json({ verify(request, _response, bytes) { request.rawBody = bytes } }), " +
  "or use express.raw({ type: () => true }) for its route";

/**
 * Checks after Standard Webhooks that a request is signed with a known secret and is recent. Returns its
 * body, or the refusal to send.
 */
export function verify(
  request: SignedRequest,
  options: VerifyOptions,
): Promise<Verified | Refusal> {
  return createVerifier(options)(request);
}

/** The same for many requests: the secrets are parsed once, and invalid ones throw here. */
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
    if (!isShort || !/^\d{1,12}$/.test(at)) return unsigned("cannot read the signature");
    if (Math.abs(clock.now() - Number(at) * 1_000) > toleranceMs) {
      return unsigned("the request is too old, or the clocks differ too much");
    }
    const bytes = await readBytes(request.body, { maxBytes, announced: header("content-length") });
    if ("ok" in bytes) return bytes;
    // Not before the first request: some platforms forbid this while a program loads.
    keys ??= Promise.all(secrets.map(importKey));
    const start = new TextEncoder().encode(`${id}.${at}.`);
    const signed = joined([start, bytes], start.length + bytes.length);
    if (!(await isSigned(signed, signatures, await keys))) {
      return unsigned(
        "the signature does not match: it was made with another secret or for another body",
      );
    }
    const body = textIn(bytes);
    if (body === undefined) return notText();
    return { ok: true, webhookId: id, body };
  };
}

function secretsOf(secret: VerifyOptions["secret"]): Uint8Array<ArrayBuffer>[] {
  const all: readonly unknown[] = Array.isArray(secret) ? secret : [secret];
  // An unset environment variable must not leave the agent open.
  if (all.length === 0 || all.length > maxSecrets) {
    throw new FlotillaError("invalid_option", `an agent needs 1 to ${maxSecrets} secrets`);
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

/** 1 if they are equal. Takes constant time, so that a signature cannot be guessed byte by byte. */
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

/** The text of a request's body, or a refusal. */
export async function bodyOfRequest(request: Request, maxBytes: number): Promise<string | Refusal> {
  const announced = request.headers.get("content-length") ?? undefined;
  const bytes = await readBytes(request.body, { maxBytes, announced });
  if ("ok" in bytes) return bytes;
  return textIn(bytes) ?? notText();
}

function notText(): Refusal {
  return createRefusal(400, "invalid_input", "the body isn't UTF-8");
}

/** The whole body, or a refusal. */
async function readBytes(
  body: RequestBody,
  { maxBytes, announced }: { maxBytes: number; announced: string | undefined },
): Promise<Uint8Array | Refusal> {
  // Refused by the announced length, so that nothing of it must be held.
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
    // Not cancelled, because that would close the connection before the refusal is sent.
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
    `a request may have at most ${maxBytes} bytes: raise \`maxBytes\` here, or shorten the agent's \`history\``,
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
