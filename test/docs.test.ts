import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { errorCodes, FlotillaError } from "../src/base/errors.ts";
import { exitCodeMeanings, exitCodeOf } from "../src/cli/exit-codes.ts";
import { statusOf } from "../src/server/errors.ts";
import { faultOf, runByTheSuite } from "./cited.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The rows of all tables of a document, as their cells. */
function rowsOf(file: string): string[][] {
  return read(`docs/${file}`)
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map(cellsOf);
}

/** The cells of a row: a bar parts them, also in code, unless a backslash stands before it. */
function cellsOf(line: string): string[] {
  const cells = line.split(/(?<!\\)\|/).slice(1, -1);
  return cells.map((cell) => cell.trim());
}

function read(path: string): string {
  return readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
}

describe("docs/errors.md", () => {
  const told = rowsOf("errors.md").filter((cells) => cells.length === 5 && cells[0] !== "code");
  const codes = told.map(([code]) => code!.replaceAll("`", ""));

  test("tells of every code once, and of no other", () => {
    expect(codes.filter((code) => code !== "" && !/^-+$/.test(code)).toSorted()).toEqual(
      errorCodes.toSorted(),
    );
  });

  test.each(errorCodes)("gives the status and the exit code of %s", (code) => {
    const [, status, exit, meaning, advice] = told[codes.indexOf(code)]!;
    expect([status, exit]).toEqual([
      String(statusOf(code)),
      String(exitCodeOf(new FlotillaError(code, ""))),
    ]);
    expect(meaning).not.toBe("");
    expect(advice).not.toBe("");
  });
});

test("every table of exit codes says what the help does", () => {
  const pages = globSync("*.md", { cwd: join(root, "docs") });
  const tables = pages
    .map((page) => rowsOf(page).filter(({ length }) => length === 2))
    .filter((rows) => rows.some(([head]) => /^exit( code)?$/.test(head!)))
    .map((rows) => Object.fromEntries(rows.filter(([code]) => /^\d$/.test(code!))));
  expect(tables.length).toBeGreaterThan(1);
  for (const table of tables) expect(table).toEqual(exitCodeMeanings);
});

describe("docs/security.md", () => {
  const suite = runByTheSuite();
  const attacks = rowsOf("security.md").filter(
    ([what]) => what !== "attack" && !/^-+$/.test(what!),
  );

  test.each(attacks)("%s: %s", (_, defence, where) => {
    const [, file, name] = /^`([\w./-]+\.ts)`: "(.+)"$/.exec(where ?? "") ?? [];
    expect(defence).not.toBe("");
    expect(suite).toContain(file);
    expect(faultOf(read(file!), name!)).toBeUndefined();
  });

  test("tells of the database as well", () => {
    const places = attacks.map(([, , where]) => where!);
    for (const kind of ["test/postgres/roles", "test/postgres/doctor", "src/store/postgres/"]) {
      expect(places.filter((where) => where.startsWith(`\`${kind}`))).not.toEqual([]);
    }
  });
});

describe("docs/limits-reference.md", () => {
  const sourced = rowsOf("limits-reference.md").flatMap(([what, bound, , where]) => {
    const [, file, name] = /^`([\w./-]+\.ts)` `(\w+)`$/.exec(where ?? "") ?? [];
    return file === undefined ? [] : [{ what: what!, bound: bound!, file, name: name! }];
  });

  test("names where its numbers come from", () => {
    expect(sourced.length).toBeGreaterThan(40);
  });

  test.each(sourced)("$what: $bound, as `$name` of $file says", ({ bound, file, name }) => {
    const values = numbersOf(read(`src/${file}`), name);
    const dayMs = 24 * 3_600_000;
    const shown = values.flatMap((value) => [
      value.toLocaleString("en-US"),
      ...(value % dayMs === 0 ? [`${value / dayMs} days`] : []),
      ...(value % 3_600_000 === 0 ? [`${value / 3_600_000} hours`] : []),
    ]);
    expect(values).not.toEqual([]);
    const isShown = (each: string) => new RegExp(`(?<![\\d.,])${each}(?!\\d|,\\d)`).test(bound);
    expect(shown.some(isShown)).toBe(true);
  });
});

