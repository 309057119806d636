import process from "node:process";
import { type Clock, systemClock } from "../base/clock.ts";
import { createScreen, type Terminal } from "./live-counts.ts";

export type ProgressBarParts = {
  /** The output: redrawn in place on a terminal, elsewhere a line now and then. */
  stream?: Terminal & { readonly isTTY?: boolean };
  clock?: Clock;
};

export type ProgressBar = {
  /** Shows the progress, unless it was just shown. */
  show(line: string): void;
  /** Prints a line above it. */
  print(line: string): void;
  /** Removes it, so that the next output takes its place. */
  end(): void;
};

const redrawMs = 100;
const lineMs = 5_000;
const barChars = 30;

/** Shows the progress of a long operation, on standard error, because results go to standard output. */
export function startProgressBar(parts: ProgressBarParts = {}): ProgressBar {
  const { stream = process.stderr, clock = systemClock } = parts;
  const screen = stream.isTTY ? createScreen(stream) : undefined;
  let drawnMs = screen ? -Infinity : clock.monotonic();
  return {
    show(line) {
      const nowMs = clock.monotonic();
      if (nowMs - drawnMs < (screen ? redrawMs : lineMs)) return;
      drawnMs = nowMs;
      if (screen) screen.show([line]);
      else stream.write(`${line}\n`);
    },
    print(line) {
      if (screen) screen.print(line);
      else stream.write(`${line}\n`);
    },
    end() {
      screen?.show([]);
    },
  };
}

/** Progress as a bar and in numbers. */
export function bar(done: number, all: number): string {
  return `${barOf(all > 0 ? done / all : 1)} ${count(done)} of ${count(all)}`;
}

/** A share from 0 to 1 as a bar, with its percentage. */
export function barOf(share: number): string {
  const bounded = Math.min(1, Math.max(0, share));
  const full = Math.round(bounded * barChars);
  const percent = String(Math.floor(bounded * 100)).padStart(3);
  return `${"█".repeat(full)}${"░".repeat(barChars - full)} ${percent} %`;
}

/** A number with thousands separators. */
export function count(number: number): string {
  return number.toLocaleString("en-US");
}

export function plural(number: number, what: string): string {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}
