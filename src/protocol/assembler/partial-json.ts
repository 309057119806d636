import { trimEnd } from "../../base/trim-end.ts";

const words = ["true", "false", "null"];
const complete = /^(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

/**
 * Parses incomplete JSON, such as a tool's input while it streams: `{"city":"Par` becomes `{ city: "Par"
 * }`. Undefined if nothing can be read. One pass without recursion, so that the cost is linear in the
 * length of the text.
 */
export function parsePartialJson(text: string): unknown {
  const whole = parsed(text);
  if (whole !== undefined) return whole.value;
  return parsed(completed(text))?.value;
}

function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}

/** The longest prefix that can be completed, with its completion. */
function completed(text: string): string {
  // The closing character of each open value. Within an object, `state` says what may follow.
  const open: ("}" | "]")[] = [];
  let state: ParseState = "value";
  // Where the text is cut, and how many values are open there.
  let end = 0;
  let openAtEnd = 0;
  let ending = "";
  let index = 0;
  const keep = (upTo: number, add = ""): void => {
    end = upTo;
    openAtEnd = open.length;
    ending = add;
  };

  while (index < text.length) {
    const char = text[index] ?? "";
    if (/\s/.test(char)) {
      index++;
    } else if (char === '"') {
      const string = readString(text, index);
      const isKey: boolean = state === "key";
      if (!string.closed) {
        if (!isKey) keep(string.readable, '"');
        break;
      }
      index = string.end;
      state = isKey ? "colon" : "next";
      if (!isKey) keep(index);
    } else if (char === "{" || char === "[") {
      open.push(char === "{" ? "}" : "]");
      state = char === "{" ? "key" : "value";
      index++;
      keep(index);
    } else if (char === "}" || char === "]") {
      if (open.pop() !== char) break;
      index++;
      state = "next";
      keep(index);
    } else if (char === ":") {
      state = "value";
      index++;
    } else if (char === ",") {
      state = open.at(-1) === "}" ? "key" : "value";
      index++;
    } else {
      const word = /[^\s,:{}[\]"]+/y;
      word.lastIndex = index;
      const found = word.exec(text)?.[0] ?? "";
      const known = readWord(found, index + found.length === text.length);
      if (known === undefined) break;
      if (known.length > 0)
        keep(index + Math.min(known.length, found.length), known.slice(found.length));
      index += found.length;
      state = "next";
    }
  }
  return text.slice(0, end) + ending + open.slice(0, openAtEnd).reverse().join("");
}

type ParseState = "value" | "key" | "colon" | "next";

/** The end of a string that begins at `start`, and how far it can be read if it is unfinished. */
function readString(
  text: string,
  start: number,
): { closed: boolean; end: number; readable: number } {
  let index = start + 1;
  while (index < text.length) {
    const char = text[index];
    if (char === '"') return { closed: true, end: index + 1, readable: index };
    const length = char !== "\\" ? 1 : text[index + 1] === "u" ? 6 : 2;
    // An incomplete escape cannot be read.
    if (index + length > text.length) break;
    index += length;
  }
  return { closed: false, end: text.length, readable: index };
}

/** The literal or number to write; "" if it is too short to mean anything yet. */
function readWord(found: string, last: boolean): string | undefined {
  if (!last) return complete.test(found) ? found : undefined;
  const word = words.find((candidate) => candidate.startsWith(found));
  if (word !== undefined) return word;
  // Of `12.`, `1e` and `1e-`, keep the digits that are there.
  if (/^-?\d/.test(found)) return trimEnd(found, (char) => char < "0" || char > "9");
  return found === "-" ? "" : undefined;
}
