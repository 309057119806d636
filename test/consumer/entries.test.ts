import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { gzipSync } from "node:zlib";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fetched } from "./fetched.ts";
import { compile, installTarball, packTarball, unpackTarball } from "./package.ts";

let folder: string;
let project: string;
let tarball: string;
let entries: string[];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-entries-"));
  project = join(folder, "project");
  mkdirSync(project);
  const beside = ["@types/node", "undici-types", "@types/react", "react", "react-dom", "ai", "zod"];
  tarball = await packTarball(folder);
  installTarball(tarball, project, beside);
  writeFileSync(join(project, "package.json"), `{ "type": "module" }`);
  const { exports } = JSON.parse(readFileSync(ofPackage("package.json"), "utf8")) as {
    exports: Record<string, unknown>;
  };
  entries = Object.keys(exports)
    .filter((each) => each !== "./package.json")
    .map((each) => each.replace(".", "flotilla"));
}, 180_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ofPackage = (file: string) => join(project, "node_modules/flotilla", file);

test("what a demo that was run leaves behind isn't published", () => {
  const ran = join(folder, "ran");
  const put = (path: string) => {
    mkdirSync(dirname(join(ran, path)), { recursive: true });
    writeFileSync(join(ran, path), "");
  };
  mkdirSync(ran);
  copyFileSync(new URL("../../package.json", import.meta.url), join(ran, "package.json"));
  for (const each of ["order.ts", "demo.db", "demo.db-wal", "demo.db-shm", ".flotilla/kept"])
    put(`examples/demo/${each}`);
  put("examples/chat/dist/index.html");
  const packing = ["pack", "--dry-run", "--json", "--offline"];
  const said = execFileSync("npm", packing, { cwd: ran, encoding: "utf8", stdio: "pipe" });
  const [{ files }] = JSON.parse(said) as [{ files: { path: string }[] }];
  expect(files.map(({ path }) => path)).toEqual(["examples/demo/order.ts", "package.json"]);
});

describe("everything that the package is imported by", () => {
  test("is as publint wants it", async () => {
    const { messages, pkg } = await publint({
      pkgDir: join(project, "node_modules/flotilla"),
      strict: true,
    });
    expect(messages.map((each) => formatMessage(each, pkg, { color: false }))).toEqual([]);
  });

  test.each([
    ["nodenext", "nodenext"],
    ["bundler", "esnext"],
  ])("has declarations that are found and hold, resolved as %s", (moduleResolution, module) => {
    const imports = entries.map((each, index) => `import * as e${index} from "${each}";`);
    const uses = entries.map((_, index) => `e${index}`).join(", ");
    writeFileSync(
      join(project, "all.ts"),
      `${imports.join("\n")}\nexport const all = [${uses}];\n`,
    );
    // The AI SDK's own declarations need types that it doesn't install.
    const missing = `declare module "json-schema" { export type JSONSchema7 = object; export type JSONSchema7Definition = object; }`;
    writeFileSync(join(project, "missing.d.ts"), missing);
    const compilerOptions = {
      target: "es2023",
      lib: ["es2023", "esnext.disposable", "dom", "dom.iterable"],
      module,
      moduleResolution,
      types: ["node"],
      strict: true,
      noEmit: true,
    };
    const include = ["all.ts", "missing.d.ts"];
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include }));
    expect(entries).toHaveLength(8);
    expect(() => compile(project)).not.toThrow();
  });

  test("is loaded by Node, and by a server that renders", () => {
    const loads = entries.map((each) => `await import("${each}");`).join("\n");
    const program = `${loads}
      import { createElement as e } from "react";
      import { renderToString } from "react-dom/server";
      import { createClient } from "flotilla/client";
      import { FlotillaProvider, useInbox } from "flotilla/react";
      const Inbox = () => useInbox().status;
      console.log(renderToString(e(FlotillaProvider, { client: createClient() }, e(Inbox))));`;
    writeFileSync(join(project, "load.mjs"), program);
    const said = execFileSync(process.execPath, ["load.mjs"], { cwd: project, timeout: 150_000 });
    expect(said.toString()).toBe("idle\n");
  });

  test("has hooks for the oldest React that is supported, and without the AI SDK", () => {
    const found = fetched("react", ["react@18.3.1", "react-dom@18.3.1", "@types/react@18.3.12"]);
    if ("none" in found) throw new Error(`there is no React 18: ${found.none}`);
    const old = join(folder, "old");
    mkdirSync(old);
    unpackTarball(tarball, old);
    for (const name of ["react", "react-dom", "@types"]) {
      symlinkSync(join(found.folder, "node_modules", name), join(old, "node_modules", name));
    }
    const page = `import { createElement as e } from "react";
      import { createClient } from "flotilla/client";
      import { FlotillaProvider, useInbox } from "flotilla/react";
      const Inbox = () => e("p", null, useInbox().sessions.map(({ preview }) => preview).join());
      export const page = e(FlotillaProvider, { client: createClient() }, e(Inbox));`;
    const program = `import { version } from "react";
      import { renderToString } from "react-dom/server";
      import { page } from "./page.ts";
      console.log(version, renderToString(page));`;
    writeFileSync(join(old, "package.json"), `{ "type": "module" }`);
    writeFileSync(join(old, "page.ts"), page);
    writeFileSync(join(old, "program.mjs"), program);
    const compilerOptions = {
      target: "es2023",
      lib: ["es2023", "dom"],
      module: "nodenext",
      types: ["react"],
      strict: true,
      skipLibCheck: true,
      noEmit: true,
    };
    writeFileSync(
      join(old, "tsconfig.json"),
      JSON.stringify({ compilerOptions, files: ["page.ts"] }),
    );
    expect(() => compile(old)).not.toThrow();
    const said = execFileSync(process.execPath, ["program.mjs"], { cwd: old, timeout: 150_000 });
    expect(said.toString()).toBe("18.3.1 <p></p>\n");
  }, 180_000);

  test("reports of hooks that they are for the browser", () => {
    expect(readFileSync(ofPackage("dist/react.js"), "utf8")).toMatch(/^"use client";/);
  });
});

