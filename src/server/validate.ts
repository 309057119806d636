import { z } from "zod";
import { FlotillaError } from "../base/errors.ts";
import { checkOptions } from "../base/options.ts";

type Issue = z.core.$ZodIssue;

const maxIssuesShown = 5;

const kinds: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  int: "a whole number",
  number: "a number",
  object: "an object",
  record: "an object",
  string: "text",
};

/** Parses a value, or throws an error that says what is wrong where, and suggests a similar name. */
export function validate<S extends z.ZodType>(
  what: string,
  schema: S,
  value: unknown,
  source: "body" | "query",
): z.output<S> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const issues = result.error.issues;
  // An unknown key is often the reason why another one is missing.
  const unknownKeys = issues.find((issue) => issue.code === "unrecognized_keys");
  if (unknownKeys) refuseUnknown(what, schema, unknownKeys);
  const messages = issues.slice(0, maxIssuesShown).map((issue) => describe(what, issue));
  throw new FlotillaError(codeOf(issues[0]!, source), messages.join("; "), {
    details: { issues: messages },
  });
}

/** A missing value or one of a wrong type is `invalid_input`; a value out of range is `invalid_option`. */
function codeOf(issue: Issue, source: "body" | "query"): "invalid_input" | "invalid_option" {
  if (source === "query") return "invalid_option";
  return issue.code === "invalid_type" && issue.path.length <= 1
    ? "invalid_input"
    : "invalid_option";
}

function describe(what: string, issue: Issue): string {
  if (issue.path.length === 0) return `${what} ${requirementOf(issue)}`;
  const subject = `${issue.path.join(".")} ${requirementOf(issue)}`;
  // A single body needs no prefix; of many rows the message names the one.
  return what.startsWith("the ") ? subject : `${what}: ${subject}`;
}

/** What the value must be, in the words of other errors. */
function requirementOf(issue: Issue): string {
  if (issue.code === "invalid_type") {
    const kind = kinds[issue.expected] ?? issue.expected;
    return issue.input === undefined ? `is missing: it must be ${kind}` : `must be ${kind}`;
  }
  if (issue.code === "invalid_value") {
    const [first, ...more] = issue.values.map(String);
    return more.length === 0 ? `must be ${first}` : `must be one of ${issue.values.join(", ")}`;
  }
  if (issue.code === "too_small")
    return `must ${measureOf(issue.origin)} at least ${issue.minimum}`;
  if (issue.code === "too_big") return `must ${measureOf(issue.origin)} at most ${issue.maximum}`;
  return issue.message;
}

function measureOf(origin: string): string {
  if (origin === "string") return "be text of a length of";
  return origin === "array" ? "hold" : "be";
}

function refuseUnknown(what: string, schema: z.ZodType, issue: Issue & { keys: string[] }): void {
  const known = namesAt(schema, issue.path);
  const where = issue.path.length === 0 ? what : issue.path.join(".");
  checkOptions(where, Object.fromEntries(issue.keys.map((key) => [key, true])), known);
}

/** The keys that an object takes, at a path in a schema. */
function namesAt(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let at: unknown = schema;
  for (const step of [...path, undefined]) {
    while (at instanceof z.ZodOptional || at instanceof z.ZodNullable) at = at.unwrap();
    if (step === undefined) break;
    if (at instanceof z.ZodObject) at = at.shape[String(step)];
    else if (at instanceof z.ZodArray) at = at.element;
  }
  return at instanceof z.ZodObject ? Object.keys(at.shape) : [];
}
