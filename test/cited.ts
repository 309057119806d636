import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import config from "../vitest.config.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The test files that `vitest run` runs, and the suites that these import, by their paths. */
export function runByTheSuite(): ReadonlySet<string> {
  type Project = { test: { include: string[]; exclude?: string[] } };
  const projects = (config as { test: { projects: Project[] } }).test.projects;
  const files = projects.flatMap(({ test: { include, exclude = [] } }) => {
    const left = new Set(globSync(exclude, { cwd: root }));
    return globSync(include, { cwd: root }).filter((path) => !left.has(path));
  });
  const found = new Set<string>();
  const visit = (path: string): void => {
    if (found.has(path)) return;
    found.add(path);
    const text = readFileSync(join(root, path), "utf8");
    for (const [, file] of text.matchAll(/ from "(\.[\w./-]+\.ts)"/g)) {
      const imported = join(path, "..", file!);
      if (imported.includes("/contract/")) visit(imported);
    }
  };
  files.forEach(visit);
  return found;
}

const idle = /^\.(?:skip|todo|only|fails)/;

/** Why a test or suite of this name holds nothing, if so. Part of a name will do, where it is one. */
export function faultOf(text: string, name: string): string | undefined {
  // A suite that is written elsewhere is named by its function.
  if (/^\w+Contract$/.test(name) && text.includes(`${name}(`)) return undefined;
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + 1)) {
    const declared = declarationBefore(text, at);
    if (declared === undefined) continue;
    const { kind, manner, start } = declared;
    const left = [...suitesAround(text, start), `${kind}${manner}`].find((each) =>
      idle.test(each.replace(/^\w+/, "")),
    );
    if (left !== undefined) return `it isn't run: ${left}`;
    if (kind === "test" && !/\b(?:expect|until|assert|judge)/.test(bodyFrom(text, at, start))) {
      return "it expects nothing";
    }
    return undefined;
  }
  return "there is no such test";
}

type Declared = { readonly kind: string; readonly manner: string; readonly start: number };

/** The `test` or `describe` whose title this place is in. */
function declarationBefore(text: string, at: number): Declared | undefined {
  const quoted = /["'`][^"'`\n]*$/.exec(text.slice(0, at));
  const all = [...text.slice(0, at).matchAll(/(?<=^\s*)(test|describe)((?:\.\w+)*)(?=[(<])/gm)];
  const last = all.at(-1);
  if (!quoted || !last) return undefined;
  const [whole, kind, manner] = last;
  // A title comes first, or right behind a table of cases or a condition; any other string is in the body.
  const between = text.slice(last.index + whole.length, quoted.index);
  const isTitle = /\.(?:each|for|runIf|skipIf)/.test(manner!) ? /\)\(\s*$/ : /^(?:<[^(]*>)?\(\s*$/;
  return isTitle.test(between) ? { kind: kind!, manner: manner!, start: last.index } : undefined;
}

/** The suites that what stands there is in, by their indents. */
function suitesAround(text: string, start: number): string[] {
  const indentOf = (index: number) => index - (text.lastIndexOf("\n", index - 1) + 1);
  let indent = indentOf(start);
  const around: string[] = [];
  const suites = [...text.slice(0, start).matchAll(/(?<=^\s*)describe(?:\.\w+)*(?=[(<])/gm)];
  for (const { 0: suite, index } of suites.toReversed()) {
    if (indentOf(index) >= indent) continue;
    indent = indentOf(index);
    around.push(suite);
  }
  return around;
}

/** From its title to the next declaration that is as far left. */
function bodyFrom(text: string, at: number, start: number): string {
  const indent = start - (text.lastIndexOf("\n", start - 1) + 1);
  const rest = text.slice(at);
  const next = new RegExp(`^ {0,${indent}}(?:test|describe|\\})`, "m").exec(rest);
  return next ? rest.slice(0, next.index) : rest;
}
