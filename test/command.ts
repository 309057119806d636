import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { built } from "./built.ts";

const compileCache = fileURLToPath(new URL("../node_modules/.cache/command", import.meta.url));

export type Outcome = { code: number | string | null; stdout: string; stderr: string };

export type CommandOptions = {
  cwd: string;
  env?: Record<string, string>;
  /** What it reads; null where more is to be written to it. */
  stdin?: string | null;
  /** What the command is run by, such as `unshare`. */
  prefix?: readonly string[];
};

export type Running = {
  readonly child: ChildProcess;
  readonly output: { stdout: string; stderr: string };
  readonly ended: Promise<Outcome>;
};

/** The `flotilla` command as a person runs it: a process of its own. */
export function start(args: readonly string[], options: CommandOptions): Running {
  const { cwd, env = {}, stdin = "", prefix = [] } = options;
  const command = [...prefix, process.execPath, built.command, ...args];
  const child = spawn(command[0]!, command.slice(1), {
    cwd,
    // Most of a start is compiling the same files again.
    env: { ...cleanEnvironment(), NODE_COMPILE_CACHE: compileCache, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const output = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk) => (output.stdout += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk) => (output.stderr += chunk));
  child.stdin.on("error", () => {});
  if (stdin !== null) child.stdin.end(stdin);
  const ended = new Promise<Outcome>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve({ code: code ?? signal, ...output }));
  });
  return { child, output, ended };
}

export function run(args: readonly string[], options: CommandOptions): Promise<Outcome> {
  return start(args, options).ended;
}

/** The environment of the tests may contain settings of its own. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) =>
      !/^(FLOTILLA_|DATABASE_URL$|NO_COLOR$|FORCE_COLOR$|NODE_OPTIONS$|VITEST)/.test(name),
  );
  return Object.fromEntries(kept);
}
