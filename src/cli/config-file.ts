import { existsSync, readFileSync } from "node:fs";
import { findPackageJSON } from "node:module";
import { dirname, extname, isAbsolute, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { types } from "node:util";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Config } from "../runtime/config.ts";

type Loaded = { readonly default?: unknown; readonly __esModule?: true };

const defaultNames = ["ts", "mts", "mjs", "js"].map((extension) => `flotilla.config.${extension}`);

const refusals = [
  "ERR_IMPORT_ATTRIBUTE_MISSING",
  "ERR_MODULE_NOT_FOUND",
  "ERR_UNSUPPORTED_DIR_IMPORT",
  "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX",
];

const loaderFolder = dirname(fileURLToPath(import.meta.url));
const onBegin = Symbol.for("flotilla.config.begin");
let imports = 0;

/** The path of the config file: the given one, or a default name in the working directory. */
export function configFile(named: string | undefined): string | undefined {
  return named ?? defaultNames.find((name) => existsSync(name));
}

/** The config; empty where there is no file. */
export async function loadConfig(named: string | undefined): Promise<Config> {
  const path = configFile(named);
  if (path === undefined) return {};
  const full = resolve(path);
  if (!existsSync(full)) {
    throw new FlotillaError("invalid_option", `there is no config file ${full}: check --config`);
  }
  let config: unknown;
  try {
    config = defaultOf(await load(full));
  } catch (error) {
    const message = `the config file ${full} can't be loaded: ${explained(error)}`;
    throw new FlotillaError("invalid_option", message, { cause: error });
  }
  if (typeof config !== "object" || config === null) {
    throw new FlotillaError(
      "invalid_option",
      `the config file ${full} has no default export: end it with \`export default defineConfig({ … })\``,
    );
  }
  return config;
}

/**
 * Node loads most configs by itself. It refuses some that other tools accept: imports without
 * extensions, `paths` of tsconfig.json, enums, JSON without an attribute, types imported like values,
 * and modules that a `package.json` calls CommonJS. It refuses them before any module runs, so that the
 * loader can start again. An error after a module has run is the config's own: loading again would
 * repeat its side effects.
 */
async function load(full: string): Promise<Loaded> {
  const { href } = pathToFileURL(full);
  if (isCalledCommonJs(full)) return loadByLoader(href);
  let hasBegun = false;
  try {
    const { config } = await importWith(href, () => (hasBegun = true));
    return config;
  } catch (error) {
    if (hasBegun || !isRefusal(error)) throw error;
    return loadByLoader(href);
  }
}

/** Imports a module, and calls `begin` right before the first module in it runs. */
async function importWith(href: string, begin: () => void): Promise<{ readonly config: Loaded }> {
  const mark = `globalThis[Symbol.for("flotilla.config.begin")]?.(${++imports})`;
  const whole = `import ${JSON.stringify(moduleOf(mark))}; export * as config from ${JSON.stringify(href)};`;
  const globals = globalThis as { [onBegin]?: () => void };
  globals[onBegin] = begin;
  try {
    return (await import(moduleOf(whole))) as { config: Loaded };
  } finally {
    delete globals[onBegin];
  }
}

function moduleOf(text: string): string {
  return `data:text/javascript,${encodeURIComponent(text)}`;
}

async function loadByLoader(href: string): Promise<Loaded> {
  const { createJiti } = await import("jiti");
  // A cache on disk would be in the folder for temporary files, shared with other users of the machine.
  const jiti = createJiti(href, { fsCache: false, interopDefault: false, tsconfigPaths: true });
  return jiti.import<Loaded>(href);
}

/** Node would take the file for CommonJS, and print a warning before it fails. */
function isCalledCommonJs(full: string): boolean {
  if (![".ts", ".js"].includes(extname(full))) return false;
  try {
    const manifest = findPackageJSON(pathToFileURL(full));
    if (manifest === undefined) return false;
    return (JSON.parse(readFileSync(manifest, "utf8")) as { type?: unknown }).type === "commonjs";
  } catch {
    // Node reports what is wrong with that file.
    return false;
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof SyntaxError || refusals.includes(codeOf(error) ?? "");
}

function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}

function defaultOf(loaded: Loaded): unknown {
  // Of a CommonJS file the loader returns `module.exports`, the config itself.
  const isModule =
    types.isModuleNamespaceObject(loaded) || "default" in loaded || loaded.__esModule;
  return isModule ? loaded.default : loaded;
}

/** The error, and what to change. */
function explained(error: unknown): string {
  const missing = missingImport(error);
  if (missing === undefined) return messageOf(error) + firstFrame(error);
  const { from, to } = missing;
  const what = `${from} imports ${JSON.stringify(to)}, which isn't`;
  if (/^[./]/.test(to) || isAbsolute(to)) return `${what} there: check the path`;
  return `${what} installed: run \`npm install ${packageOf(to)}\`, or name it in \`paths\` of tsconfig.json`;
}

function missingImport(error: unknown): { from: string; to: string } | undefined {
  if (codeOf(error) !== "MODULE_NOT_FOUND") return undefined;
  const [, to] = /^Cannot find module '([^']+)'/.exec(messageOf(error)) ?? [];
  const { requireStack = [] } = error as { requireStack?: readonly string[] };
  return to === undefined || requireStack[0] === undefined
    ? undefined
    : { from: requireStack[0], to };
}

function packageOf(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}

/** The line that threw, which the message often lacks. */
function firstFrame(error: unknown): string {
  const lines = error instanceof Error ? (error.stack?.split("\n") ?? []) : [];
  const frame = lines.find(
    (line) =>
      /^\s+at /.test(line) &&
      /[/\\]/.test(line) &&
      /:\d+:\d+\)?$/.test(line) &&
      !/node:|node_modules[/\\]jiti[/\\]/.test(line),
  );
  return frame === undefined || frame.includes(loaderFolder) ? "" : `\n  ${frame.trim()}`;
}
