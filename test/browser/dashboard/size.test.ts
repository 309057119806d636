import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { beforeAll, describe, expect, test } from "vitest";
import { dashboardFolder } from "../../../src/base/package-files.ts";
import { builtPage } from "../page-build.ts";

const kB = 1_000;
const maxBytes = { firstLoad: 200 * kB, page: 30 * kB, whole: 1_000 * kB };

let folder: string;
let names: string[];
beforeAll(async () => {
  folder = await builtPage("dashboard");
  names = readdirSync(join(folder, dashboardFolder));
}, 180_000);

const read = (name: string) => readFileSync(join(folder, dashboardFolder, name), "utf8");
const zipped = (some: Iterable<string>) =>
  [...some].reduce((sum, name) => sum + gzipSync(read(name), { level: 9 }).length, 0);
/** The files that come with these, through what they import at once. */
const withImports = (some: readonly string[]) => {
  const all = new Set(some);
  for (const name of all) {
    for (const [, from] of read(name).matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) all.add(from!);
  }
  return all;
};

describe("the dashboard as it is built", () => {
  test("is small: at first, for each page, and as a whole", () => {
    const index = readFileSync(join(folder, "index.html"), "utf8");
    const linked = [...index.matchAll(/"\.\/@dashboard\/([^"]+)"/g)].map(([, name]) => name!);
    const atFirst = withImports(linked);
    const firstLoad = zipped(atFirst);
    const pages = names
      .filter((name) => name.endsWith(".js") && !atFirst.has(name))
      .map((name) => {
        const more = [...withImports([name])].filter((each) => !atFirst.has(each));
        return [name, zipped(more)] as const;
      });
    const whole = names.reduce(
      (sum, name) => sum + statSync(join(folder, dashboardFolder, name)).size,
      0,
    );
    console.info(`the dashboard: ${firstLoad} bytes at first, ${whole} as a whole`, pages);
    expect(firstLoad).toBeLessThan(maxBytes.firstLoad);
    expect(pages.length).toBeGreaterThanOrEqual(5);
    expect(pages.filter(([, bytes]) => bytes >= maxBytes.page)).toEqual([]);
    expect(whole).toBeLessThan(maxBytes.whole);
  });

  test("has no script or style in its page, and nothing that is elsewhere", () => {
    const index = readFileSync(join(folder, "index.html"), "utf8");
    expect(index).not.toMatch(/<style|style=|\son\w+=|<script(?![^>]*\ssrc=)/);
    expect(index).not.toMatch(/(?:src|href)="(?!\.\/@dashboard\/)/);
    const styles = names.filter((name) => name.endsWith(".css")).map(read);
    for (const style of styles) expect(style).not.toMatch(/url\((?!["']?(?:\.|#))|@import/);
  });

  test("has names that change with the content, so that browsers keep files for good", () => {
    for (const name of names) expect(name).toMatch(/-[\w-]{8}\.\w+$/);
  });
});
