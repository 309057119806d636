/** What a YAML document consists of. A member that is undefined is left out. */
export type Yaml =
  | string
  | number
  | boolean
  | readonly Yaml[]
  | { readonly [key: string]: Yaml | undefined }
  | Commented;

type Commented = { readonly [comment]: string; readonly value: Yaml };

const comment = Symbol("comment");
const step = "  ";
const maxInline = 80;
/** Texts that need no quotes, unless YAML has another meaning for them. */
const plainForm = /^[A-Za-z/_][A-Za-z0-9_./-]*$/;
const reserved = /^(?:true|false|null|yes|no|on|off|y|n)$/i;
/** Lines that a block would not give back as they are. */
const notForBlock = /^[ \n]|\n\n$|[^\x20-\x7e\n]/;
/** What JSON leaves as it is in a text, and YAML may not. */
const unescaped = /[\u007f-\u009f\u2028\u2029\ufeff]/g;

/** A value with lines above it that say what it is for. */
export function commented(text: string, value: Yaml): Yaml {
  return { [comment]: text, value };
}

/** A document, with lines of comment at its top. */
export function yamlDocument(value: Yaml, about = ""): string {
  return `${about === "" ? "" : commentLines(about, "")}${nested(value, "").replace(/^\n/, "")}\n`;
}

/** The value behind `key:` or `-`, from there on: on the same line, or on lines of its own. */
function nested(value: Yaml, indent: string): string {
  if (isCommented(value)) return nested(value.value, indent);
  if (typeof value === "string") return ` ${textOf(value, indent)}`;
  if (typeof value !== "object") return ` ${value}`;
  if (isList(value)) {
    const texts = value.map(shortOf);
    const inline = `[${texts.join(", ")}]`;
    if (!texts.includes(undefined) && inline.length <= maxInline) return ` ${inline}`;
    return value.map((each) => `\n${aboutOf(each, indent)}${item(each, indent)}`).join("");
  }
  const members = Object.entries(value).filter(
    (entry): entry is [string, Yaml] => entry[1] !== undefined,
  );
  if (members.length === 0) return " {}";
  return members
    .map(([key, each]) => {
      const inner = isList(bare(each)) ? indent : indent + step;
      return `\n${aboutOf(each, indent)}${indent}${quotedOf(key)}:${nested(each, inner)}`;
    })
    .join("");
}

/** An item of a list, whose first member stands on the line of the dash. */
function item(value: Yaml, indent: string): string {
  const text = nested(value, indent + step);
  const isBlock = text.startsWith("\n");
  return `${indent}-${isBlock ? ` ${text.slice(1 + indent.length + step.length)}` : text}`;
}

/** What stands in a list on one line; undefined if it can't. */
function shortOf(value: Yaml): string | undefined {
  if (typeof value === "object") return undefined;
  return typeof value === "string" ? quotedOf(value) : String(value);
}

function textOf(text: string, indent: string): string {
  if (!text.endsWith("\n") || notForBlock.test(text)) return quotedOf(text);
  const lines = text.slice(0, -1).split("\n");
  return `|\n${lines.map((line) => (line === "" ? "" : `${indent}${line}`)).join("\n")}`;
}

function quotedOf(text: string): string {
  if (plainForm.test(text) && !reserved.test(text)) return text;
  return JSON.stringify(text).replaceAll(
    unescaped,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function aboutOf(value: Yaml, indent: string): string {
  return isCommented(value) ? commentLines(value[comment], indent) : "";
}

function commentLines(text: string, indent: string): string {
  return text
    .split("\n")
    .map((line) => `${indent}#${line === "" ? "" : ` ${line}`}\n`)
    .join("");
}

function bare(value: Yaml): Yaml {
  return isCommented(value) ? value.value : value;
}

function isList(value: Yaml): value is readonly Yaml[] {
  return Array.isArray(value);
}

function isCommented(value: Yaml): value is Commented {
  return typeof value === "object" && comment in value;
}
