import { posix } from "node:path";
import { describe, expect, test } from "vitest";
import { importsOf, shippedSources, type Source } from "./sources.ts";

const maxFiles = 22;
const maxLines = 500;
const minLines = 40;
const maxSharedPrefix = 3;

/** Shorter than what only one file imports may be, each with the reason. */
const short: Record<string, string> = {
  "src/cli/commands/doctor.ts": "is one command",
  "src/cli/commands/flows.ts": "is one command",
  "src/cli/commands/openapi.ts": "is one command",
  "src/server/api/access/sign-ins.ts": "is one resource",
  "src/server/api/access/quotas.ts": "is one resource",
  "src/server/api/limits.ts": "is one resource",
  "src/server/watch/watch.ts": "is one resource",
  "src/client/lazy.ts": "is what a page loads later, as one chunk",
  "src/testing/sql.ts": "is what the room has of statements, which belong in a file of their own",
  "src/throttles/learning/aimd.ts": "is one algorithm",
};

describe("the rooms", () => {
  const sources = shippedSources();

  test("hold no more files than a reader takes in", () => {
    expect(crowded(sources)).toEqual([]);
  });

  test("hold no family of files that a folder of its own would name", () => {
    expect(families(sources)).toEqual([]);
  });

  test("hold no scrap that belongs into the one file that imports it", () => {
    expect(scraps(sources)).toEqual([]);
  });

  test("hold no file that has become several", () => {
    expect(overlong(sources)).toEqual([]);
  });

  test("have no exception listed that hides nothing", () => {
    const found = scraps(sources, {}).map((each) => each.split(" ")[0]);
    expect(Object.keys(short).filter((path) => !found.includes(path))).toEqual([]);
  });

  test("are looked at for each of these", () => {
    const files = (count: number, name: (index: number) => string, lines = 50): Source[] =>
      Array.from({ length: count }, (_, index) => ({
        path: `src/room/${name(index)}.ts`,
        text: "x\n".repeat(lines),
      }));
    expect(crowded(files(maxFiles + 1, (index) => `file${index}`))).toHaveLength(1);
    expect(families(files(4, (index) => `part-${index}`))).toHaveLength(1);
    expect(overlong(files(1, () => "long", maxLines + 1))).toHaveLength(1);
    const user = { path: "src/room/user.ts", text: `import { x } from "./scrap.ts";\n` };
    expect(scraps([user, ...files(1, () => "scrap", 10)])).toHaveLength(1);
  });
});

function crowded(sources: readonly Source[]): string[] {
  return Array.from(byFolder(sources))
    .filter(([, files]) => files.length > maxFiles)
    .map(([folder, files]) => `${folder} has ${files.length} files`);
}

function families(sources: readonly Source[]): string[] {
  return Array.from(byFolder(sources)).flatMap(([folder, files]) => {
    const names = files.map(({ path }) => posix.basename(path, ".ts"));
    const prefixes = names.filter((name) => name.includes("-")).map((name) => name.split("-")[0]!);
    return [...new Set(prefixes)]
      .filter((prefix) => prefixes.filter((each) => each === prefix).length > maxSharedPrefix)
      .map((prefix) => `${folder}/${prefix}-*`);
  });
}

function scraps(sources: readonly Source[], exceptions = short): string[] {
  const importers = new Map<string, Set<string>>();
  for (const { path, text } of sources) {
    for (const { from } of importsOf(text)) {
      if (!from.startsWith(".")) continue;
      const target = posix.join(posix.dirname(path), from);
      importers.set(target, (importers.get(target) ?? new Set()).add(path));
    }
  }
  return sources
    .filter(({ path, text }) => linesOf(text) < minLines && importers.get(path)?.size === 1)
    .filter(({ path }) => !Object.hasOwn(exceptions, path))
    .map(({ path }) => `${path} is imported by ${[...importers.get(path)!].join()} alone`);
}

function overlong(sources: readonly Source[]): string[] {
  return sources
    .filter(({ text }) => linesOf(text) > maxLines)
    .map(({ path, text }) => `${path} has ${linesOf(text)} lines`);
}

function byFolder(sources: readonly Source[]): Map<string, Source[]> {
  return Map.groupBy(sources, ({ path }) => posix.dirname(path));
}

function linesOf(text: string): number {
  return text.split("\n").length - 1;
}
