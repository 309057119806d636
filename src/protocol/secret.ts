import { FlotillaError } from "../base/errors.ts";
import { trimEnd } from "../base/trim-end.ts";

const prefix = "whsec_";
const keyBytes = { least: 24, most: 64 };

/** The key in a secret, as Standard Webhooks writes them: `whsec_` and 24 to 64 bytes in base64. */
export function secretKey(what: string, secret: unknown): Uint8Array<ArrayBuffer> {
  const text = typeof secret === "string" && secret.startsWith(prefix) ? secret : "";
  const key = fromBase64(text.slice(prefix.length));
  if (key && key.length >= keyBytes.least && key.length <= keyBytes.most) return key;
  throw new FlotillaError(
    "invalid_option",
    `${what}: a secret is \`whsec_\` and ${keyBytes.least} to ${keyBytes.most} bytes in base64`,
  );
}

/** The bytes that a text stands for. Undefined where it isn't base64, with or without its padding. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  // Decoders pass over white space, and what was changed on its way isn't what was meant.
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  let bytes: string;
  try {
    bytes = atob(text);
  } catch {
    return undefined;
  }
  if (withoutPadding(btoa(bytes)) !== withoutPadding(text)) return undefined;
  return Uint8Array.from(bytes, (byte) => byte.charCodeAt(0));
}

function withoutPadding(base64: string): string {
  return trimEnd(base64, (char) => char === "=");
}
