import { readFileSync, readlinkSync } from "node:fs";
import { hostname, totalmem } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import process from "node:process";
import { getHeapStatistics } from "node:v8";
import { pino } from "pino";
import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Pressure } from "../tasks/claim/capacity.ts";

// Fields of proc(5), counted after the program's name, which may contain any character.
const stateField = 0;
const startField = 19;

const resolutionMs = 20;
const nsPerMs = 1e6;

const levels = [...Object.keys(pino.levels.values), "silent"];

/** Identifies this process, and checks whether other processes of the machine are gone. */
export type ThisProcess = {
  /** The identity of this process, for other processes on the machine. */
  readonly host: string;
  /** Whether the process with this identity is known to have ended. */
  isGone(host: string): boolean;
};

type Identity = {
  /** The host name, the boot and the PID namespace. */
  readonly machine: string;
  readonly pid: number;
  /** The start time, because PIDs are reused. */
  readonly started: string;
};

/** Undefined except on Linux: only /proc has all that is needed. Then no process is known to be gone. */
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
  const machine = machineId();
  if (!machine || stat === undefined || stat === "none") return undefined;
  return { machine, pid, started: stat.started };
}

function machineId(): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const numbers = readlinkSync("/proc/self/ns/pid");
    return `${hostname()} ${boot} ${numbers}`;
  } catch {
    return undefined;
  }
}

/** Reads a process's start time; `none` where there is no such process, undefined where that is unknown. */
function statOf(pid: number): { started: string } | "none" | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    // A zombie has ended, and makes no more calls.
    if (fields[stateField] === "Z" || fields[stateField] === "X") return "none";
    const started = fields[startField];
    return started ? { started } : undefined;
  } catch (error) {
    return codeOf(error) === "ENOENT" && !mayRun(pid) ? "none" : undefined;
  }
}

/** Where /proc hides the processes of other users, signal 0 still shows that one exists. */
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

type PressureGauge = {
  /** The pressure since the last read. */
  read(): Pressure;
  stop(): void;
};

/** Reads this process's event-loop lag and memory. */
export function createPressureGauge(): PressureGauge {
  const gaps = monitorEventLoopDelay({ resolution: resolutionMs });
  gaps.enable();
  let before = sumsOf({ count: 0, mean: 0, stddev: 0 });
  return {
    read() {
      // Not reset between reads: that would forget the present gap, which may be a long one.
      const now = sumsOf(gaps);
      const lateMs = lateness(before, now);
      before = now;
      return { lateMs, memory: memoryUsed() };
    },
    stop: () => void gaps.disable(),
  };
}

/** The sum of the gaps between turns of the event loop, and the sum of their squares. */
type Sums = { readonly totalMs: number; readonly squares: number };

function sumsOf({ count, mean, stddev }: { count: number; mean: number; stddev: number }): Sums {
  if (count === 0) return { totalMs: 0, squares: 0 };
  const [meanMs, deviationMs] = [mean / nsPerMs, (count > 1 ? stddev : 0) / nsPerMs];
  return { totalMs: meanMs * count, squares: (meanMs ** 2 + deviationMs ** 2) * count };
}

/**
 * The average gap that a random moment since the last read falls into. A long gap contains more moments
 * than a short one, so one long block counts for more than many short waits.
 */
export function lateness(before: Sums, now: Sums): number {
  const totalMs = now.totalMs - before.totalMs;
  if (!(totalMs > 0)) return 0;
  return Math.max(0, (now.squares - before.squares) / totalMs - resolutionMs);
}

/** The used share of the heap's limit, or of the container's, whichever is higher. */
function memoryUsed(): number {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  const allowed = process.constrainedMemory();
  // Without a limit, the system reports more memory than the machine has.
  const isLimited = allowed > 0 && allowed < totalmem();
  const ofContainer = isLimited ? process.memoryUsage.rss() / allowed : 0;
  return Math.max(used / limit, ofContainer);
}

/** JSON lines on standard error, so that standard output stays the program's own. */
export function defaultLogger(level = process.env["FLOTILLA_LOG_LEVEL"] ?? "info"): Logger {
  if (!levels.includes(level)) {
    throw new FlotillaError(
      "invalid_option",
      `FLOTILLA_LOG_LEVEL must be one of ${levels.join(", ")}, not ${JSON.stringify(level)}`,
    );
  }
  return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
}
