import process from "node:process";
import { styleText } from "node:util";
import type { TaskStatus } from "../tasks/rows.ts";

type Style = Parameters<typeof styleText>[0];

const statusStyles: Readonly<Record<TaskStatus, Style>> = {
  pending: "yellow",
  claimed: "cyan",
  completed: "green",
  failed: "red",
  cancelled: "gray",
};

// Control characters except line breaks and tabs; direction marks; line separators; invisible
// characters, except the joiners of words and emoji; tags.
const unsafe =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

// The sequences that `paint` writes: bold, dim, the colours of this command, and their ends.
// oxlint-disable-next-line no-control-regex
const colours = /(\u001b\[(?:1|2|22|31|32|33|34|36|39|90)m)/;

/** Colours a text for standard output, if that is a terminal and NO_COLOR isn't set. */
export function paint(style: Style | undefined, text: string): string {
  return style === undefined ? text : styleText(style, text, { stream: process.stdout });
}

/** Colours a state. One that a newer server has sent isn't among the styles, and stays plain. */
export function paintState(
  styles: Readonly<Record<string, Style>>,
  state: string,
  text: string = state,
): string {
  return paint(Object.hasOwn(styles, state) ? styles[state] : undefined, oneLine(text, 40));
}

export function paintStatus(status: TaskStatus, text?: string): string {
  return paintState(statusStyles, status, text);
}

/** Prints text for people. Only its colours are sent to the terminal as they are. */
export function print(text: string): void {
  process.stdout.write(`${sanitizePainted(text)}\n`);
}

/** Prints a notice to standard error, because programs may read standard output. */
export function printNotice(text: string): void {
  process.stderr.write(`flotilla: ${sanitize(text)}\n`);
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/**
 * Aligns columns. Cells are sanitized and kept on one line, because most of them hold text of a store or a
 * server. Escape sequences of colours don't count as width.
 */
export function columns(given: readonly (readonly string[])[]): string {
  const rows = given.map((row) =>
    row.map((cell) => sanitizePainted(cell.replaceAll(/[\n\t]+/g, " "))),
  );
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, at) => (widths[at] = Math.max(widths[at] ?? 0, widthOf(cell))));
  }
  const lines = rows.map((row) =>
    row.map((cell, at) => cell + " ".repeat(widths[at]! - widthOf(cell))).join("  "),
  );
  return lines.map((line) => line.trimEnd()).join("\n");
}

function widthOf(text: string): number {
  return plain(text).length;
}

export function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replaceAll(/\u001b\[[0-9;]*m/g, "");
}

/** How long ago, in one or two digits and a unit. */
export function ago(nowMs: number, thenMs: number): string {
  const seconds = Math.max(0, (nowMs - thenMs) / 1_000);
  if (seconds < 60) return `${Math.round(seconds)}s`;
  if (seconds < 3_600) return `${Math.round(seconds / 60)}m`;
  if (seconds < 48 * 3_600) return `${Math.round(seconds / 3_600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}

/** Text of others on one line, sanitized. A server may send another type than it should. */
export function oneLine(text: string, maxChars: number): string {
  // oxlint-disable-next-line no-control-regex
  const flat = sanitize(String(text).replaceAll(/[\u0000-\u001f\u007f-\u009f]+/g, " "));
  return flat.length > maxChars ? `${flat.slice(0, maxChars - 1)}…` : flat;
}

/**
 * Text of others, for a terminal: characters that could move the cursor, change colours or the text
 * direction, or stay invisible are escaped. Line breaks and tabs stay.
 */
export function sanitize(text: string): string {
  return text.toWellFormed().replaceAll(unsafe, (char) => {
    const code = char.codePointAt(0)!.toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u{${code}}`;
  });
}

function sanitizePainted(text: string): string {
  const parts = text.split(colours);
  return parts.map((part, at) => (at % 2 === 1 ? part : sanitize(part))).join("");
}
