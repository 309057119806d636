import { describe, expect, test } from "vitest";
import { createScreen } from "./live-counts.ts";

describe("a terminal with a status", () => {
  test("redraws the status in place, with what is printed above it", () => {
    const { screen, seen } = terminal();
    screen.print("started");
    screen.show(["one", "two"]);
    screen.print("something happened");
    screen.show(["three"]);
    expect(seen()).toEqual(["started", "something happened", "three"]);
    screen.show([]);
    expect(seen()).toEqual(["started", "something happened"]);
  });

  test("cuts lines that would wrap and a status taller than the window", () => {
    const { screen, seen } = terminal({ columns: 10, rows: 4 });
    screen.show(["\u001b[31m0123456789abc\u001b[39m", "2", "3", "4", "5"]);
    expect(seen()).toEqual(["012345678", "2", "3"]);
    screen.show(["again"]);
    expect(seen()).toEqual(["again"]);
  });

  test("takes a usual size where the terminal doesn't know its own", () => {
    const { screen, seen } = terminal({ columns: 0, rows: 0 });
    screen.show(["one", "two"]);
    expect(seen()).toEqual(["one", "two"]);
  });
});

const escape = "\u001b[";

/** Enough of a terminal to know what a person would see: lines, cursor up, erase below. */
function terminal(size: { columns?: number; rows?: number } = {}) {
  const lines: string[] = [];
  const write = (text: string) => {
    const [up, rest] = text.startsWith(escape) ? text.slice(2).split(`A${escape}J`) : ["0", text];
    lines.splice(lines.length - Number(up));
    if (rest) lines.push(...rest.replace(/\n$/, "").split("\n"));
  };
  return { screen: createScreen({ ...size, write }), seen: () => lines };
}
