import { spawnSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { beforeAll, describe, expect, test } from "vitest";
import { temporaryDatabase, temporaryFile } from "../src/store/contract/kinds.ts";
import { openStore } from "../src/store/open.ts";
import { built } from "./built.ts";

/**
 * Compiles the code of all pages, each block as a module of its own, in one program. A block sees what
 * earlier blocks of its page declare and import, the first of a name. What is the reader's own code, or
 * is left out on purpose, is in `test/docs/<page>.ts`. A file that a paragraph names is found by imports.
 */
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(built.folder, "docs");
const pages = globSync(["*.md", "docs/**/*.md", "examples/**/*.md"], {
  cwd: root,
  exclude: (path) => path.includes("node_modules"),
}).toSorted();

type Block = {
  readonly page: string;
  /** Where its first line is on the page. */
  readonly line: number;
  readonly language: string;
  readonly name: string | undefined;
  readonly text: string;
};

function blocksOf(page: string): Block[] {
  const text = readFileSync(join(root, page), "utf8");
  const fenced = /(?:^`([\w./-]+)`(?::.*)?\n\n)?^```(\w*)\n([^]*?)^```$/gm;
  return [...text.matchAll(fenced)].map((match) => {
    const [whole, name, language, code] = match;
    const line = text.slice(0, match.index + whole.lastIndexOf(code!)).split("\n").length;
    return { page, line, language: language!, name, text: code! };
  });
}

const blocks = pages.flatMap(blocksOf);
const isCode = ({ language }: Block) => ["js", "jsx", "ts", "tsx"].includes(language);
const codePages = pages.filter((page) => blocks.some((each) => each.page === page && isCode(each)));
const places = (language: string) =>
  blocks
    .filter((block) => block.language === language)
    .map((block) => ({ ...block, place: `${block.page}:${block.line}` }));

/** The names that the top level of a module declares or imports. */
function declaredIn(text: string): string[] {
  const plain =
    /^(?:export )?(?:declare )?(?:async )?(?:const|let|class|type|function\*?|(?:await )?using) (\w+)/gm;
  const taken = /^(?:export )?(?:const|let) \{([^}]*)\}/gm;
  const listed = /^(?:import|export) (?:type )?(?:(\w+)(?:, )?)?(?:\{([^}]*)\})? from/gm;
  const namesIn = (list: string) =>
    list.split(",").flatMap((each) => /(\w+)\s*$/.exec(each.replace(/=.*/, ""))?.[1] ?? []);
  return [
    ...[...text.matchAll(plain)].map(([, name]) => name!),
    ...[...text.matchAll(taken)].flatMap(([, list]) => namesIn(list!)),
    ...[...text.matchAll(listed)].flatMap(([, own, list]) => [
      ...(own === undefined ? [] : [own]),
      ...namesIn(list ?? ""),
    ]),
  ];
}

const uses = (text: string, name: string) => new RegExp(`(?<![.\\w])${name}\\b`).test(text);
const isExported = (text: string, name: string) =>
  new RegExp(
    `^export (?:async )?(?:const|let|class|type|function\\*?) (?:\\{[^}]*\\b)?${name}\\b`,
    "m",
  ).test(text);

