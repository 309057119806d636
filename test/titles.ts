import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Source } from "./sources.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Words that no reader of a failing title could place: names of old parts, and subjects that are none. */
const riddles =
  /\b(?:couriers?|overseers?|desks?|(?<!dead[ -])letters?|whoever|somebody|nobody|those who)\b/i;

/** Tests, the suites that they share, and the mutations that simulations must find. */
export function testSources(): Source[] {
  const patterns = ["src/**/*.test.{ts,tsx}", "src/**/contract/*.ts", "test/**/*.{ts,tsx}"];
  return globSync(patterns, { cwd: root })
    .filter((path) => !path.includes("node_modules"))
    .map((path) => ({ path, text: readFileSync(root + path, "utf8") }));
}

export function riddlesIn(source: Source): string[] {
  return titlesOf(source).flatMap((title) => {
    const [word] = riddles.exec(title) ?? [];
    return word === undefined ? [] : [`${source.path}: "${title}" (${word})`];
  });
}

const quotedText = String.raw`\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|${"`"}([^${"`"}]*)${"`"})`;
const titles = new RegExp(
  String.raw`^ *(?:test|describe|it)(?:\.\w+)*(?:<[^(]*>)?\(${quotedText}|\)\(${quotedText}`,
  "gm",
);
const names = new RegExp(String.raw`^ *(?:\{ )?name:${quotedText}`, "gm");

/** Titles by where they stand, as our formatter leaves them: first, or right behind a table of cases. */
export function titlesOf({ path, text }: Source): string[] {
  const found = text.matchAll(/mutation[^/]*\.ts$/.test(path) ? names : titles);
  return Array.from(found, ([, ...quoted]) => quoted.find((each) => each) ?? "");
}
