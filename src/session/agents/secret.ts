import { FlotillaError } from "../../base/errors.ts";

const prefix = "whsec_";
const keyBytes = { least: 24, most: 64 };

/** The key in a secret, as Standard Webhooks writes them: `whsec_` and 24 to 64 bytes in base64. */
export function secretKey(what: string, secret: unknown): Buffer {
  const text = typeof secret === "string" && secret.startsWith(prefix) ? secret : "";
  const key = Buffer.from(text.slice(prefix.length), "base64");
  // What isn't base64 is passed over when it is read, so it is written again and compared.
  const same = key.toString("base64").replace(/=+$/, "") === text.slice(6).replace(/=+$/, "");
  if (same && key.length >= keyBytes.least && key.length <= keyBytes.most) return key;
  throw new FlotillaError(
    "invalid_option",
    `${what}: a secret is \`whsec_\` and ${keyBytes.least} to ${keyBytes.most} bytes in base64`,
  );
}
