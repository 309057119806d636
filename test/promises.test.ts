import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const linesOf = (page: string) =>
  read(page)
    .split("\n")
    .filter((line) => /^\| \d+/.test(line));
const numberOf = (line: string) => Number(/\d+/.exec(line)![0]);
const fromTo = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);

const asked = [
  { page: "docs/promises.md", of: "the queue", points: 70 },
  { page: "docs/flow-promises.md", of: "flows", points: 37 },
];

describe.each(asked)("what was asked of $of", ({ page, points }) => {
  const lines = linesOf(page);

  test("has a line for every point", () => {
    const numbers = new Set(lines.map(numberOf));
    expect([...numbers].toSorted((a, b) => a - b)).toEqual(fromTo(1, points));
  });

  test.each(lines.map((line) => [numberOf(line), line] as const))(
    "point %i names a test that is there, or says why it is met otherwise",
    (_, line) => {
      const named = [...line.matchAll(/`([\w./-]+\.ts)` "([^"]+)"/g)];
      const says = /Met otherwise|Not offered|compare\.md/.test(line);
      expect(named.length > 0 || says).toBe(true);
      const missing = named.filter(
        ([, path, name]) => !existsSync(join(root, path!)) || !read(path!).includes(name!),
      );
      expect(missing.map(([whole]) => whole)).toEqual([]);
    },
  );
});

describe("the documents", () => {
  const documents = globSync(["*.md", "docs/**/*.md"], { cwd: root }).toSorted();

  test.each(documents)("link to files that are there: %s", (path) => {
    const links = [...read(path).matchAll(/\]\(([^)#\s]+)(?:#[^)\s]*)?\)/g)].map(
      ([, target]) => target!,
    );
    const broken = links
      .filter((target) => !/^[a-z]+:/.test(target))
      .filter((target) => !existsSync(join(root, dirname(path), target)));
    expect(broken).toEqual([]);
  });

  test("all but the decisions can be found from the first page", () => {
    const first = read("README.md");
    const pages = documents.filter((path) => /^docs\/[^/]+\.md$/.test(path));
    expect(pages.filter((path) => !first.includes(`(${path})`))).toEqual([]);
  });
});
