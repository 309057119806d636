import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { createProgram } from "./program.ts";

/** Every command that does something, with the words that call it. */
function leaves(
  command: Command,
  words: readonly string[] = [],
): { words: string; leaf: Command }[] {
  if (command.commands.length === 0) return [{ words: words.join(" "), leaf: command }];
  return command.commands.flatMap((each) => leaves(each, [...words, each.name()]));
}

const all = leaves(createProgram());
const runsOn = ["dev", "work", "serve"];
/** What is about no store. */
const withoutStore = ["openapi", "cluster status", "cluster down"];
/** What is about a store itself, or about none. */
const withoutServer = [
  ...runsOn,
  ...withoutStore,
  "migrate",
  "promote",
  "doctor",
  "tasks prune",
  "cluster up",
  "cluster permissions",
  "cluster rebase",
  "deploy compose",
  "deploy kubernetes",
  "deploy systemd",
];

describe("the command line", () => {
  test.each(all)("$words describes itself in its help", ({ leaf }) => {
    expect(leaf.description()).not.toBe("");
    for (const option of leaf.options) expect(option.description).not.toBe("");
  });

  test.each(all.filter(({ words }) => !runsOn.includes(words)))(
    "$words prints JSON with --json",
    ({ leaf }) => {
      expect(leaf.options.map((option) => option.long)).toContain("--json");
    },
  );

  test.each(all.filter(({ words }) => !withoutStore.includes(words)))(
    "$words takes the store and the config by flag and by environment",
    ({ leaf }) => {
      const shared = leaf.options.filter(({ long }) => long === "--store" || long === "--config");
      expect(shared.map((option) => option.envVar)).toEqual(["FLOTILLA_CONFIG", "FLOTILLA_STORE"]);
    },
  );

  test.each(all.filter(({ words }) => !withoutServer.includes(words)))(
    "$words can go through a server",
    ({ leaf }) => {
      const [url] = leaf.options.filter(({ long }) => long === "--url");
      expect(url?.envVar).toBe("FLOTILLA_URL");
    },
  );

  test.each(withoutServer)("%s has no flag for a server", (words) => {
    const { leaf } = all.find((each) => each.words === words)!;
    expect(leaf.options.map(({ long }) => long)).not.toContain("--url");
  });
});
