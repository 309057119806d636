import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";

/** Tells the processes of one machine apart, and which of them are gone. */
export type ThisProcess = {
  /** This process, as others on its machine find it. */
  readonly host: string;
  /** Whether the process that says this of itself is known to have ended. */
  isGone(host: string): boolean;
};

type Identity = {
  /** Since when the machine runs, and which numbers its processes have here. */
  readonly machine: string;
  readonly pid: number;
  /** Numbers of processes are given again; the moment of their start isn't. */
  readonly started: string;
};

/** Only Linux says all that is needed; elsewhere nobody is known to be gone, and there is none. */
export function identifyProcess(): ThisProcess | undefined {
  const own = identityOf(process.pid);
  if (!own) return undefined;
  return {
    host: JSON.stringify(own),
    isGone(host) {
      const other = parse(host);
      if (!other || other.machine !== own.machine) return false;
      const now = statOf(other.pid);
      return now === "none" || (now !== undefined && now.started !== other.started);
    },
  };
}

function identityOf(pid: number): Identity | undefined {
  const stat = statOf(pid);
  const machine = machineHere();
  if (!machine || stat === undefined || stat === "none") return undefined;
  return { machine, pid, started: stat.started };
}

function machineHere(): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const numbers = readlinkSync("/proc/self/ns/pid");
    return `${hostname()} ${boot} ${numbers}`;
  } catch {
    return undefined;
  }
}

// After the program's name, which may hold anything, in the order of proc(5).
const stateField = 0;
const startField = 19;

/** What the system says of a process; `none` where there is none, undefined where it doesn't say. */
function statOf(pid: number): { started: string } | "none" | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    // One that has ended, and only waits for its parent to look, makes no calls any more.
    if (fields[stateField] === "Z" || fields[stateField] === "X") return "none";
    const started = fields[startField];
    return started ? { started } : undefined;
  } catch (error) {
    return codeOf(error) === "ENOENT" && !mayRun(pid) ? "none" : undefined;
  }
}

/** Where /proc hides the processes of others, they are still there to be sent a signal; this one does nothing. */
function mayRun(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== "ESRCH";
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

function parse(host: string): Identity | undefined {
  try {
    const { machine, pid, started } = JSON.parse(host) as Record<string, unknown>;
    if (typeof machine !== "string" || typeof started !== "string") return undefined;
    return Number.isSafeInteger(pid) ? { machine, pid: pid as number, started } : undefined;
  } catch {
    return undefined;
  }
}
