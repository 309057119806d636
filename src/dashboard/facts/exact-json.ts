/**
 * JSON without a digit lost. What JavaScript can't hold exactly, such as a number beyond 2^53, stays the
 * text that it was sent as.
 */
export class ExactNumber {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}

// Texts are matched as well, so that digits within them aren't taken for numbers.
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const numeral = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
// No text of JSON can hold this character as it is, so that no stored text looks like a mark.
const mark = "\u0000";
const escapedMark = String.raw`\u0000`;

/** Parses JSON, with an `ExactNumber` wherever a number would be written otherwise than it was sent. */
export function parseExact(text: string): unknown {
  let isMarked = false;
  const marked = text.replaceAll(tokens, (token) => {
    if (token.startsWith('"')) {
      // A stored text that begins with the mark gets a second one, and is told apart by it.
      if (!token.startsWith(`"${escapedMark}`)) return token;
      isMarked = true;
      return `"${escapedMark}${token.slice(1)}`;
    }
    // What is no number is left for the parser to refuse.
    if (String(Number(token)) === token || !numeral.test(token)) return token;
    isMarked = true;
    return `"${escapedMark}${token}"`;
  });
  if (!isMarked) return JSON.parse(text);
  return JSON.parse(marked, (_, value: unknown) => {
    if (typeof value !== "string" || !value.startsWith(mark)) return value;
    return value.startsWith(mark + mark) ? value.slice(1) : new ExactNumber(value.slice(1));
  });
}

/** Writes a value as JSON again, as it was sent. */
export function writeExact(value: unknown, indent = 2): string {
  return write(value, indent, "");
}

function write(value: unknown, indent: number, margin: string): string {
  if (value instanceof ExactNumber) return value.source;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const inner = margin + " ".repeat(indent);
  const [line, end] = indent === 0 ? ["", ""] : [`\n${inner}`, `\n${margin}`];
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    const items = value.map((each) => line + write(each, indent, inner));
    return `[${items.join(",")}${end}]`;
  }
  const fields = Object.entries(value);
  if (fields.length === 0) return "{}";
  const colon = indent === 0 ? ":" : ": ";
  const items = fields.map(
    ([name, each]) => `${line}${JSON.stringify(name)}${colon}${write(each, indent, inner)}`,
  );
  return `{${items.join(",")}${end}}`;
}
