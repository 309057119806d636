import { FlotillaError } from "../base/errors.ts";
import { redactForms, redacted } from "./forms.ts";
import { secrecyOf } from "./names.ts";
import {
  type ContentName,
  createPathRules,
  hidden,
  parsePath,
  type Path,
  type PathRules,
} from "./paths.ts";
import { checkPattern } from "./patterns.ts";

/** What the config's `redact` takes. */
export type Redact = false | readonly (string | RegExp)[];

/** Takes secrets out of what users have put in. */
export type Redactor = {
  /** The value without its secrets: the same one where it has none, else a copy. Never throws. */
  value(value: unknown, name: ContentName): unknown;
  text(text: string): string;
  /** The same with more paths, such as those that a task's schema marks as sensitive. */
  with(paths: readonly Path[]): Redactor;
};

type Rules = ReturnType<typeof parsePath>[];

// Payloads nest 64 levels at most; only a log line may hold more.
const maxDepth = 100;
// A page takes 1 MiB, and a value two characters of it.
const maxValues = 1_000_000;
const maxRules = 100;
// No well-known secret is shorter.
const shortestKey = 16;

/** Redacts nothing, for a config that says so. */
const unredacting: Redactor = {
  value: (value) => value,
  text: (text) => text,
  with: () => unredacting,
};

/** Refuses invalid paths, and patterns that may be slow. */
export function createRedactor(redact: Redact = []): Redactor {
  if (redact === false) return unredacting;
  if (!Array.isArray(redact) || redact.length > maxRules) {
    throw new FlotillaError(
      "invalid_option",
      `redact must be false, or a list of at most ${maxRules} paths and regular expressions`,
    );
  }
  const rules: Rules = [];
  const patterns: RegExp[] = [];
  for (const each of redact as readonly unknown[]) {
    if (each instanceof RegExp) patterns.push(checkPattern("redact", each));
    else if (typeof each === "string") rules.push(parsePath("redact", each));
    else {
      throw new FlotillaError(
        "invalid_option",
        `redact takes paths such as "input.card" and regular expressions, not ${typeof each}`,
      );
    }
  }
  return withRules(rules, patterns);
}

/**
 * Refuses what replaces a stored value if it was read with secrets taken out: stored again, it would lose
 * them.
 */
export function checkUnredacted(what: string, value: unknown): void {
  if (!textOf(value).includes(redacted)) return;
  throw new FlotillaError(
    "invalid_input",
    `${what} has ${redacted} in it, which stands for what wasn't shown: send that itself`,
  );
}

function textOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    // It is too deep to be written, and refused as that where it would be stored.
    return "";
  }
}

/** What is used where there is no config. */
export const defaultRedactor: Redactor = createRedactor();

/** The redactors of the configs that are in use in this process. */
const shared = new Set<{ readonly redactor: Redactor }>();

/** Has a config's `redact` hold for all that `sharedRedactor` sees. The returned function ends that. */
export function shareRedactor(redactor: Redactor): () => void {
  const config = { redactor };
  shared.add(config);
  return () => void shared.delete(config);
}

/**
 * For text that leaves the process beside the content of answers: errors, traces and records of acts. It is
 * made where no config is at hand, so what any config in use hides is hidden.
 */
export const sharedRedactor: Pick<Redactor, "value" | "text"> = {
  value: (value, name) => inUse().reduce((left, each) => each.value(left, name), value),
  text: (text) => inUse().reduce((left, each) => each.text(left), text),
};

function inUse(): readonly Redactor[] {
  return shared.size === 0 ? [defaultRedactor] : [...shared].map(({ redactor }) => redactor);
}

function withRules(rules: Rules, patterns: readonly RegExp[]): Redactor {
  const paths = createPathRules(rules);
  const text = (given: string): string => {
    let left = redactForms(given);
    for (const pattern of patterns) {
      // Most texts have no match, and to look for one is a tenth of the work.
      if (!matches(pattern, left)) continue;
      // A match of nothing, between two characters, hides nothing.
      left = left.replaceAll(pattern, (match) => (match === "" ? "" : redacted));
    }
    return left;
  };
  const isNamed = (name: string): boolean => patterns.some((pattern) => matches(pattern, name));
  const parts = { paths, text, isNamed: patterns.length === 0 ? undefined : isNamed };
  return {
    value(value, name) {
      // Nothing hides it, and most fields of most tasks are empty.
      if (value === null || value === undefined) return value;
      try {
        return redactAt([name], value, parts);
      } catch {
        // What can't be read, such as a field that throws, can't be shown to hold no secret either.
        return redacted;
      }
    },
    text,
    with: (more) => withRules([...rules, ...more.map(hidden)], patterns),
  };
}

