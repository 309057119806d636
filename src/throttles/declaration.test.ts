import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { declareThrottle, ownOptionNames } from "./declaration.ts";
import { controllerOptionNames } from "./settings.ts";

/** The tables of the page by their first heading, as what they say of each option. */
function tablesOf(page: string): Map<string, Map<string, string>> {
  const tables = new Map<string, Map<string, string>>();
  let rows = new Map<string, string>();
  for (const line of page.split("\n")) {
    const [, first, second = ""] = line.split("|").map((cell) => cell.trim().replaceAll("`", ""));
    if (first === undefined) rows = new Map();
    else if (rows.size === 0 && !tables.has(first)) tables.set(first, rows.set("", second));
    else rows.set(first, second.replaceAll('"', ""));
  }
  return tables;
}

describe("docs/throttles-reference.md", () => {
  const tables = tablesOf(
    readFileSync(new URL("../../docs/throttles-reference.md", import.meta.url), "utf8"),
  );
  const { settings } = declareThrottle("api", { bucket: {} });
  const { latency, errors, breaker, bucket, ...limits } = settings.controller;

  test("names every option", () => {
    const told = [...tables.get("option")!.keys()];
    for (const name of [...ownOptionNames, ...controllerOptionNames]) expect(told).toContain(name);
  });

  test.each(
    Object.entries({
      option: { ...limits, ...settings, preset: "default" },
      "within latency": latency!,
      "within errors": errors,
      "within breaker": breaker!,
      "within bucket": bucket!,
    }),
  )("gives the defaults of each %s as they are", (table, values) => {
    const told = tables.get(table)!;
    const wrong = Object.entries<unknown>(values).filter(([name, value]) => {
      if (typeof value !== "number" && typeof value !== "string") return false;
      return told.has(name) && told.get(name) !== String(value);
    });
    expect(wrong).toEqual([]);
    if (table === "option") return;
    expect(Object.keys(values).filter((name) => !told.has(name))).toEqual([]);
  });
});
