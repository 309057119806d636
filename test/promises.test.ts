import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { faultOf, runByTheSuite } from "./cited.ts";

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
  { page: "docs/session-promises.md", of: "sessions", points: 40 },
];
const invariants = [
  ...fromTo(1, 12).map((at) => `S${at}`),
  ...fromTo(1, 7).map((at) => `O${at}`),
  ...fromTo(1, 4).map((at) => `W${at}`),
  "R1",
  "R2",
];
const suite = runByTheSuite();
/** Tests that a text names, and what is wrong with those that hold nothing. */
const missingOf = (text: string) => {
  const named = [...text.matchAll(/`([\w./-]+\.ts)` "([^"]+)"/g)];
  const missing = named.flatMap(([whole, path, name]) => {
    const fault = suite.has(path!) ? faultOf(read(path!), name!) : "no run of the suite loads it";
    return fault === undefined ? [] : [`${whole}: ${fault}`];
  });
  return { named, missing };
};

describe.each(asked)("what was asked of $of", ({ page, points }) => {
  const lines = linesOf(page);

  test("has a line for every point", () => {
    const numbers = new Set(lines.map(numberOf));
    expect([...numbers].toSorted((a, b) => a - b)).toEqual(fromTo(1, points));
  });

  test.each(lines.map((line) => [numberOf(line), line] as const))(
    "point %i names a test that is there, or says why it is met otherwise",
    (_, line) => {
      const { named, missing } = missingOf(line);
      const says = /Met otherwise|Not offered|compare\.md/.test(line);
      expect(named.length > 0 || says).toBe(true);
      expect(missing).toEqual([]);
    },
  );
});

describe("what sessions promise", () => {
  const page = read("docs/session-promises.md");

  test.each(invariants)("%s has a line, with a test that is there", (invariant) => {
    const lines = page.split("\n").filter((line) => line.startsWith(`| ${invariant} `));
    expect(lines).toHaveLength(1);
    const { named, missing } = missingOf(lines[0]!);
    expect(named).not.toEqual([]);
    expect(missing).toEqual([]);
  });

  test("names no test that isn't there", () => {
    expect(missingOf(page).missing).toEqual([]);
  });
});

describe("what the code promises itself", () => {
  // Its paths begin in `src`.
  const page = read("docs/invariants.md").replaceAll(/`(?=[\w./-]+\.ts` ")/g, "`src/");

  test("names no test that holds nothing", () => {
    const { named, missing } = missingOf(page);
    expect(named.length).toBeGreaterThan(10);
    expect(missing).toEqual([]);
  });
});

describe("a test that is cited", () => {
  const text = `
    // "said in a comment"
    test("is there", () => expect(greet("said in its body")).toBe(1));
    test.each([1])("is there for %i", (n) => expect(n).toBe(1));
    describe("a suite", () => {
      test.skip("is skipped", () => expect(1).toBe(1));
      test.todo("is to be written");
      test("asks nothing", () => {
        run();
      });
    });
    describe.skip("a skipped suite", () => {
      test("is in it", () => expect(1).toBe(1));
    });
    allContract(kind);
  `;

  test.each([
    ["is there", undefined],
    ["is there for %i", undefined],
    ["a suite", undefined],
    ["allContract", undefined],
    ["is nowhere", "there is no such test"],
    ["said in a comment", "there is no such test"],
    ["said in its body", "there is no such test"],
    ["is skipped", "it isn't run: test.skip"],
    ["is to be written", "it isn't run: test.todo"],
    ["asks nothing", "it expects nothing"],
    ["is in it", "it isn't run: describe.skip"],
  ])("and %s: %s", (name, fault) => {
    expect(faultOf(text, name)).toBe(fault);
  });

  test("is in a file that a run of the suite loads", () => {
    expect(suite).toContain("test/promises.test.ts");
    expect(suite).toContain("src/tasks/contract/fleet.ts");
    expect(suite).not.toContain("test/soak.ts");
    expect(suite).not.toContain("test/consumer/next.test.ts");
  });
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