function matches(pattern: RegExp, text: string): boolean {
  pattern.lastIndex = 0;
  return pattern.test(text);
}

type WalkParts = {
  paths: PathRules | undefined;
  text: (text: string) => string;
  /** Whether a pattern matches a name; undefined where there are no patterns. */
  isNamed: ((name: string) => boolean) | undefined;
};

function redactAt(root: Path, value: unknown, { paths, text, isNamed }: WalkParts): unknown {
  /** The names that lead to the value. */
  const path = [...root];
  /** The objects that the value is in. */
  const around: object[] = [];
  let valuesLeft = maxValues;

  const walk = (given: unknown): unknown => {
    if (typeof given === "string") return text(given);
    if (typeof given !== "object" || given === null) return given;
    if (around.length >= maxDepth || --valuesLeft < 0 || around.includes(given)) return redacted;
    around.push(given);
    const left = Array.isArray(given) ? walkItems(given) : walkObject(given);
    around.pop();
    return left;
  };

  const walkItems = (items: readonly unknown[]): readonly unknown[] => {
    let copy: unknown[] | undefined;
    for (let at = 0; at < items.length; at++) {
      const before = items[at];
      const after = walk(before);
      if (after !== before) (copy ??= [...items])[at] = after;
    }
    return copy ?? items;
  };

  const walkObject = (given: object): unknown => {
    if (given instanceof Error) return walkError(given);
    if ("toJSON" in given && typeof given.toJSON === "function") {
      const written: unknown = given.toJSON();
      const after = walk(written);
      return after === written ? given : after;
    }
    const names = Object.keys(given);
    const secretField = names.includes("value") && isNamedSecret(given) ? "value" : undefined;
    let fields: [string, unknown][] | undefined;
    for (let at = 0; at < names.length; at++) {
      const name = names[at]!;
      const before = (given as Record<string, unknown>)[name];
      const after = walkField(name, before, name === secretField);
      const shownName = name.length < shortestKey ? name : redactForms(name);
      if (!fields && (after !== before || shownName !== name))
        fields = names.slice(0, at).map((each) => [each, (given as Record<string, unknown>)[each]]);
      // A number, so that two names that are secrets don't become one.
      fields?.push([shownName === name ? name : `${shownName} ${at + 1}`, after]);
    }
    // Not by assignment, which would set the prototype for the name `__proto__`.
    return fields ? Object.fromEntries(fields) : given;
  };

  const walkField = (name: string, value: unknown, isKnown: boolean): unknown => {
    path.push(name);
    const rule = paths?.at(path);
    let left: unknown;
    if (rule === "shown") left = value;
    else if (rule === "hidden" || isNamed?.(name)) left = value == null ? value : redacted;
    else left = isKnown || isSecret(name, value) ? redacted : walk(value);
    path.pop();
    return left;
  };

  /** An error's own fields aren't enumerable. One without secrets stays, for loggers that know errors. */
  const walkError = (error: Error): unknown => {
    const { name, message, stack, cause, ...fields } = error as Error & Record<string, unknown>;
    const shown = {
      name,
      message,
      ...(stack !== undefined && { stack }),
      ...(cause !== undefined && { cause }),
      ...fields,
    };
    const after = walk(shown);
    return after === shown ? error : after;
  };

  const rule = paths?.at(path);
  if (rule === "shown") return value;
  if (rule === "hidden") return value == null ? value : redacted;
  return walk(value);
}

/** Whether the object is a pair of a name and a value, as headers and environments are listed, of a secret. */
function isNamedSecret(given: object): boolean {
  const { name, key, value } = given as Record<string, unknown>;
  return [name, key].some((each) => typeof each === "string" && isSecret(each, value));
}

/** True, false, null and an empty text are no secrets, and under `token` a number isn't one. */
function isSecret(name: string, value: unknown): boolean {
  if (value === null || value === undefined || typeof value === "boolean" || value === "")
    return false;
  const secrecy = secrecyOf(name);
  return secrecy === "all" || (secrecy === "text" && typeof value !== "number");
}
