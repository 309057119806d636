import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { leave, openContext } from "./browser.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";
import { openChat } from "./chat-page.ts";

const limitMs = 180_000;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const harness = useChatScene(limitMs);

/** What a checker of accessibility finds wrong with a page as it stands. */
async function faults(page: Page): Promise<string[]> {
  // Colours that are on their way to others would be read as too faint.
  // One whose element goes is never finished.
  await page.evaluate(() =>
    Promise.allSettled(document.getAnimations().map((each) => each.finished)),
  );
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
  );
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

const phone = { viewport: { width: 360, height: 700 }, isMobile: true, hasTouch: true };
const looks = [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["on a phone", phone],
] as const;

describe("a chat is accessible", { timeout: limitMs }, () => {
  test.each(looks)("and axe finds nothing wrong with it: %s", async (look, options) => {
    const ada = await openContext(harness.browser, { ...options, reducedMotion: "reduce" });
    const chatId = `axe-${look.replaceAll(" ", "-")}`;
    const tab = await openChat(ada.context, { url: harness.server.url, chatId, agent: "guide" });
    await tab.page.getByRole("heading", { name: "Ask the guide" }).waitFor();
    expect(await faults(tab.page)).toEqual([]);

    await tab.say("some code, please");
    await tab.shows("An agent is a function");
    await tab.idle();
    await tab.say("why?");
    await tab.shows("Because what you said");
    await tab.idle();
    expect(await faults(tab.page)).toEqual([]);

    await tab.page.getByRole("button", { name: "Reminders" }).click();
    await tab.page.getByRole("dialog", { name: "Reminders" }).waitFor();
    expect(await faults(tab.page)).toEqual([]);
    await tab.page.keyboard.press("Escape");

    await tab.say("coffee");
    await tab.page.getByRole("button", { name: "Approve order" }).waitFor();
    await tab.idle();
    expect(await faults(tab.page)).toEqual([]);

    harness.server.proxy.block(true);
    await tab.page.getByRole("button", { name: "Try now" }).waitFor();
    expect(await faults(tab.page)).toEqual([]);
    harness.server.proxy.block(false);
    await tab.page.getByRole("button", { name: "Try now" }).waitFor({ state: "detached" });
    await leave(ada);
  });

  test("on a phone the chats are in a drawer, with which nothing is wrong either", async () => {
    const ada = await openContext(harness.browser, { ...phone, reducedMotion: "reduce" });
    const tab = await openChat(ada.context, { url: harness.server.url, chatId: "drawer" });
    await tab.say("hello");
    await tab.shows("You said: hello");
    await tab.page.getByRole("button", { name: "Conversations" }).tap();
    await tab.page.getByRole("link", { name: /^You said: hello/ }).waitFor();
    expect(await faults(tab.page)).toEqual([]);
    await tab.page.getByRole("button", { name: "New chat" }).tap();
    await tab.page.getByRole("heading", { name: "Ask the guide" }).waitFor();
    expect(await tab.messages.count()).toBe(0);
    await leave(ada);
  });

  test("from the keyboard alone: a new chat, a message, a stop, and back again", async () => {
    const ada = await openContext(harness.browser);
    const tab = await openChat(ada.context, { url: harness.server.url, chatId: "keys" });
    const { page } = tab;
    await page.getByRole("heading", { name: "Ask the guide" }).waitFor();
    const press = (key: string) => page.keyboard.press(key);

    // The box has the focus: one may write at once.
    await expectSoon(() => focused(page), "Message");
    await page.keyboard.type("count 3");
    await press("Shift+Enter");
    await page.keyboard.type("hold keys");
    await press("Enter");
    await tab.shows("3.1 3.2 3.3");
    await reach(page, "Stop");
    await press("Enter");
    await tab.messages.last().getByText("Stopped").waitFor();
    expect(await tab.texts()).toEqual(["count 3\nhold keys", "3.1 3.2 3.3"]);

    await reach(page, "New chat");
    await press("Enter");
    await page.getByRole("heading", { name: "Ask the guide" }).waitFor();
    await expectSoon(() => focused(page), "Message");
    await page.keyboard.type("hello");
    await press("Enter");
    await tab.shows("You said: hello");

    // The list of chats: down to the other one.
    await page.getByRole("link", { name: /^3\.1/ }).waitFor();
    await reach(page, /^3\.1/);
    await press("Enter");
    await expectSoon(tab.texts, ["count 3\nhold keys", "3.1 3.2 3.3"]);
    await leave(ada);
  });

  test("the first Tab can skip to the message box", async () => {
    const ada = await openContext(harness.browser, { hasTouch: true, isMobile: true });
    const tab = await openChat(ada.context, { url: harness.server.url, chatId: "skip" });
    await tab.page.getByRole("heading", { name: "Ask the guide" }).waitFor();
    await tab.page.keyboard.press("Tab");
    await expectSoon(() => focused(tab.page), "Skip to the message box");
    await tab.page.keyboard.press("Enter");
    await expectSoon(() => focused(tab.page), "Message");
    await leave(ada);
  });
});

/** The name of what has the focus. */
function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const element = document.activeElement;
    return element?.getAttribute("aria-label") ?? element?.textContent?.trim() ?? "";
  });
}

/** Presses Tab until something has the focus: everything can be reached that way. */
async function reach(page: Page, name: string | RegExp): Promise<void> {
  const seen: string[] = [];
  for (let presses = 0; presses < 60; presses++) {
    const at = await focused(page);
    if (typeof name === "string" ? at === name : name.test(at)) return;
    seen.push(at);
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab never reaches ${String(name)}, only ${seen.join(", ")}`);
}
