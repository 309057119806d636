import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

const bin = fileURLToPath(new URL("../bin/flotilla.js", import.meta.url));
let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "flotilla-bin-"));
  write("package.json", `{ "type": "module" }`);
  mkdirSync(join(root, "bin"));
  cpSync(bin, join(root, "bin/flotilla.js"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

describe("an old Node", () => {
  // The machine's own Node shows that the file really parses there, where there is such a one.
  test.each([...oldNodesOnPath(), "12.22.12", "20.20.2", "22.17.1"])(
    "is told what is needed: %s",
    async (node) => {
      const { code, stdout, stderr } = await run(["dev"], asNode(node));
      expect(code).toBe(1);
      expect(stdout).toBe("");
      expect(stderr).toMatch(
        /^flotilla needs Node 22\.18 or newer, and this is Node \d+\.\d+\.\d+ /,
      );
      expect(stderr).toContain("npm install --save-dev node@24\n  npx flotilla dev\n");
    },
  );

  test.each(["22.18.0", "24.0.0"])("is not what %s is", async (version) => {
    write("dist/cli.js", `console.log("started");`);
    expect(await run([], asNode(version))).toMatchObject({ code: 0, stdout: "started\n" });
  });
});

describe("in a checkout", () => {
  test("the source runs with its arguments, and its exit code is ours", async () => {
    write(
      "src/cli/main.ts",
      `const given: string[] = process.argv.slice(2);
       console.log(JSON.stringify([given, process.execArgv]));
       process.exitCode = 7;`,
    );
    const { code, stdout } = await run(["tasks", "--json", "a b"]);
    expect(code).toBe(7);
    expect(JSON.parse(stdout)).toEqual([
      ["tasks", "--json", "a b"],
      ["--conditions=flotilla:source"],
    ]);
  });

  test.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("%s reaches the source", async (signal) => {
    write(
      "src/cli/main.ts",
      `process.on("${signal}", () => { console.log("stopping"); process.exit(3); });
       setInterval(() => {}, 1_000);
       console.log("ready");`,
    );
    const { code, stdout } = await run([], { onReady: (child) => child.kill(signal) });
    expect({ code, stdout }).toEqual({ code: 3, stdout: "ready\nstopping\n" });
  });

  test("a source that died of a signal is reported as that signal", async () => {
    write("src/cli/main.ts", `process.kill(process.pid, "SIGKILL");`);
    expect(await run([])).toMatchObject({ code: null, signal: "SIGKILL" });
  });

  test("the source is preferred to a build, which may be older", async () => {
    write("src/cli/main.ts", `console.log("source", ...process.argv.slice(2));`);
    write("dist/cli.js", `console.log("built");`);
    expect(await run(["dev"])).toMatchObject({ code: 0, stdout: "source dev\n" });
  });
});

describe("in an installed package", () => {
  test("the build runs with its arguments, and its exit code is ours", async () => {
    write("dist/cli.js", `console.log("built", ...process.argv.slice(2)); process.exitCode = 7;`);
    expect(await run(["dev", "a b"])).toMatchObject({ code: 7, stdout: "built dev a b\n" });
  });

  test("nothing is said of a config whose package has no type, nor of SQLite", async () => {
    write(
      "dist/cli.js",
      `process.emitWarning("Module type …", { code: "MODULE_TYPELESS_PACKAGE_JSON" });
       process.emitWarning("SQLite is an experimental feature", "ExperimentalWarning");`,
    );
    expect(await run([])).toMatchObject({ code: 0, stderr: "" });
  });

  test("what was compiled is kept for the next start, in the folder that Node is told", async () => {
    write("dist/cli.js", `console.log("built");`);
    const cache = join(root, "compiled");
    await run([], { env: { NODE_COMPILE_CACHE: cache } });
    expect(readdirSync(cache)).toHaveLength(1);
  });

  test("it runs where nothing can be kept", async () => {
    write("dist/cli.js", `console.log("built");`);
    const env = { NODE_COMPILE_CACHE: join(root, "package.json", "in-a-file") };
    expect(await run([], { env })).toMatchObject({ code: 0, stdout: "built\n", stderr: "" });
  });
});

type Launch = {
  node?: string;
  nodeArgs?: string[];
  env?: Record<string, string>;
  onReady?: (child: ChildProcess) => void;
};
type Outcome = { code: number | null; signal: string | null; stdout: string; stderr: string };

async function run(args: string[], launch: Launch = {}): Promise<Outcome> {
  const { node = process.execPath, nodeArgs = [], env = {}, onReady } = launch;
  const child = spawn(node, [...nodeArgs, join(root, "bin/flotilla.js"), ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  let [stdout, stderr] = ["", ""];
  child.stderr.on("data", (chunk) => (stderr += chunk));
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
    if (stdout === "ready\n") onReady?.(child);
  });
  return await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}

/** Runs a path as it is, and a version as this Node under that name. */
function asNode(pathOrVersion: string): Launch {
  if (pathOrVersion.includes("/")) return { node: pathOrVersion };
  const versions = `{ ...process.versions, node: ${JSON.stringify(pathOrVersion)} }`;
  write("preload.cjs", `Object.defineProperty(process, "versions", { value: ${versions} });`);
  return { nodeArgs: ["-r", join(root, "preload.cjs")] };
}

function oldNodesOnPath(): string[] {
  return (process.env["PATH"] ?? "")
    .split(delimiter)
    .map((folder) => join(folder, "node"))
    .filter((node) => !node.includes("node_modules") && existsSync(node))
    .filter((node) => {
      const [major = 0, minor = 0] = execFileSync(node, ["-p", "process.versions.node"], {
        encoding: "utf8",
      })
        .split(".")
        .map(Number);
      return major < 22 || (major === 22 && minor < 18);
    });
}

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}
