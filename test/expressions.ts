import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseSync } from "vite";
import { spentNs } from "./linear.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** A regular expression as it is written in a file. */
export type Literal = { readonly path: string; readonly literal: string; readonly regex: RegExp };

/** Those of all that is shipped, and of the chat. */
export function literals(): Literal[] {
  return globSync(["src/**/*.{ts,tsx}", "examples/chat/src/**/*.{ts,tsx}"], { cwd: root })
    .filter((path) => !/\.test\.tsx?$|\/contract\//.test(path))
    .toSorted()
    .flatMap((path) => {
      const found = new Map<string, RegExp>();
      collect(parseSync(path, readFileSync(root + path, "utf8")).program, found);
      return Array.from(found, ([literal, regex]) => ({ path, literal, regex }));
    });
}

function collect(node: unknown, found: Map<string, RegExp>): void {
  if (typeof node !== "object" || node === null) return;
  const { type, regex } = node as { type?: string; regex?: { pattern: string; flags: string } };
  if (type === "Literal" && regex) {
    const made = new RegExp(regex.pattern, regex.flags);
    found.set(String(made), made);
  }
  for (const child of Object.values(node)) collect(child, found);
}

/** Texts of any length: the two of many kinds that take it longest while they are short. */
export function worstOf(regex: RegExp, run: (text: string) => unknown): [Family, Family] {
  // The first run of an expression is slow, since it is compiled then.
  run("x");
  const short = Array.from(familiesOf(regex), (text) => {
    const given = text(512);
    return { text, ns: Math.min(spentNs(run, given), spentNs(run, given)) };
  });
  const [worst, next] = short.toSorted((one, other) => other.ns - one.ns);
  return [worst!.text, next!.text];
}

export type Family = (length: number) => string;

/**
 * Texts that are likely to be the worst for it: a beginning that it takes, something that is repeated, and
 * an end that it doesn't take, so that all ways to take the middle are tried.
 */
function* familiesOf(regex: RegExp): Generator<Family> {
  const taken = charactersOf(regex);
  const beginnings = taken.map((_, at) => taken.slice(0, at).join(""));
  const repeated = [...new Set([...taken, ...common])];
  for (const begins of new Set(["", "x", ...beginnings, taken.join("")])) {
    for (const middle of repeated) {
      for (const ends of ["", "\u0001", "\n", "1"]) {
        yield (length) => begins + middle.repeat(Math.floor(length / middle.length)) + ends;
      }
    }
  }
}

const common = [
  " ",
  "\n",
  "a",
  "1",
  "A",
  ".",
  "-",
  "/",
  ":",
  "\\",
  '"',
  "'",
  "`",
  "=",
  "“",
  "1.",
  "a/",
];

/** One character after the other that it takes, as if nothing in it were repeated or left out. */
function charactersOf({ source, flags }: RegExp): string[] {
  const atoms = source
    .replaceAll(/\(\?<?[=!](?:\[[^\]]*\]|[^()[\]])*\)|\(\?:|\\[bB]|\{[\d,]+\}/g, "")
    .matchAll(/\[(?:\\.|[^\]\\])*\]|\\p\{\w+\}|\\u\{?\w{4,5}\}?|\\.|[^()|^$*+?]/gu);
  return Array.from(atoms, ([atom]) => {
    const one = new RegExp(`^${atom}$`, flags.replaceAll(/[gy]/g, ""));
    return (
      [atom, atom.slice(1), ...common, "~", "_", ";", "\u0000", "\u2028"].find((each) =>
        one.test(each),
      ) ?? ""
    );
  }).filter((each) => each !== "");
}
