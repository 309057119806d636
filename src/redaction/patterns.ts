import { FlotillaError } from "../base/errors.ts";

/** What is repeated in an expression. */
type Quantifier = { readonly min: number; readonly max: number; readonly end: number };

// `v` lets classes hold classes, and nothing here needs that.
const flagsTaken = "dgimsuy";
const maxSourceChars = 500;
// In how many ways one place of a text may be tried, and how far each of them may go.
const maxWays = 500;
const maxLength = 2_000;

/**
 * Refuses an expression that might take longer than its text is long. Only these take more: what was
 * matched before and is wanted again, repeated groups, and repetitions without a limit that something has
 * to follow. All else tries every place of a text in a bounded number of ways. The expression comes back
 * as one that finds all matches.
 */
export function checkPattern(what: string, pattern: RegExp): RegExp {
  const { source, flags } = pattern;
  const shown = `${what}: ${String(pattern).slice(0, 80)}`;
  const refuse = (why: string): never => {
    throw new FlotillaError("invalid_option", `${shown} ${why}`);
  };
  for (const flag of flags) {
    if (!flagsTaken.includes(flag)) refuse(`has the flag ${flag}: use ${flagsTaken} only`);
  }
  if (source.length > maxSourceChars) refuse(`is longer than ${maxSourceChars} characters`);
  const slow = slowPartOf(source, flags.includes("u"));
  if (slow !== undefined) refuse(slow);
  const all = new RegExp(source, `${flags.replaceAll(/[dgy]/g, "")}g`);
  if ("".replaceAll(all, "x") !== "") refuse("matches the empty text: let it match a character");
  return all;
}

/** Why an expression may be slow; undefined where it can't be. */
function slowPartOf(source: string, unicode: boolean): string | undefined {
  let ways = 1;
  let length = 0;
  let depth = 0;
  for (let at = 0; at < source.length;) {
    const { end, kind } = atomAt(source, at, unicode);
    if (kind === "reference")
      return "refers to what it has matched before, which can take for ever: write it out";
    if (kind === "open") depth++;
    if (kind === "close") depth--;
    if (kind === "choice") ways = depth === 0 ? ways + 1 : ways * 2;
    const repeats = kind === "one" || kind === "close" ? quantifierAt(source, end) : undefined;
    at = repeats?.end ?? end;
    if (kind === "close") {
      if (!repeats) continue;
      if (repeats.max > 1)
        return "repeats a group, which can take for ever: repeat single characters or classes, such as [a-z0-9-]{1,40}";
      ways *= 2;
    } else if (repeats?.max === Infinity) {
      // What comes last can't fail, so it is never tried again in another length.
      const isLast = depth === 0 && (at === source.length || source[at] === "|");
      if (!isLast)
        return "repeats without a limit before its end, which can take for ever: set one, such as {1,100}";
      length += repeats.min;
    } else if (kind === "one") {
      const { min, max } = repeats ?? { min: 1, max: 1 };
      ways *= max - min + 1;
      length += max;
    }
    if (ways > maxWays || length > maxLength)
      return `may be tried in more than ${maxWays} ways, or over ${maxLength} characters, at each place of a text: set lower limits`;
  }
  return undefined;
}

type Atom = {
  readonly end: number;
  readonly kind: "one" | "open" | "close" | "choice" | "place" | "reference";
};

/** The part of an expression that begins at a place. The expression itself is known to be valid. */
function atomAt(source: string, at: number, unicode: boolean): Atom {
  const char = source[at]!;
  if (char === "(") {
    const [head = "("] = /^\((?:\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]*:))?/.exec(source.slice(at)) ?? [];
    return { end: at + head.length, kind: "open" };
  }
  if (char === ")") return { end: at + 1, kind: "close" };
  if (char === "|") return { end: at + 1, kind: "choice" };
  if (char === "^" || char === "$") return { end: at + 1, kind: "place" };
  if (char === "[") {
    let end = at + 1;
    while (source[end] !== "]") end += source[end] === "\\" ? 2 : 1;
    return { end: end + 1, kind: "one" };
  }
  if (char !== "\\") return { end: at + 1, kind: "one" };
  const escaped = source[at + 1]!;
  if (/[1-9k]/.test(escaped)) return { end: at + 2, kind: "reference" };
  if (escaped === "b" || escaped === "B") return { end: at + 2, kind: "place" };
  const braced = unicode && /[pPu]/.test(escaped) && source[at + 2] === "{";
  return { end: braced ? source.indexOf("}", at) + 1 : at + 2, kind: "one" };
}

function quantifierAt(source: string, at: number): Quantifier | undefined {
  const [whole, simple, from, upTo] =
    /^(?:([*+?])|\{(\d+)(,\d*)?\})\??/.exec(source.slice(at)) ?? [];
  if (whole === undefined) return undefined;
  const end = at + whole.length;
  if (simple !== undefined)
    return { min: simple === "+" ? 1 : 0, max: simple === "?" ? 1 : Infinity, end };
  const min = Number(from);
  if (upTo === undefined) return { min, max: min, end };
  return { min, max: upTo === "," ? Infinity : Number(upTo.slice(1)), end };
}
