import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");

/** The colours of a style sheet's `:root`, in light and in dark. */
function coloursOf(path: string): readonly ReadonlyMap<string, string>[] {
  const css = readFileSync(join(root, path), "utf8");
  return [...css.matchAll(/:root \{([^}]*)\}/g)].map(
    ([, block]) =>
      new Map([...block!.matchAll(/(--[\w-]+): (#\w+);/g)].map(([, a, b]) => [a!, b!])),
  );
}

test("the dashboard has the colours of the chat, which stands alone and can't share a file with it", () => {
  const chat = coloursOf("examples/chat/src/styles/page.css");
  const dashboard = coloursOf("src/dashboard/styles/page.css");
  expect(chat).toHaveLength(2);
  for (const [theme, colours] of chat.entries()) {
    expect(colours.size).toBeGreaterThan(12);
    for (const [name, colour] of colours)
      expect([theme, name, dashboard[theme]!.get(name)]).toEqual([theme, name, colour]);
  }
});
