import type { Clock } from "../base/clock.ts";
import type { PodEvent } from "../runtime/pod.ts";
import { type TaskStatus, taskStatuses } from "../tasks/rows.ts";
import type { Stats } from "../tasks/tasks.ts";
import { columns, oneLine, paint, paintStatus, plain } from "./output.ts";

type LiveParts = {
  stats: () => Promise<Stats>;
  running: () => number;
  /** Why the pod claims no more. */
  heldBack?: () => readonly string[];
  clock: Clock;
  everyMs: number;
  /** Called with each count. */
  show: (counts: LiveCounts) => void;
};

export type LiveCounts = {
  readonly stats: Stats;
  readonly running: number;
  readonly heldBack?: readonly string[];
  /** Tasks completed per second since the last count. */
  readonly perSecond: number;
};

export type LiveCounter = { observe(event: PodEvent): void; stop(): void };

/** The part of a terminal that a screen needs; `process.stdout` fits. */
export type Terminal = {
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): unknown;
};

export type Screen = {
  /** Prints a line above the status. */
  print(line: string): void;
  /** Replaces the status at the bottom. */
  show(lines: readonly string[]): void;
};

// A slow count is repeated less often.
const restFactor = 10;
const maxNamesShown = 15;

/** Counts and shows tasks on a timer. A failed count is skipped: the log has the error. */
export function startLiveCounts(parts: LiveParts): LiveCounter {
  const { stats, running, heldBack = () => [], clock, everyMs, show } = parts;
  let completed = 0;
  let sinceMs = clock.monotonic();
  let stopped = false;
  let cancel = () => {};

  const once = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    try {
      const counted = await stats();
      const nowMs = clock.monotonic();
      const perSecond = (completed / Math.max(1, nowMs - sinceMs)) * 1_000;
      completed = 0;
      sinceMs = nowMs;
      if (!stopped) show({ stats: counted, running: running(), heldBack: heldBack(), perSecond });
    } catch {
      // The next count shows it again.
    }
    const tookMs = clock.monotonic() - startedMs;
    if (!stopped) cancel = clock.after(Math.max(everyMs, tookMs * restFactor), () => void once());
  };
  cancel = clock.after(0, () => void once());
  return {
    observe(event) {
      if (event.type === "ended" && event.outcome === "completed") completed++;
    },
    stop() {
      stopped = true;
      cancel();
    },
  };
}

/** The counts as a table, for a terminal. */
export function countsTable(
  { stats, running, heldBack = [], perSecond }: LiveCounts,
  url: string,
): string[] {
  const names = Object.entries(stats.byName);
  const rows = names
    .slice(0, maxNamesShown)
    .map(([name, counts]) => toRow(oneLine(name, 30), counts, stats));
  const heading = ["", ...taskStatuses.map((status) => paintStatus(status, status.padStart(9)))];
  const more = names.length - rows.length;
  return [
    "",
    ...columns([heading, ...rows, toRow("all", stats.byStatus, stats)]).split("\n"),
    ...(more > 0 ? [`and ${more} more names`] : []),
    ...(heldBack.length > 0 ? [paint("yellow", heldBack.join(" · "))] : []),
    paint("dim", `${running} running · ${perSecond.toFixed(1)} completed/s · ${url}`),
  ];
}

/** The counts on one line, for logs and pipes. */
export function countsLine({ stats, running, heldBack = [], perSecond }: LiveCounts): string {
  const counts = taskStatuses.map(
    (status) => `${status} ${boundedCount(stats, status, stats.byStatus[status])}`,
  );
  return [...counts, `running ${running}`, `${perSecond.toFixed(1)} completed/s`, ...heldBack].join(
    "  ",
  );
}

/** A terminal with a status at its bottom that is redrawn in place. */
export function createScreen(terminal: Terminal): Screen {
  let status: readonly string[] = [];
  const erase = () => (status.length > 0 ? `\u001b[${status.length}A\u001b[J` : "");
  const draw = () => status.map((line) => `${line}\n`).join("");
  return {
    print(line) {
      terminal.write(`${erase()}${line}\n${draw()}`);
    },
    show(lines) {
      const before = erase();
      // A terminal of unknown size reports 0.
      const rows = terminal.rows || 24;
      const columns = terminal.columns || 80;
      // A line that wraps, or a status taller than the window, couldn't be erased again.
      status = lines.slice(0, Math.max(1, rows - 1)).map((line) => fit(line, columns - 1));
      terminal.write(before + draw());
    },
  };
}

/** A number of tasks, with a `+` where there are more of this status than were counted. */
export function boundedCount(
  { atLeast }: Pick<Stats, "atLeast">,
  status: TaskStatus,
  tasks: number,
): string {
  return `${tasks.toLocaleString("en-US")}${tasks > 0 && atLeast.includes(status) ? "+" : ""}`;
}

function toRow(
  name: string,
  counts: Readonly<Record<TaskStatus, number>>,
  stats: Pick<Stats, "atLeast">,
): string[] {
  const numbers = taskStatuses.map((status) => boundedCount(stats, status, counts[status]));
  return [name, ...numbers.map((each) => each.padStart(9))];
}

function fit(line: string, width: number): string {
  const bare = plain(line);
  return bare.length <= width ? line : bare.slice(0, width);
}