/** Writes a page's modules, each line of a block where it is on its page. Gives their paths. */
function writePage(page: string): string[] {
  const place = join(folder, page.replace(/\.md$/, "").replaceAll("/", "-"));
  const own = join(root, "test/docs", `${relative(folder, place)}.ts`);
  const from = (path: string, to: string) => {
    const way = relative(dirname(path), to);
    return JSON.stringify(way.startsWith(".") ? way : `./${way}`);
  };
  const visible = new Map<string, string>();
  const see = (names: readonly string[], path: string) => {
    for (const name of names) if (!visible.has(name)) visible.set(name, path);
  };
  if (existsSync(own)) {
    const statements = readFileSync(own, "utf8").split(/^(?=\w)/m);
    const exported = statements.filter((each) => each.startsWith("export "));
    see(declaredIn(exported.join("")), own);
  }

  const code = blocks.filter((block) => block.page === page && isCode(block));
  const paths = code.map(({ name, line, language }) =>
    join(place, name ?? `block-${line}.${language}`),
  );
  code.forEach(({ line, text }, at) => {
    const path = paths[at]!;
    const declared = declaredIn(text);
    const wanted = [...visible].filter(([name]) => !declared.includes(name) && uses(text, name));
    const imports = wanted.map(([name, file]) => `import { ${name} } from ${from(path, file)};`);
    const others = [...new Set(declared)].filter((name) => !isExported(text, name));
    const padding = "\n".repeat(line - 1);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${imports.join(" ")}${padding}${text}export { ${others.join(", ")} };\n`);
    see(declared, path);
    // What a page imports and doesn't show is the reader's.
    for (const [, file] of text.matchAll(/ from "(\.[\w./-]+\.ts)"/g)) {
      const theirs = join(dirname(path), file!);
      if (paths.includes(theirs)) continue;
      writeFileSync(theirs, `export * from ${from(theirs, own)};\n`);
    }
  });
  return paths;
}

type Complaint = { readonly file: string; readonly line: string; readonly what: string };
let complaints: Complaint[];

beforeAll(() => {
  rmSync(folder, { recursive: true, force: true });
  const files = [
    ...codePages.flatMap(writePage),
    ...globSync("test/docs/*.ts", { cwd: root }).map((path) => join(root, path)),
  ];
  const compilerOptions = {
    target: "es2023",
    lib: ["es2024", "esnext.disposable", "dom", "dom.iterable"],
    types: ["node", "vite/client"],
    module: "esnext",
    moduleResolution: "bundler",
    allowImportingTsExtensions: true,
    customConditions: ["flotilla:source"],
    jsx: "react-jsx",
    strict: true,
    skipLibCheck: true,
    noEmit: true,
    paths: {
      flotilla: ["../../src/index.ts"],
      "flotilla/agent": ["../../src/agent/index.ts"],
      "flotilla/dashboard": ["../../src/server/mount/index.ts"],
      "flotilla/durable": ["../../src/durable/index.ts"],
      "flotilla/testing": ["../../src/testing/index.ts"],
      "flotilla/client": ["../../src/client/index.ts"],
      "flotilla/react": ["../../src/client/react/index.ts"],
      "flotilla/ai-sdk": ["../../src/client/ai-sdk/index.ts"],
    },
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files }));
  const compiler = join(root, "node_modules/.bin/tsc");
  const { stdout, stderr, status, error } = spawnSync(
    compiler,
    ["-p", folder, "--pretty", "false"],
    {
      cwd: root,
      encoding: "utf8",
    },
  );
  complaints = [...stdout.matchAll(/^(?:(\S+)\((\d+),\d+\): )?error (TS\d+: .*)$/gm)].map(
    ([, file = "", line = "", what]) => ({ file, line, what: what! }),
  );
  // It has found nothing wrong only where it says so itself.
  if ((status === 0) !== (complaints.length === 0)) {
    throw new Error(`tsc ended with ${status}: ${error?.message ?? ""}${stderr}${stdout}`);
  }
}, 600_000);

describe("code in the docs", () => {
  test.each(codePages)("compiles: %s", (page) => {
    const own = `${relative(root, folder)}/${page.replace(/\.md$/, "").replaceAll("/", "-")}/`;
    const found = complaints.filter(({ file }) => file.startsWith(own));
    expect(found.map(({ line, what }) => `${page}:${line}: ${what}`)).toEqual([]);
  });

  test("needs no more than it is given by test/docs", () => {
    const elsewhere = complaints.filter(({ file }) => !/^(src\/|\.built\/docs\/)/.test(file));
    expect(elsewhere).toEqual([]);
  });

  test.each(places("json"))("is JSON: $place", ({ text }) => {
    expect(() => JSON.parse(text)).not.toThrow();
  });

  // Subscriptions need two servers, on which test/crash/postgres/replication.test.ts runs them.
  const here = places("sql").filter(({ text }) => !/\bsubscription\b/.test(text));
  test.each(here)("is SQL that runs: $place", async ({ text }) => {
    const run = text.includes("flotilla_task") ? runOnSqlite : runOnPostgres;
    await expect(run(text)).resolves.toBeUndefined();
  });
});

async function runOnSqlite(text: string): Promise<void> {
  const { path, remove } = temporaryFile();
  await (await openStore(path)).close();
  const db = new DatabaseSync(path);
  try {
    db.exec(text);
  } finally {
    db.close();
    await remove();
  }
}

async function runOnPostgres(shown: string): Promise<void> {
  // Roles belong to the whole server, where another test may have those of the page.
  const text = shown.replaceAll(/\bflotilla_(owner|pods|producers)\b/g, "$&_of_docs");
  const { url, remove } = await temporaryDatabase();
  await (await openStore(url)).close();
  const client = new pg.Client(url);
  await client.connect();
  try {
    // The roles of the page, and a schema that isn't there yet: none of it outlasts the transaction.
    await client.query("begin");
    if (!text.includes("create role")) {
      await client.query(
        "create role flotilla_pods_of_docs; create role flotilla_producers_of_docs",
      );
    }
    if (text.includes("create schema")) await client.query("drop schema flotilla cascade");
    await client.query(text);
  } finally {
    await client.query("rollback");
    await client.end();
    await remove();
  }
}
