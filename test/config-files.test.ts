import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { built } from "./built.ts";
import { run } from "./command.ts";

/** A project that has the package. */
let project: string;
beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), "flotilla-config-"));
  mkdirSync(join(project, "node_modules"));
  symlinkSync(built.folder, join(project, "node_modules/flotilla"));
});
afterEach(() => rmSync(project, { recursive: true, force: true }));

function write(files: Record<string, string>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, name)), { recursive: true });
    writeFileSync(join(project, name), text);
  }
}

const types = {
  "type commonjs": `{ "type": "commonjs" }`,
  "type module": `{ "type": "module" }`,
  "no type": "{}",
};
const tsconfig = `{
  // As people write it, with a comment.
  "compilerOptions": { "paths": { "@/*": ["./src/*"] } }
}`;
const config = (imports: string, use = "ping") => `
  import { defineConfig } from "flotilla";
  ${imports}
  export default defineConfig({ store: "sqlite:own.db", use: [${use}] });`;
const ping = `
  import { task } from "flotilla";
  export const ping = task("ping", {}, async () => "pong");`;

const load = () => run(["migrate", "--dry-run"], { cwd: project });

describe.each(Object.entries(types))("in a project with %s, a config", (_, manifest) => {
  test("loads, and what it imports in every way that people's other tools take", async () => {
    write({
      "package.json": manifest,
      "tsconfig.json": tsconfig,
      "flotilla.config.ts": config(`
        import { ping } from "./src/ping.ts";
        import { ping as bare } from "./src/ping";
        import { ping as emitted } from "./src/ping.js";
        import { ping as aliased } from "@/ping";
        import { ping as below } from "./src";
        import { Kind, Shape } from "./src/kind.ts";
        const shape: Shape = { kind: Kind.Round };
        for (const each of [bare, emitted, aliased, below])
          if (each !== ping || shape.kind !== 0) throw new Error("there are two of one module");`),
      "src/ping.ts": ping,
      "src/index.ts": `export { ping } from "./ping.ts";`,
      "src/kind.ts": `
        export enum Kind { Round, Square }
        export interface Shape { kind: Kind }`,
    });
    expect(await load()).toMatchObject({ code: 0 });
  });
});

describe.each(Object.entries(types))("in a project with %s, a config", (_, manifest) => {
  test("loads JSON as it is, awaits at its top, and knows where it is", async () => {
    write({
      "package.json": manifest,
      "greeting.json": `{ "text": "hello" }`,
      "flotilla.config.ts": config(
        `import greeting from "./greeting.json";
        const [text, folder] = await Promise.all([greeting.text, import.meta.dirname]);
        if (text !== "hello" || !folder.endsWith(${JSON.stringify(basename(project))}))
          throw new Error(text + folder);`,
        "",
      ),
    });
    expect(await load()).toMatchObject({ code: 0 });
  });
});

describe.each(Object.entries(types).slice(0, 2))(
  "in a package with %s, a config",
  (_, manifest) => {
    test("that can't be loaded says what to change", async () => {
      write({ "package.json": manifest });
      write({ "flotilla.config.ts": config(`import { ping } from "./src/png.ts";`) });
      const wrongPath = await load();
      expect(wrongPath.code).toBe(2);
      expect(wrongPath.stderr).toMatch(
        /flotilla\.config\.ts can't be loaded: \S*flotilla\.config\.ts imports "\S*src\/png\.ts", which isn't there: check the path\n/,
      );
      write({ "flotilla.config.ts": config(`import { ping } from "no-such-package";`) });
      const noPackage = await load();
      expect(noPackage.code).toBe(2);
      expect(noPackage.stderr).toMatch(
        /can't be loaded: \S*flotilla\.config\.ts imports "no-such-package", which isn't installed: run `npm install no-such-package`, or name it in `paths` of tsconfig\.json\n/,
      );
      write({ "flotilla.config.ts": "\n\nexport default { use: [ };" });
      const noCode = await load();
      expect(noCode.code).toBe(2);
      expect(noCode.stderr).toMatch(/can't be loaded: .*\n? *.*flotilla\.config\.ts:3/);
      write({ "flotilla.config.ts": config(`import { ping } from "./src/ping";`) });
      write({ "src/ping.ts": `\n${ping}\nthrow new Error("not today");` });
      const threw = await load();
      expect(threw.code).toBe(2);
      expect(threw.stderr).toMatch(/can't be loaded: not today\n +at .*src\/ping\.ts:5/);
      write({ "src/ping.ts": ping, "flotilla.config.ts": "export const config = {};" });
      expect((await load()).stderr).toContain("has no default export");
    });
  },
);

test("a CommonJS config is one too", async () => {
  write({ "package.json": `{ "type": "commonjs" }` });
  write({
    "flotilla.config.js": `
      const { task } = require("flotilla");
      module.exports = { store: "sqlite:own.db", use: [task("ping", {}, async () => "pong")] };`,
  });
  expect(await load()).toMatchObject({ code: 0, stderr: "" });
});

test("a loader is there only where Node's own type stripping isn't enough", async () => {
  const says = `
    import { createRequire } from "node:module";
    const loaded = Object.keys(createRequire(import.meta.url).cache);
    console.error(loaded.some((path) => path.includes("jiti")) ? "a loader" : "Node alone");
    import { ping } from "./src/ping.ts";`;
  write({ "flotilla.config.ts": config(says), "src/ping.ts": ping });
  write({ "package.json": `{ "type": "module" }` });
  expect(await load()).toMatchObject({ code: 0, stderr: expect.stringContaining("Node alone") });
  write({ "package.json": `{ "type": "commonjs" }` });
  expect(await load()).toMatchObject({ code: 0, stderr: expect.stringContaining("a loader") });
});

describe("a config that has begun to run isn't run again", () => {
  test.each([
    ["what it parses isn't JSON", `JSON.parse("{");`, "JSON"],
    ["what it imports as it goes isn't there", `await import("./nowhere.ts");`, "nowhere.ts"],
  ])("where %s", async (_, line, said) => {
    write({
      "package.json": `{ "type": "module" }`,
      "flotilla.config.ts": `import { appendFileSync } from "node:fs";
        appendFileSync("runs.txt", "ran\\n");
        ${line}
        ${config("", "")}`,
    });
    const { code, stderr } = await load();
    expect(code).toBe(2);
    expect(stderr).toContain(said);
    expect(readFileSync(join(project, "runs.txt"), "utf8")).toBe("ran\n");
  });
});
