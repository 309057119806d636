import { readFileSync } from "node:fs";
import type { Browser, BrowserContext } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, leave, openContext } from "./browser.ts";
import { counted } from "./chat-page.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";
import { expectSoon } from "./expect-soon.ts";
import { builtPage } from "./page-build.ts";

const limitMs = 240_000;
let browser: Browser;
let server: ChatServer;

beforeAll(async () => {
  const page = await builtPage("assistant");
  browser = await launch();
  server = await startChatServer({ "/assistant": page });
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

/** A tab of the recipe's chat, as its user sees it. */
async function open(context: BrowserContext, chatId: string) {
  const page = await context.newPage();
  await page.goto(`${server.url}/assistant/#${chatId}`);
  const messages = page.getByRole("article");
  return {
    page,
    stop: page.getByRole("button", { name: "Stop" }),
    send: page.getByRole("button", { name: "Send" }),
    /** Without the dot that stands behind an answer while it comes. */
    texts: async () =>
      (await messages.allInnerTexts()).map((text) => text.replace(/●\s*$/, "").trim()),
    async say(text: string) {
      await page.getByRole("textbox", { name: "Message" }).fill(text);
      await page.getByRole("button", { name: "Send" }).click();
    },
  };
}

/** How the last answer of a chat ended, as the server has stored it. */
async function outcomeOf(chatId: string): Promise<unknown> {
  const answer = await fetch(`${server.direct}/v1/sessions/${chatId}/messages`);
  const { entries } = (await answer.json()) as { entries: { role: string; outcome?: unknown }[] };
  return entries.findLast(({ role }) => role === "assistant")?.outcome;
}

describe("assistant-ui on a session", { timeout: limitMs }, () => {
  test("by the code that the docs have", () => {
    const docs = readFileSync(new URL("../../docs/sessions-reference.md", import.meta.url), "utf8");
    const code = readFileSync(new URL("assistant/chat.tsx", import.meta.url), "utf8");
    expect(docs).toContain(`\`\`\`tsx\n${code}\`\`\``);
  });

  test("keeps a chat over a reload, in the middle of an answer and after it", async () => {
    const ada = await openContext(browser);
    const tab = await open(ada.context, "reloaded");
    await tab.say("count 3\nhold reload\ncount 2");
    await expectSoon(tab.texts, ["count 3\nhold reload\ncount 2", counted(3)]);
    await tab.page.reload();
    await expectSoon(tab.texts, ["count 3\nhold reload\ncount 2", counted(3)]);
    await tab.stop.waitFor();
    server.open("reload");
    const whole = ["count 3\nhold reload\ncount 2", `${counted(3)} ${counted(2)}`];
    await expectSoon(tab.texts, whole);
    await tab.send.waitFor();
    await tab.page.reload();
    await expectSoon(tab.texts, whole);
    await leave(ada);
  });

  test("shows a second tab the answer as it comes, and Stop ends it on the server for both", async () => {
    const ada = await openContext(browser);
    const [one, two] = [await open(ada.context, "both"), await open(ada.context, "both")];
    await one.say("count 4\nhold never");
    for (const tab of [one, two]) await expectSoon(tab.texts, ["count 4\nhold never", counted(4)]);
    await two.stop.click();
    for (const tab of [one, two]) await tab.send.waitFor();
    expect(await outcomeOf("both")).toBe("stopped");
    await two.say("hello");
    for (const tab of [one, two])
      await expectSoon(tab.texts, ["count 4\nhold never", counted(4), "hello", "You said: hello"]);
    await leave(ada);
  });
});