describe("what is published", () => {
  const { files } = JSON.parse(read("package.json")) as { files: string[] };
  const isPublished = (path: string) =>
    files.some((each) => path === each || path.startsWith(`${each}/`));
  const pages = globSync("**/*.md", { cwd: root, exclude: ["**/node_modules/**", ".built/**"] });

  test.each(pages.filter(isPublished))("has everything that %s links to", (page) => {
    const links = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"/g)]
      .map(([, link, other]) => (link ?? other)!)
      .filter((link) => !/^(https?:|mailto:|#)/.test(link))
      .map((link) => join(dirname(page), link.replace(/#.*$/, "")));
    const broken = links.filter((path) => !isPublished(path) || !existsSync(join(root, path)));
    expect(broken).toEqual([]);
  });

  test.each(pages)("has every heading that %s links to", (page) => {
    const links = [...proseOf(page).matchAll(/\]\(([^)#:\s]*)#([^)\s]+)\)/g)];
    const broken = links.filter(([, path, anchor]) => {
      const target = path === "" ? page : join(dirname(page), path!);
      return !anchorsOf(target).includes(anchor!);
    });
    expect(broken.map(([link]) => link)).toEqual([]);
  });
});

describe("the pages for contributors", () => {
  const sources = globSync("{*,{src,test,bench,build}/**/*}.ts", {
    cwd: root,
    exclude: ["**/node_modules/**"],
  });
  const cited = (text: string) =>
    [...text.matchAll(/`([\w./<>-]+(?:\.ts|\w\/))`(?: `(\w+)`)?/g)].map(([, path, name]) => ({
      path: path!,
      name,
    }));
  /** A path may begin below `src/` or `test/`, or in a room. A part in angle brackets stands for any name. */
  const filesOf = (path: string) => {
    const named = path.replaceAll(".", "\\.").replaceAll(/<\w+>/g, "[\\w.-]+");
    const pattern = new RegExp(
      `^(?:(?:src|test)/(?:.*/)?)?${named}${path.endsWith("/") ? ".*" : ""}$`,
    );
    return sources.filter((file) => pattern.test(file));
  };
  const faultsOf = (text: string) =>
    cited(text).flatMap(({ path, name }) => {
      const files = filesOf(path);
      if (files.length === 0) return [`there is no ${path}`];
      if (name === undefined || files.some((file) => hasName(read(file), name))) return [];
      return [`${path} has no ${name}`];
    });

  const pages = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/invariants.md"];
  test.each(pages)("%s names files that are there", (page) => {
    expect(cited(read(page)).length).toBeGreaterThan(5);
    expect(faultsOf(read(page))).toEqual([]);
  });

  test("are searched for files and names that are gone", () => {
    expect(faultsOf("`tasks/claim/claim.ts` `createClaimCalls`")).toEqual([]);
    expect(faultsOf("`server/api/<resource>.schema.ts`, `test/imports.test.ts`")).toEqual([]);
    expect(faultsOf("`src/`, `flows/decide/`")).toEqual([]);
    expect(faultsOf("`tasks/claiming.ts`, `queue/`")).toHaveLength(2);
    expect(faultsOf("`laim.ts`")).toHaveLength(1);
    expect(faultsOf("`tasks/claim/claim.ts` `createClaim`")).toHaveLength(1);
  });
});

test("the README says of npm's warnings on Node 20 that they are harmless, while there are any", () => {
  type Lock = { packages: Record<string, { engines?: { node?: string } }> };
  const { packages } = JSON.parse(read("package-lock.json")) as Lock;
  const warnedOf = Object.entries(packages).flatMap(([name, { engines }]) =>
    /^(?:\^|>=) ?2[1-9]/.test(engines?.node ?? "") ? [name] : [],
  );
  const told = /`EBADENGINE`.*harmless/.test(read("README.md")) ? warnedOf : [];
  expect(warnedOf).toEqual(told);
});

describe("tables", () => {
  const pages = globSync("**/*.md", {
    cwd: root,
    exclude: ["**/node_modules/**", ".built/**"],
  });
  const tables = (page: string) =>
    proseOf(page)
      .split(/\n(?!\|)/)
      .map((block) => block.split("\n").filter((line) => line.startsWith("|")))
      .filter((lines) => lines.length > 0);

  test("are found", () => {
    expect(pages.flatMap(tables).length).toBeGreaterThan(50);
  });

  test.each(pages)("of %s have a cell in every row for each of their columns", (page) => {
    for (const [head, ...lines] of tables(page)) {
      const columns = cellsOf(head!).length;
      expect(lines.filter((line) => cellsOf(line).length !== columns)).toEqual([]);
    }
  });
});

function hasName(text: string, name: string): boolean {
  return new RegExp(`\\b${name}\\b`).test(text);
}

function proseOf(page: string): string {
  return read(page).replaceAll(/^```[^]*?^```$/gm, "");
}

/** The headings of a page, as links name them. */
function anchorsOf(page: string): string[] {
  return [...proseOf(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_\- ]/gu, "")
      .replaceAll(" ", "-"),
  );
}

/** The numbers of a constant, or of the default of a setting: products of literals, and ranges of them. */
function numbersOf(source: string, name: string): number[] {
  const text =
    new RegExp(`const ${name}(?:: \\w+)? = ([^;]+);`).exec(source)?.[1] ??
    new RegExp(`${name}: \\{ byDefault: ([^,]+),`).exec(source)?.[1] ??
    "";
  return [...text.matchAll(/[\d_.]+(?: \* [\d_.]+)*/g)].map(([product]) =>
    product.split(" * ").reduce((all, each) => all * Number(each.replaceAll("_", "")), 1),
  );
}
