import { secrecyOf } from "./names.ts";

/** Stands where a secret was. */
export const redacted = "[redacted]";

/*
 * Every expression here takes a time that grows with its text only, however the text is made:
 * `test/regular-expressions.test.ts` runs each on the texts that are the worst for it. A run of characters
 * is entered only at its beginning, and what may be repeated without end is last, or ends at a character
 * that it can't contain.
 */

const shortest = 8;

/** Keys that say of which service they are, and JSON web tokens. */
const keys =
  /(?<![\w-])(?:[sr]k[-_][\w-]{16,}|fl_[\w-]{40,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,}|shpat_\w{20,}|whsec_[\w+/=-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)/g;
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
/** `"name":`, as in JSON, also where that was made text again, and `name: 'value'`, up to its value. */
const quoted =
  /(?<![\w-])([\w-]{2,64})(?:(\\{0,3}["'])[ \t]{0,4}:[ \t]{0,4}(?=[\d[{-])|\\{0,3}["']?[ \t]{0,4}[:=][ \t]{0,4}(\\{0,3}["']))/g;
// Enough of a user and a password to see that there is a colon between.
const maxDecoded = 200;

/** The text, with what has the form of a well-known secret replaced. */
export function redactForms(text: string): string {
  if (text.length < shortest) return text;
  const found = clues(text);
  if (found === 0) return text;
  let left = text;
  if (found & clue.longRun && left.includes("-----BEGIN"))
    left = left.replaceAll(privateKeys, redacted);
  if (found & clue.header) left = left.replaceAll(headers, withoutHeader);
  if (found & clue.key) left = left.replaceAll(keys, (key) => (isWords(key) ? key : redacted));
  if (found & clue.scheme)
    left = left.replaceAll(bearers, withoutBearer).replaceAll(basics, withoutBasic);
  if (found & clue.url) left = left.replaceAll(urls, `$1:${redacted}@`);
  if (found & clue.equals) left = left.replaceAll(assigned, withoutValue);
  return found & clue.quoted ? withoutQuoted(left) : left;
}

/** What a text must have for an expression to find something in it. */
const clue = { longRun: 1, header: 2, scheme: 4, url: 8, equals: 16, quoted: 32, key: 64 };
/** No line that begins a private key has a shorter run. */
const shortestRun = 10;
/** The first two characters of all that `keys` finds, by their codes. */
const keyBeginnings = new Uint8Array(128 * 128);
for (const two of "sk rk fl gh gi gl xo np hf sh wh AK AS AI ya SG ey".split(" ")) {
  keyBeginnings[two.charCodeAt(0) * 128 + two.charCodeAt(1)] = 1;
}

const [word, colon, equals, blank, quote, slash] = [1, 2, 3, 4, 5, 6];
const kinds = new Uint8Array(128);
for (let code = 0; code < kinds.length; code++) {
  const char = String.fromCharCode(code);
  if (/[\w-]/.test(char)) kinds[code] = word;
}
for (const [chars, kind] of [
  [":", colon],
  ["=", equals],
  [" \t", blank],
  [`"'`, quote],
  ["/", slash],
] as const) {
  for (let at = 0; at < chars.length; at++) kinds[chars.charCodeAt(at)] = kind;
}

/**
 * The clues of a text, in one pass: most texts have none, and expressions are many times slower than this.
 * It may find more than there is, and never less.
 */
function clues(text: string): number {
  let found = 0;
  /** How many characters of a word or a key are in front of this one. */
  let run = 0;
  /** The last character that is neither blank nor a backslash. */
  let before = 0;
  let last = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const kind = code < 128 ? kinds[code]! : 0;
    if (kind === word) {
      if (++run === 2 && keyBeginnings[last * 128 + code] === 1) found |= clue.key;
      if (run === shortestRun) found |= clue.longRun;
    } else {
      if (kind === blank) {
        // `basic` and `bearer`.
        const end = last | 32;
        if (run >= 5 && (end === 99 || end === 114)) found |= clue.scheme;
      } else if (kind === colon) {
        // `key`, `secret` and `token`, `cookie` and `authorization`.
        const end = last | 32;
        if (end === 121 || end === 116 || end === 110 || end === 101) found |= clue.header;
        if (text.charCodeAt(at + 1) === 47) found |= clue.url;
      } else if (kind === equals) found |= clue.equals;
      else if (kind === quote && (before === 58 || before === 61)) found |= clue.quoted;
      // What isn't text in JSON has a name in quotation marks all the same.
      if (kind === colon && (before === 34 || before === 39)) found |= clue.quoted;
      run = 0;
    }
    last = code;
    if (kind !== blank && code !== 92) before = code;
  }
  return found;
}

function withoutHeader(whole: string, name: string, value: string): string {
  return placeholder.test(value) ? whole : `${name}: ${redacted}`;
}

function withoutBearer(whole: string, scheme: string, token: string): string {
  return /\d/.test(token) || token.length >= 20 ? `${scheme} ${redacted}` : whole;
}

function withoutBasic(whole: string, scheme: string, token: string): string {
  return isUserAndPassword(token) ? `${scheme} ${redacted}` : whole;
}

function withoutValue(whole: string, name: string): string {
  return secrecyOf(name) ? `${name}=${redacted}` : whole;
}

function withoutQuoted(text: string): string {
  let left = "";
  let done = 0;
  quoted.lastIndex = 0;
  for (let found = quoted.exec(text); found; found = quoted.exec(text)) {
    const [head, name, around, opening] = found;
    const secrecy = secrecyOf(name!);
    const begin = found.index + head.length;
    const isNumber = /[\d-]/.test(text[begin] ?? "");
    if (!secrecy || (around !== undefined && isNumber && secrecy === "text")) continue;
    const end =
      opening === undefined ? endOfValue(text, begin, around!) : endOfText(text, begin, opening);
    // A number, a list or an object becomes text, so that what was JSON stays it.
    const stand = opening === undefined ? `${around}${redacted}${around}` : redacted;
    if (end > begin) left += text.slice(done, begin) + stand;
    else left += text.slice(done, begin);
    done = end;
    quoted.lastIndex = end;
  }
  return left + text.slice(done);
}

/**
 * Where a text in quotation marks ends: at the mark that it began with, or with its line. A mark within has
 * more backslashes in front, twice as many and one for each time that the whole was made text.
 */
function endOfText(text: string, begin: number, opening: string): number {
  const mark = opening.charCodeAt(opening.length - 1);
  const escapes = opening.length - 1;
  let run = 0;
  for (let at = begin; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 10 || code === 13) return at;
    if (code === mark && run % (2 * (escapes + 1)) === escapes) return at - escapes;
    run = code === 92 ? run + 1 : 0;
  }
  return text.length;
}

/** Where a number, a list or an object of JSON ends; with the whole text where its end is missing. */
function endOfValue(text: string, begin: number, mark: string): number {
  let depth = 0;
  for (let at = begin; at < text.length; at++) {
    const char = text[at]!;
    if (char === "[" || char === "{") depth++;
    else if ((char === "]" || char === "}") && depth > 0 && --depth === 0) return at + 1;
    else if (depth === 0 && !/[\w.+-]/.test(char)) return at;
    else if (text.startsWith(mark, at)) {
      at = endOfText(text, at + mark.length, mark) + mark.length - 1;
    }
  }
  return text.length;
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
