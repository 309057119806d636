import { FlotillaError } from "../base/errors.ts";
import { nearest } from "../base/options.ts";

/**
 * The names under which users put content, as routes show it and as paths of `redact` begin. `detail` is
 * that of an event, `parts` and `results` are those of a message, `settings` those of an agent, and `log`
 * the fields of a log line.
 */
export const contentNames = [
  "input",
  "result",
  "output",
  "state",
  "progress",
  "error",
  "detail",
  "metadata",
  "preview",
  "parts",
  "results",
  "settings",
  "log",
] as const;

export type ContentName = (typeof contentNames)[number];

/** Where a value is: the names that lead to it, without those of items of arrays. */
export type Path = readonly string[];

/** A set of paths with wildcards, to be looked up by the path of a value. */
export type PathRules = {
  /** Whether a value is hidden, or shown whatever its name; undefined where no path leads to it. */
  at(path: Path): "hidden" | "shown" | undefined;
};

type Rule = { readonly steps: Path; readonly outcome: "hidden" | "shown" };

const anyName = "*";
const anyNames = "**";
const maxPathChars = 200;

/** The steps of a path of the config, such as `input.card`, `*.ssn` or `!result.token`. */
export function parsePath(what: string, text: string): Rule {
  const outcome = text.startsWith("!") ? "shown" : "hidden";
  const steps = (outcome === "shown" ? text.slice(1) : text).split(".");
  const [first = ""] = steps;
  if (text.length > maxPathChars || steps.includes("")) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: ${JSON.stringify(text.slice(0, 80))} isn't a path: write names with dots between, such as input.card.number, * for any name and ** for any number of them`,
    );
  }
  const isKnown = [anyName, anyNames, ...contentNames].includes(first);
  if (isKnown) return { steps, outcome };
  const meant = nearest(first, contentNames);
  const hint = meant === undefined ? `write **.${text} for any place` : `did you mean ${meant}?`;
  throw new FlotillaError(
    "invalid_option",
    `${what}: a path begins with ${contentNames.join(", ")}, * or **, not with ${JSON.stringify(first.slice(0, 40))}: ${hint}`,
  );
}

export function hidden(steps: Path): Rule {
  return { steps, outcome: "hidden" };
}

/** Undefined where there are no paths, so that no value needs to be looked up. */
export function createPathRules(rules: readonly Rule[]): PathRules | undefined {
  if (rules.length === 0) return undefined;
  /** By their last name, so that most values are compared with none. */
  const byLast = new Map<string, Rule[]>();
  for (const rule of rules) {
    const last = rule.steps.at(-1)!;
    const name = last === anyNames ? anyName : last;
    byLast.set(name, [...(byLast.get(name) ?? []), rule]);
  }
  const open = byLast.get(anyName) ?? [];
  const leadTo = (path: Path, outcome: Rule["outcome"]) => (rule: Rule) =>
    rule.outcome === outcome && matches(rule.steps, path);
  return {
    at(path) {
      const named = byLast.get(path[path.length - 1]!) ?? [];
      if (named.length === 0 && open.length === 0) return undefined;
      for (const outcome of ["shown", "hidden"] as const) {
        const leads = leadTo(path, outcome);
        if (named.some(leads) || open.some(leads)) return outcome;
      }
      return undefined;
    },
  };
}

/** Whether a path with wildcards is this one. Goes back to the last `**` alone, so it can't be slow. */
function matches(steps: Path, path: Path): boolean {
  let step = 0;
  let name = 0;
  let retryStep = -1;
  let retryName = 0;
  while (name < path.length) {
    if (steps[step] === anyNames) {
      retryStep = ++step;
      retryName = name;
    } else if (step < steps.length && (steps[step] === anyName || steps[step] === path[name])) {
      step++;
      name++;
    } else if (retryStep >= 0) {
      step = retryStep;
      name = ++retryName;
    } else return false;
  }
  while (steps[step] === anyNames) step++;
  return step === steps.length;
}
