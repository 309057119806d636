import { posix } from "node:path";
import { describe, expect, test } from "vitest";
import { importsOf, shippedSources } from "./sources.ts";

const texts = new Map(shippedSources().map(({ path, text }) => [path, text]));

describe("what a command doesn't need isn't loaded", () => {
  test("of npm's packages, commander alone is there before it is known which command runs", () => {
    expect(packagesOf("src/cli/main.ts")).toEqual(["commander"]);
  });

  test("a pod without a server carries nothing of one", () => {
    const loaded = packagesOf("src/cli/run-pod.ts");
    expect(
      loaded.filter((name) => /^(hono|@hono|zod|jose|ws|prom-client|undici|pg|@nats)/.test(name)),
    ).toEqual([]);
  });

  test("clients of databases and of NATS come with the first connection to one", () => {
    const starts = [
      "src/store/postgres/postgres.ts",
      "src/bus/nats/nats.ts",
      "src/sessions/log/jetstream/connect.ts",
    ];
    for (const start of starts) expect(packagesOf(start)).toEqual([]);
  });

  test("a server that checks no tokens doesn't load what checks them", () => {
    const loaded = packagesOf("src/server/serve.ts");
    expect(loaded).toContain("hono");
    expect(loaded).not.toContain("jose");
  });
});

/** The packages that come with a file at once, through whatever it imports. */
function packagesOf(start: string): string[] {
  const seen = new Set([start]);
  for (const path of seen) {
    const text = texts.get(path);
    // A list of nothing but types is no import once the types are gone.
    for (const { from, kind } of text === undefined ? [] : importsOf(withoutTypes(text))) {
      if (kind === "static")
        seen.add(from.startsWith(".") ? posix.join(posix.dirname(path), from) : from);
    }
  }
  return [...seen].filter((name) => !/^(src\/|node:)/.test(name)).toSorted();
}

function withoutTypes(text: string): string {
  return text.replaceAll(
    /^(?:import|export) \{(?:\s*type [\w$]+(?: as [\w$]+)?,?)+\s*\} from .*$/gm,
    "",
  );
}
