import { spreadOf } from "../report.ts";
import type { Figure } from "../side-by-side/figures.ts";

/** A number as people read it. */
export function shown(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

/** The median of the rounds with the lowest and the highest, and whether any was cut. */
export function cell(rounds: readonly Figure[] | undefined): string {
  if (rounds === undefined || rounds.length === 0) return "";
  const { value, low, high } = spreadOf(rounds.map((figure) => figure.value));
  const cut = rounds.some((figure) => figure.cut) ? ", cut" : "";
  return `${shown(value)} (${shown(low)}–${shown(high)}${cut})`;
}

/** A table in Markdown, its columns as wide as what is in them. */
export function markdownTable(lines: readonly (readonly string[])[]): string {
  const [head, ...rows] = lines;
  const widths = head!.map((_, column) =>
    Math.max(3, ...lines.map((line) => line[column]!.length)),
  );
  const row = (line: readonly string[]) =>
    `| ${line.map((text, column) => pad(text, widths[column]!, column > 0)).join(" | ")} |`;
  const rule = widths.map((width, column) =>
    column > 0 ? `${"-".repeat(width - 1)}:` : "-".repeat(width),
  );
  return [row(head!), `| ${rule.join(" | ")} |`, ...rows.map(row)].join("\n");
}

function pad(text: string, width: number, right: boolean): string {
  const space = " ".repeat(Math.max(0, width - text.length));
  return right ? space + text : text + space;
}