describe("what a page loads of it at once, minified and zipped", () => {
  const peers = ["react", "ai"];

  test.each([
    ["flotilla/client", 12_500],
    ["flotilla/react", 1_500],
    ["flotilla/ai-sdk", 26_000],
    ["flotilla/agent", 12_000],
  ])("of %s is less than %d bytes, and nothing of Node", async (entry, maxBytes) => {
    const from = ofPackage(`dist/${entry.split("/")[1]}.js`);
    await using build = await rolldown({
      cwd: project,
      input: from,
      platform: "browser",
      external: peers,
      onLog: (level, log) => {
        if (level === "warn" && log.code !== "MODULE_LEVEL_DIRECTIVE") throw new Error(log.message);
      },
    });
    const { output } = await build.generate({ format: "esm", minify: true });
    const chunks = output.filter((file) => file.type === "chunk");
    const own = new Set(chunks.map(({ fileName }) => fileName));
    const outside = chunks.flatMap((each) => [...each.imports, ...each.dynamicImports]);
    // The AI SDK is asked which chunks it takes, and the page has it already.
    const peer = { "flotilla/react": ["react"], "flotilla/ai-sdk": ["ai"] }[entry];
    expect(new Set(outside.filter((name) => !own.has(name)))).toEqual(new Set(peer));
    const modules = chunks.flatMap(({ moduleIds }) => moduleIds);
    expect(modules.filter((id) => !id.includes("/node_modules/flotilla/dist/"))).toEqual([]);
    expect(chunks.filter(({ code }) => /["'`]node:|\brequire\(/.test(code))).toEqual([]);
    // What is imported later is loaded beside.
    const atOnce = new Set(chunks.filter(({ isEntry }) => isEntry));
    for (const { imports } of atOnce) {
      for (const each of chunks) if (imports.includes(each.fileName)) atOnce.add(each);
    }
    const zipped = [...atOnce].map(({ code }) => gzipSync(code, { level: 9 }).length);
    const bytes = zipped.reduce((sum, each) => sum + each, 0);
    console.info(`${entry}: ${bytes} bytes`);
    expect(bytes).toBeLessThan(maxBytes);
  });
});
