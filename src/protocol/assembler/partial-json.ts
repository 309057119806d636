import { trimEnd } from "../../base/trim-end.ts";

/**
 * What can be read of JSON text that isn't all there yet, as an agent's tool input while it comes:
 * `{"city":"Par` is read as `{ city: "Par" }`. Undefined where nothing can be read. One pass and no
 * recursion, so that the cost is the length of the text, whatever it holds.
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

/** The longest start of the text that can be made whole, with what makes it so. */
function completed(text: string): string {
  // For each thing that is open, what closes it. Within an object, `place` says what may come.
  const open: ("}" | "]")[] = [];
  let state: ParseState = "value";
  // Where the text is cut, and what is open there.
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

/** The end of a string that begins at `start`, and how far it can be read where it has none. */
function readString(
  text: string,
  start: number,
): { closed: boolean; end: number; readable: number } {
  let index = start + 1;
  while (index < text.length) {
    const char = text[index];
    if (char === '"') return { closed: true, end: index + 1, readable: index };
    const length = char !== "\\" ? 1 : text[index + 1] === "u" ? 6 : 2;
    // An escape that isn't all there can't be read.
    if (index + length > text.length) break;
    index += length;
  }
  return { closed: false, end: text.length, readable: index };
}

const words = ["true", "false", "null"];
const complete = /^(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

/** A literal or number as it is to be written; "" where it is too short to mean anything yet. */
function readWord(found: string, last: boolean): string | undefined {
  if (!last) return complete.test(found) ? found : undefined;
  const word = words.find((candidate) => candidate.startsWith(found));
  if (word !== undefined) return word;
  // Of `12.`, `1e` and `1e-`, the digits count that are there already.
  if (/^-?\d/.test(found)) return trimEnd(found, (char) => char < "0" || char > "9");
  return found === "-" ? "" : undefined;
}
