import crypto from "node:crypto";
import { trimEnd } from "../base/trim-end.ts";

/**
 * Which errors are the same for an operator: those of one task name with the same code, and
 * messages that differ only in what varies from task to task. A group's id begins with the version
 * of these rules, because operators write ids down and redrives are stored by them. A release that
 * changes the rules must raise the version.
 */
export const fingerprintVersion = 2;

export type GroupedError = {
  readonly name: string;
  readonly code: string;
  readonly message: string;
};

/**
 * The id of the group of a task's error, such as `g2-0f3b…`. Readers that may not see the text of errors
 * see these ids. They are made with a secret of the store, so that a guessed text can't be confirmed.
 */
export function errorGroupOf({ name, code, message }: GroupedError, secret: string): string {
  const text = JSON.stringify(["error group", name, code, shapeOf(message)]);
  const hash = crypto.createHmac("sha256", secret).update(text).digest("hex");
  return `g${fingerprintVersion}-${hash.slice(0, 16)}`;
}

/** The version of the rules that made a group's id; undefined for other text. */
export function groupVersion(text: string): number | undefined {
  const [, version] = /^g(\d{1,6})-[0-9a-f]{16}$/.exec(text) ?? [];
  return version === undefined ? undefined : Number(version);
}

// Long messages mostly quote data, and their beginning says what happened.
const maxReadChars = 2_000;
const maxShapeChars = 300;

/**
 * A message without the parts that vary: paths and queries of URLs, quoted parts, ids, hex,
 * numbers.
 */
export function shapeOf(message: string): string {
  const named = message
    .slice(0, maxReadChars)
    .replaceAll(url, (_, scheme: string, rest: string) => `${scheme}://${siteOf(rest)}`)
    .replaceAll(uuid, "<id>");
  const shape = withoutQuotations(named)
    .replaceAll(time, "<time>")
    .replaceAll(exponent, "$1")
    .replaceAll(word, wordShape)
    .replaceAll(joinedNumbers, "N")
    .replaceAll(/\s+/gu, " ")
    .trim();
  return shape.slice(0, maxShapeChars).toWellFormed();
}

const url = /\b([a-z][a-z0-9+.-]{0,20}):\/\/([^\s"'`<>(){}[\]|]+)/giu;
const uuid = /(?<![\p{L}\p{Nd}])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\p{L}\p{Nd}])/giu;
const word = /[\p{L}\p{Nd}_]+/gu;
const time = /\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d)?/gu;
const exponent = /(?<![\p{L}\p{Nd}_])(\d+(?:\.\d+)?)e[-+]?\d+(?![\p{L}\p{Nd}_])/giu;
// With or without a unit: 3 s, 3.5s and -1,200 ms.
const joinedNumbers = /(?:(?<![\p{L}\p{Nd}_>])[-+])?(?<![\p{L}\p{Nd}_])N(?:[.,:]N)*/gu;

const closing: Readonly<Record<string, string>> = {
  '"': '"',
  "`": "`",
  "“": "”",
  "«": "»",
  "'": "'",
};

/**
 * Replaces each quotation that ends on its line with `<text>`. An apostrophe within a word neither
 * opens nor closes one. The next mark of each kind is searched only once, so that unclosed marks
 * cost no more than other characters.
 */
export function withoutQuotations(text: string): string {
  const nexts = new Map<string, number>();
  const next = (mark: string, from: number): number => {
    const known = nexts.get(mark);
    if (known !== undefined && known >= from) return known;
    const found = text.indexOf(mark, from);
    nexts.set(mark, found === -1 ? Infinity : found);
    return nexts.get(mark)!;
  };
  let shown = "";
  let shownTo = 0;
  for (let at = 0; at < text.length; at++) {
    const mark = closing[text[at]!];
    if (mark === undefined) continue;
    if (mark === "'" && /[\p{L}\p{Nd}]$/u.test(text.slice(Math.max(0, at - 2), at))) continue;
    const end = next(mark, at + 1);
    if (end === Infinity || next("\n", at + 1) < end) continue;
    if (mark === "'" && /^[\p{L}\p{Nd}]/u.test(text.slice(end + 1, end + 3))) continue;
    shown += `${text.slice(shownTo, at)}<text>`;
    shownTo = end + 1;
    at = end;
  }
  return shown + text.slice(shownTo);
}

/** The host of a URL, without path and query. */
function siteOf(rest: string): string {
  const [beforeQuery = ""] = rest.split(/[?#]/, 1);
  const [authority = "", ...path] = beforeQuery.split("/");
  const site = authority.slice(authority.lastIndexOf("@") + 1);
  const end = /[.,;:!]$/.test(rest) ? rest.slice(-1) : "";
  return (
    [trimEnd(site, (char) => ".,;:!".includes(char)), ...(path.length > 0 ? ["…"] : [])].join("/") +
    end
  );
}

/**
 * An id differs from a word by its digits: several runs of them, hex, or one run in a long word.
 */
function wordShape(text: string): string {
  const runs = text.match(/\p{Nd}+/gu)?.length ?? 0;
  if (runs === 0) return text;
  if (/^\p{Nd}+$/u.test(text)) return "N";
  const hex = /^(?:0x[0-9a-f]+|[0-9a-f]{8,})$/i.test(text);
  return hex || runs > 1 || text.length >= 16 ? "<id>" : text.replaceAll(/\p{Nd}+/gu, "N");
}
