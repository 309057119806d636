import { secrecyOf } from "./names.ts";

/** Stands where a secret was. */
export const redacted = "[redacted]";

/*
 * Every expression here takes a time that grows with its text only, however the text is made:
 * `test/regular-expressions.test.ts` runs each on the texts that are the worst for it. A run of characters
 * is entered only at its beginning, and what may be repeated without end is last, or ends at a character
 * that it can't contain.
 */

/** Most texts have none of these, and need no other expression. */
const hints =
  /pass|pwd|secret|token|key|auth|cookie|cred|card|cv[vc]|otp|bearer|basic|eyJ|private|:\/\/|[sr]k[-_]|gh[pousr]_|glpat|xox|AKIA|ASIA|AIza|npm_|hf_|ya29|SG\./i;
const shortest = 8;

/** Keys that say of which service they are, and JSON web tokens. */
const keys =
  /(?<![\w-])(?:[sr]k[-_][\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,}|shpat_\w{20,}|whsec_[\w+/=-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)/g;
const privateKeys =
  /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?(?:-----END [A-Z0-9 ]{1,60}-----|$)/g;
const bearers = /\b(bearer)[ \t]{1,4}([\w.~+/=-]{8,})/gi;
const basics = /\b(basic)[ \t]{1,4}([\w+/]{8,}={0,2})/gi;
/** The password of a URL, up to the last `@` before its path. */
const urls = /\b([a-z][a-z0-9+.-]{1,20}:\/\/[^\s:/?#@"'<>]{0,200}):([^\s/?#"'<>]{1,500})@/gi;
const headers =
  /(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,30}(?:key|token|secret)):[ \t]{0,4}([^\r\n]{4,})/gi;
/** What stands for a secret in advice: `Authorization: Bearer <key>`. */
const placeholder = /^(?:bearer |basic )?[<{$…]/i;
/** `name=value`, as in queries and in connection strings. */
const assigned = /(?<![\w-])([\w-]{2,64})=([^\s"'`&,;<>(){}[\]\\]{3,})/g;
/** `"name":"value"`, as in JSON, also where that was made text again, and `name: 'value'`. */
const quoted =
  /(?<![\w-])([\w-]{2,64})(\\{0,3}["']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}["'])((?:[^"'\\\r\n]|\\[^"'\\\r\n])+)/g;
// Enough of a user and a password to see that there is a colon between.
const maxDecoded = 200;

/** The text, with what has the form of a well-known secret replaced. */
export function redactForms(text: string): string {
  if (text.length < shortest || !hints.test(text)) return text;
  return text
    .replaceAll(privateKeys, redacted)
    .replaceAll(headers, (whole, name: string, value: string) =>
      placeholder.test(value) ? whole : `${name}: ${redacted}`,
    )
    .replaceAll(keys, (key) => (isWords(key) ? key : redacted))
    .replaceAll(bearers, (whole, scheme: string, token: string) =>
      /\d/.test(token) || token.length >= 20 ? `${scheme} ${redacted}` : whole,
    )
    .replaceAll(basics, (whole, scheme: string, token: string) =>
      isUserAndPassword(token) ? `${scheme} ${redacted}` : whole,
    )
    .replaceAll(urls, (_, before: string) => `${before}:${redacted}@`)
    .replaceAll(assigned, (whole, name: string) =>
      secrecyOf(name) ? `${name}=${redacted}` : whole,
    )
    .replaceAll(quoted, (whole, name: string, between: string) =>
      secrecyOf(name) ? `${name}${between}${redacted}` : whole,
    );
}

/** `sk-` begins words as well: a key has a digit somewhere. */
function isWords(key: string): boolean {
  return /^[sr]k/.test(key) && !/\d/.test(key);
}

function isUserAndPassword(encoded: string): boolean {
  try {
    const text = atob(encoded.slice(0, maxDecoded - (maxDecoded % 4)));
    return text.includes(":") && /^[ -~]+$/.test(text);
  } catch {
    return false;
  }
}
