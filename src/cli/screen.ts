import { plain } from "./output.ts";

/** What of a terminal is needed; `process.stdout` fits. */
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
      // A terminal that doesn't know its size says 0.
      const rows = terminal.rows || 24;
      const columns = terminal.columns || 80;
      // A line that wraps, or a status taller than the window, couldn't be erased again.
      status = lines.slice(0, Math.max(1, rows - 1)).map((line) => fit(line, columns - 1));
      terminal.write(before + draw());
    },
  };
}

function fit(line: string, width: number): string {
  const bare = plain(line);
  return bare.length <= width ? line : bare.slice(0, width);
}
