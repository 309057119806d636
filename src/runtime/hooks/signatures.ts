import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { minuteMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";

/** A delivery as it came, before it is known who sent it. */
export type SignedDelivery = {
  header(name: string): string | undefined;
  readonly body: Uint8Array;
  readonly nowMs: number;
};

/**
 * What is known of a delivery whose signature is right: its id, which is the same when it is sent again; or an
 * answer, where the sender only asks whether the hook is there.
 */
export type KnownDelivery = { readonly id: string } | { readonly answer: string };

/** Tells deliveries of a sender from those of others. Undefined: it isn't the sender's, or too old. */
export type HookVerifier = (
  request: SignedDelivery,
) => KnownDelivery | undefined | Promise<KnownDelivery | undefined>;

export type SignatureOptions = {
  /** What the sender signs with; several while one replaces another. Without one nothing starts. */
  secret: string | readonly string[] | undefined;
};

export type TimedSignatureOptions = SignatureOptions & {
  /** How old a signature may be, and how far ahead. Default 5 minutes. */
  toleranceMs?: number;
};

const defaultToleranceMs = 5 * minuteMs;
const minSecretChars = 8;
/** Keys of Standard Webhooks have 24 bytes or more. What isn't base64 decodes to next to nothing. */
const minKeyBytes = 16;
const maxSecrets = 8;
/** Signatures of one request that are looked at: senders send one or two. */
const maxSignatures = 16;
const maxIdChars = 1_024;

/** Signatures as standardwebhooks.com has them: Svix, OpenAI, Resend, Supabase and others. */
export function standardWebhooks(options: TimedSignatureOptions): HookVerifier {
  const { secrets, toleranceMs } = timed("standardWebhooks", options);
  const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
  if (keys.some(({ length }) => length < minKeyBytes)) {
    throw new FlotillaError(
      "invalid_option",
      `standardWebhooks: secret must be base64 of at least ${minKeyBytes} bytes, with or without whsec_ before it`,
    );
  }
  return ({ header, body, nowMs }) => {
    const id = header("webhook-id");
    const sentAt = header("webhook-timestamp");
    const given = (header("webhook-signature") ?? "").split(" ").slice(0, maxSignatures);
    if (!isId(id) || !isRecent(sentAt, nowMs, toleranceMs)) return undefined;
    const signed = [`${id}.${sentAt}.`, body];
    const wanted = keys.map((key) => hmac(key, signed));
    const found = given
      .filter((each) => each.startsWith("v1,"))
      .map((each) => Buffer.from(each.slice(3), "base64"));
    return isAnySame(found, wanted) ? { id } : undefined;
  };
}

/**
 * Deliveries of a webhook of GitHub, whose settings have the secret. Its signature covers the body alone and has
 * no time: a thief of a delivery could send it again as another, were its id that of the header.
 */
export function githubSignature(options: SignatureOptions): HookVerifier {
  const secrets = secretsOf("githubSignature", options, ["secret"]);
  return ({ header, body }) => {
    const given = header("x-hub-signature-256") ?? "";
    if (!given.startsWith("sha256=")) return undefined;
    const wanted = secrets.map((secret) => hmac(secret, [body]));
    const isTheirs = isAnySame([Buffer.from(given.slice(7), "hex")], wanted);
    return isTheirs ? { id: digestOf(body) } : undefined;
  };
}

/** Events of Stripe. The secret is that of the endpoint, `whsec_…`. */
export function stripeSignature(options: TimedSignatureOptions): HookVerifier {
  const { secrets, toleranceMs } = timed("stripeSignature", options);
  return ({ header, body, nowMs }) => {
    const pairs = (header("stripe-signature") ?? "")
      .split(",")
      .slice(0, maxSignatures)
      .map((each) => each.trim().split("=", 2) as [string, string | undefined]);
    const sentAt = pairs.find(([name]) => name === "t")?.[1];
    if (!isRecent(sentAt, nowMs, toleranceMs)) return undefined;
    const wanted = secrets.map((secret) => hmac(secret, [`${sentAt}.`, body]));
    const found = pairs
      .filter(([name]) => name === "v1")
      .map(([, hex = ""]) => Buffer.from(hex, "hex"));
    return isAnySame(found, wanted) ? { id: fieldOf(body, "id") ?? digestOf(body) } : undefined;
  };
}

/** Events and commands of a Slack app. The secret is its signing secret. */
export function slackSignature(options: TimedSignatureOptions): HookVerifier {
  const { secrets, toleranceMs } = timed("slackSignature", options);
  return ({ header, body, nowMs }) => {
    const sentAt = header("x-slack-request-timestamp");
    const given = header("x-slack-signature") ?? "";
    if (!isRecent(sentAt, nowMs, toleranceMs) || !given.startsWith("v0=")) return undefined;
    const wanted = secrets.map((secret) => hmac(secret, [`v0:${sentAt}:`, body]));
    if (!isAnySame([Buffer.from(given.slice(3), "hex")], wanted)) return undefined;
    // Sent once, when the address of the hook is set.
    const challenge =
      fieldOf(body, "type") === "url_verification" ? fieldOf(body, "challenge") : undefined;
    if (challenge !== undefined) return { answer: challenge };
    return { id: fieldOf(body, "event_id") ?? digestOf(body) };
  };
}

function timed(what: string, options: TimedSignatureOptions) {
  const secrets = secretsOf(what, options, ["secret", "toleranceMs"]);
  const { toleranceMs = defaultToleranceMs } = options;
  checkNumber(`${what}: toleranceMs`, toleranceMs, { min: 1_000, max: 60 * minuteMs });
  return { secrets, toleranceMs };
}

function secretsOf(
  what: string,
  options: SignatureOptions,
  known: readonly string[],
): readonly string[] {
  checkOptions(what, options, known);
  const { secret } = options;
  const secrets: readonly unknown[] = Array.isArray(secret) ? secret : [secret];
  const isFine = (each: unknown) => typeof each === "string" && each.length >= minSecretChars;
  if (secrets.length > 0 && secrets.length <= maxSecrets && secrets.every(isFine)) {
    return secrets as readonly string[];
  }
  throw new FlotillaError(
    "invalid_option",
    secret === undefined
      ? `${what}: there is no secret: is its environment variable set?`
      : `${what}: secret must be text of at least ${minSecretChars} characters, or up to ${maxSecrets} such texts`,
  );
}

function hmac(key: string | Uint8Array, parts: readonly (string | Uint8Array)[]): Buffer {
  const digest = createHmac("sha256", key);
  for (const part of parts) digest.update(part);
  return digest.digest();
}

function isAnySame(found: readonly Uint8Array[], wanted: readonly Uint8Array[]): boolean {
  const isSame = (one: Uint8Array, other: Uint8Array) =>
    one.length === other.length && timingSafeEqual(one, other);
  return found.some((each) => wanted.some((other) => isSame(each, other)));
}

function isId(id: string | undefined): id is string {
  return id !== undefined && id !== "" && id.length <= maxIdChars;
}

/** Whether a time in whole seconds is about now. */
function isRecent(seconds: string | undefined, nowMs: number, toleranceMs: number): boolean {
  if (seconds === undefined || !/^\d{1,12}$/.test(seconds)) return false;
  return Math.abs(nowMs - Number(seconds) * 1_000) <= toleranceMs;
}

/** A text of a body that is JSON. */
function fieldOf(body: Uint8Array, name: string): string | undefined {
  try {
    const found: unknown = JSON.parse(Buffer.from(body).toString("utf8"));
    const value: unknown =
      typeof found === "object" && found !== null && Object.hasOwn(found, name)
        ? (found as Record<string, unknown>)[name]
        : undefined;
    return typeof value === "string" && isId(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Of a body without an id: sent again, it is the same. */
function digestOf(body: Uint8Array): string {
  return createHash("sha256").update(body).digest("hex");
}
