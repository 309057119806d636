import { spawn, spawnSync } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import process from "node:process";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";

/** A process that a command has started and that outlives it. */
export type LocalProcess = {
  readonly name: string;
  readonly pid: number;
  /** When it was started, as the system says it: another process may get the same number later. */
  readonly started: string;
};

const stopLimitMs = 40_000;
const lookEveryMs = 50;
/** Where /proc/<pid>/stat has the start, after the name of the program. */
const startField = 19;

/** Starts a process in the background, which writes to a file. */
export function startProcess({
  name,
  command,
  log,
  env = process.env,
}: {
  name: string;
  command: readonly string[];
  log: string;
  env?: NodeJS.ProcessEnv;
}): LocalProcess {
  const output = openSync(log, "a", 0o600);
  try {
    const [program, ...args] = command;
    const child = spawn(program!, args, {
      // A signal to the terminal is not one to it.
      detached: true,
      stdio: ["ignore", output, output],
      env,
    });
    child.on("error", () => {});
    child.unref();
    if (child.pid === undefined) {
      throw new FlotillaError("unavailable", `${program} can't be started: look into ${log}`);
    }
    return { name, pid: child.pid, started: startOf(child.pid) ?? "" };
  } finally {
    closeSync(output);
  }
}

/** Whether the very process still runs. */
export function stillRuns({ pid, started }: LocalProcess): boolean {
  return started !== "" && startOf(pid) === started;
}

/** Ends a process gracefully, then at once. Does nothing to another one with its number. */
export async function stopProcess(
  stopped: LocalProcess,
  { clock }: { clock: Clock },
): Promise<void> {
  const endMs = clock.monotonic() + stopLimitMs;
  signal(stopped, "SIGTERM");
  while (stillRuns(stopped) && clock.monotonic() < endMs) await sleep(clock, lookEveryMs);
  signal(stopped, "SIGKILL");
}

function signal(to: LocalProcess, name: NodeJS.Signals): void {
  if (!stillRuns(to)) return;
  try {
    process.kill(to.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return;
    throw new FlotillaError(
      "forbidden",
      `${to.name} (process ${to.pid}) can't be stopped: ${messageOf(error)}`,
    );
  }
}

/** When a process was started; undefined where there is none, or it has ended and waits to be reaped. */
function startOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? undefined : fields[startField];
  } catch {
    const { stdout } = spawnSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8" });
    return stdout?.trim() || undefined;
  }
}
