import { readFileSync, readlinkSync } from "node:fs";
import { hostname, totalmem } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import process from "node:process";
import { getHeapStatistics } from "node:v8";
import { pino } from "pino";
import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Pressure } from "../tasks/claim/capacity.ts";

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

type PressureGauge = {
  /** What was seen since the last look. */
  read(): Pressure;
  stop(): void;
};

const resolutionMs = 20;
const nsPerMs = 1e6;

/** Looks at this process: how late its event loop is, and how much of its memory is used. */
export function createPressureGauge(): PressureGauge {
  const gaps = monitorEventLoopDelay({ resolution: resolutionMs });
  gaps.enable();
  let before = sumsOf({ count: 0, mean: 0, stddev: 0 });
  return {
    read() {
      // Not reset between looks: that would forget the gap that is under way, which may be the long one.
      const now = sumsOf(gaps);
      const lateMs = lateness(before, now);
      before = now;
      return { lateMs, memory: memoryUsed() };
    },
    stop: () => void gaps.disable(),
  };
}

/** Of gaps between turns of the event loop: their sum, and the sum of their squares. */
type Sums = { readonly totalMs: number; readonly squares: number };

function sumsOf({ count, mean, stddev }: { count: number; mean: number; stddev: number }): Sums {
  if (count === 0) return { totalMs: 0, squares: 0 };
  const [meanMs, deviationMs] = [mean / nsPerMs, (count > 1 ? stddev : 0) / nsPerMs];
  return { totalMs: meanMs * count, squares: (meanMs ** 2 + deviationMs ** 2) * count };
}

/**
 * How long the gap is that a moment since the last look falls into, on average. A long gap holds more
 * moments than a short one, so that one long block counts for more than many short waits beside it.
 */
export function lateness(before: Sums, now: Sums): number {
  const totalMs = now.totalMs - before.totalMs;
  if (!(totalMs > 0)) return 0;
  return Math.max(0, (now.squares - before.squares) / totalMs - resolutionMs);
}

/** By the heap's own limit, and by that of the container where there is one. */
function memoryUsed(): number {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  const allowed = process.constrainedMemory();
  // Where nobody has set a limit, the system gives a number that no machine has.
  const isLimited = allowed > 0 && allowed < totalmem();
  const ofContainer = isLimited ? process.memoryUsage.rss() / allowed : 0;
  return Math.max(used / limit, ofContainer);
}

const levels = [...Object.keys(pino.levels.values), "silent"];

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
