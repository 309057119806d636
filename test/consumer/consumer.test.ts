import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nodeOf, oldestNode } from "./node.ts";
import { compile, installTarball, packTarball } from "./package.ts";

let folder: string;
let project: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-consumer-"));
  project = join(folder, "project");
  mkdirSync(project);
  installTarball(await packTarball(folder), project, ["@types/node", "undici-types", "zod"]);
  for (const file of ["program.ts", "flows.ts", "sessions.ts"]) {
    copyFileSync(fileURLToPath(new URL(file, import.meta.url)), join(project, file));
  }
  writeFileSync(join(project, "package.json"), `{ "type": "module" }`);
  writeFileSync(
    join(project, "tsconfig.json"),
    JSON.stringify({
      compilerOptions: {
        target: "es2022",
        module: "nodenext",
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        types: ["node"],
        // As a package of a monorepo does: then every exported type must have a name that is public.
        declaration: true,
        rewriteRelativeImportExtensions: true,
        outDir: "dist",
      },
      include: ["program.ts"],
    }),
  );
}, 180_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (node: string, ...args: string[]) =>
  execFileSync(node, args, { cwd: project, encoding: "utf8", timeout: 150_000, stdio: "pipe" });

describe("a project that has installed the package", () => {
  test("compiles strictly, the package's own declarations included", () => {
    expect(() => compile(project)).not.toThrow();
  });

  test("has the dashboard, and has installed nothing for it", () => {
    const installed = join(project, "node_modules", "flotilla");
    expect(existsSync(join(installed, "dist", "dashboard", "index.html"))).toBe(true);
    const { dependencies } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as {
      dependencies: Record<string, string>;
    };
    expect(Object.keys(dependencies).filter((name) => /react|tanstack|vite/.test(name))).toEqual(
      [],
    );
  });

  test("runs on the Node that this is", () => {
    const major = process.versions.node.split(".")[0];
    const url = `sqlite:${join(project, "this.db")}`;
    expect(run(process.execPath, "dist/program.js", url)).toBe(`done on Node ${major}\n`);
  });

  test("runs on the oldest Node that is supported, and so does the command", () => {
    const oldest = oldestNode();
    const url = `sqlite:${join(project, "oldest.db")}`;
    expect(run(oldest, "dist/program.js", url)).toBe("done on Node 22\n");
    const bin = join("node_modules", "flotilla", "bin", "flotilla.js");
    const listed = run(oldest, bin, "tasks", "list", "--store", url, "--json");
    expect(JSON.parse(listed).tasks).toHaveLength(3);
  }, 180_000);

  test.each([
    ["the Node that this is", () => process.execPath],
    ["the oldest Node that is supported", oldestNode],
  ])(
    "can be of CommonJS, on %s",
    (_, node) => {
      const program = `
      const flotilla = require("flotilla");
      const { testFlotilla } = require("flotilla/testing");
      for (const entry of ["client", "agent"]) require("flotilla/" + entry);
      import("flotilla").then(async (imported) => {
        if (imported.task !== flotilla.task) throw new Error("there are two of them");
        const ping = flotilla.task("ping", {}, async () => "pong");
        const t = await testFlotilla({ use: [ping] });
        console.log(await t.run(ping, null));
        await t[Symbol.asyncDispose]();
      });`;
      writeFileSync(join(project, "required.cjs"), program);
      expect(run(node(), "required.cjs")).toBe("pong\n");
    },
    180_000,
  );

  // An older Node than 20.19 has a sentence of its own for a program that requires a module.
  test.each([
    ["20.0.0", "imports it", `import "flotilla";`],
    ["20.0.0", "imports what tests need", `import "flotilla/testing";`],
    ["20.19.0", "imports it", `import "flotilla";`],
    ["20.19.0", "imports what tests need", `import "flotilla/testing";`],
    [
      "20.19.0",
      "requires it",
      `import { createRequire } from "node:module";
      createRequire(import.meta.url)("flotilla");`,
    ],
  ])(
    "reports on Node %s which version it needs, where it %s",
    (version, _, program) => {
      writeFileSync(join(project, "old.mjs"), program);
      expect(() => run(nodeOf(version), "old.mjs")).toThrow(
        `FlotillaError: flotilla needs Node 22.18 or newer, and this is Node ${version} (`,
      );
    },
    180_000,
  );
});
