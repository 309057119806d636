/**
 * What is hidden under a name that looks like a secret's: everything but true, false and null, or only
 * text and what is nested, because under `token` a number is a count.
 */
export type Secrecy = "all" | "text";

/** A name in any usual spelling: `apiKey`, `api_key`, `api-key`, `API_KEY`, `X-Api-Key`, `apiKey2`. */
const wordsOfName = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g;

const secretWords: ReadonlySet<string> = new Set([
  "password",
  "passwords",
  "passwd",
  "passphrase",
  "passcode",
  "pwd",
  "secret",
  "secrets",
  "credential",
  "credentials",
  "authorization",
  "cookie",
  "cookies",
  "cvv",
  "cvc",
  "otp",
  "totp",
]);

/** Two words that make a secret together, such as `api key`. */
const secretPairs: ReadonlySet<string> = new Set([
  ...[
    "api",
    "access",
    "private",
    "secret",
    "signing",
    "encryption",
    "master",
    "ssh",
    "hmac",
  ].flatMap((owner) => [`${owner} key`, `${owner} keys`]),
  ...["access", "refresh", "auth", "api", "bearer", "session"].map((owner) => `${owner} tokens`),
  "credit card",
  "card number",
  "pass phrase",
]);

/** The same where all is written in one: `dbpassword`, `apikey`. */
const gluedEnds: readonly string[] = [
  "password",
  "passwd",
  "secret",
  "apikey",
  "accesskey",
  "secretkey",
  "privatekey",
  "accesstoken",
  "refreshtoken",
  "authtoken",
  "apitoken",
  "bearertoken",
  "sessiontoken",
  "creditcard",
  "cardnumber",
];

/** Hidden where they come last and the value is text: `idToken`, `smtpPass`. */
const textWords: ReadonlySet<string> = new Set(["token", "jwt", "pass"]);

/** A `token` after one of these is a position in a list, a fence or a unit of a model's text. */
const plainTokens: ReadonlySet<string> = new Set([
  "claim",
  "continuation",
  "cursor",
  "end",
  "first",
  "last",
  "next",
  "page",
  "per",
  "start",
  "stop",
  "sync",
]);

/** What a name ends with that is about a secret, and isn't it: `secretName`, `passwordLength`. */
const plainEnds: ReadonlySet<string> = new Set([
  "age",
  "at",
  "consent",
  "count",
  "enabled",
  "expires",
  "expiry",
  "hint",
  "id",
  "ids",
  "kind",
  "length",
  "limit",
  "ms",
  "name",
  "names",
  "policy",
  "required",
  "size",
  "status",
  "ttl",
  "type",
  "version",
]);

// A longer name says what it holds at its end.
const maxNameChars = 100;
// Programs have few names, but names come from outside, too.
const maxCached = 10_000;
const cached = new Map<string, Secrecy | undefined>();

/** Whether a name looks like that of a secret, and what is hidden under it. */
export function secrecyOf(name: string): Secrecy | undefined {
  // One that may be as long as a payload isn't kept.
  if (name.length > maxNameChars) return judge(name.slice(-maxNameChars));
  const known = cached.get(name);
  if (known !== undefined || cached.has(name)) return known;
  const found = judge(name);
  if (cached.size >= maxCached) cached.clear();
  cached.set(name, found);
  return found;
}

function judge(name: string): Secrecy | undefined {
  const words = (name.match(wordsOfName) ?? []).map((word) => word.toLowerCase());
  const last = words.at(-1);
  if (last === undefined) return undefined;
  if (words.length > 1 && plainEnds.has(last)) return undefined;
  const isSecret = words.some(
    (word, at) =>
      secretWords.has(word) ||
      secretPairs.has(`${word} ${words[at + 1] ?? ""}`) ||
      gluedEnds.some((end) => word.endsWith(end)),
  );
  if (isSecret) return "all";
  return textWords.has(last) && !plainTokens.has(words.at(-2) ?? "") ? "text" : undefined;
}
