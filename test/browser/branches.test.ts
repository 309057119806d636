import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { leave, openContext, type Watched } from "./browser.ts";
import { type ChatPage, openChat } from "./chat-page.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";

const limitMs = 180_000;
const scene = useChatScene(limitMs);
let ada: Watched;
let chats = 0;
let chatId: string;

beforeEach(async () => {
  chatId = `branch-${++chats}`;
  ada = await openContext(scene.browser);
});
afterEach(() => leave(ada));

const open = (id = chatId): Promise<ChatPage> =>
  openChat(ada.context, { url: scene.server.url, chatId: id });
const answered = (...said: string[]) => said.flatMap((text) => [text, `You said: ${text}`]);
const placeOf = ({ page }: ChatPage) => decodeURIComponent(new URL(page.url()).hash.slice(2));

/** Edits what was said, as a user does. */
async function edit({ page, messages }: ChatPage, said: string, anew: string): Promise<void> {
  const message = messages.filter({ hasText: said }).first();
  await message.hover();
  await message.getByRole("button", { name: "Edit" }).click();
  const box = page.getByRole("textbox", { name: "Say it anew" });
  await expectSoon(() => box.inputValue(), said);
  await box.fill(anew);
  await page.getByRole("button", { name: "Say this instead" }).click();
}

/** The one switch of a page, as it stands. */
const switchOf = ({ page }: ChatPage) => {
  const versions = page.getByRole("navigation", { name: "Versions" });
  return {
    reads: (text: string) => expectSoon(() => versions.locator("span").allInnerTexts(), [text]),
    before: () => versions.getByRole("button", { name: "Version before" }).click(),
    next: () => versions.getByRole("button", { name: "Next version" }).click(),
  };
};

describe("branches of a chat in a browser", { timeout: limitMs }, () => {
  test("begin with an edit, are both there after a reload, and a switch shows each", async () => {
    const tab = await open();
    for (const text of ["one", "two", "three"]) {
      await tab.say(text);
      await tab.shows(`You said: ${text}`);
      await tab.idle();
    }
    const other = await open();
    await expectSoon(other.texts, answered("one", "two", "three"));

    await edit(tab, "two", "due");
    await expectSoon(tab.texts, answered("one", "due"));
    const branchId = placeOf(tab);
    expect(branchId).not.toBe(chatId);
    await switchOf(tab).reads("2 of 2");
    // The tab that has the first one open goes on showing that, and can go to the other.
    await switchOf(other).reads("1 of 2");
    expect(await other.texts()).toEqual(answered("one", "two", "three"));

    await tab.page.reload();
    await expectSoon(tab.texts, answered("one", "due"));
    await switchOf(tab).reads("2 of 2");
    await switchOf(tab).before();
    await expectSoon(tab.texts, answered("one", "two", "three"));
    expect(placeOf(tab)).toBe(chatId);
    await tab.page.reload();
    await expectSoon(tab.texts, answered("one", "two", "three"));
    await switchOf(tab).next();
    await expectSoon(tab.texts, answered("one", "due"));

    // Each goes its own way.
    await tab.say("tre");
    await expectSoon(tab.texts, answered("one", "due", "tre"));
    await other.say("four");
    await expectSoon(other.texts, answered("one", "two", "three", "four"));
    expect(await tab.texts()).toEqual(answered("one", "due", "tre"));
  });

  test("are of one message, however they were made", async () => {
    const tab = await open();
    await tab.say("one");
    await tab.shows("You said: one");
    await tab.say("two");
    await tab.shows("You said: two");
    await edit(tab, "two", "due");
    await expectSoon(tab.texts, answered("one", "due"));
    // The edit of an edit is another version of the same message.
    await edit(tab, "due", "deux");
    await expectSoon(tab.texts, answered("one", "deux"));
    await switchOf(tab).reads("3 of 3");
    // One that a program made of the first, which this page learns of by itself.
    const { session } = await scene.server.program.sessions.edit(
      chatId,
      (await messageIds())[1]!,
      "zwei",
      { users: ["ada"] },
    );
    await switchOf(tab).reads("3 of 4");
    await switchOf(tab).next();
    await expectSoon(tab.texts, answered("one", "zwei"));
    expect(placeOf(tab)).toBe(session.sessionId);
    await switchOf(tab).reads("4 of 4");
    await switchOf(tab).before();
    await expectSoon(tab.texts, answered("one", "deux"));
    await switchOf(tab).before();
    await expectSoon(tab.texts, answered("one", "due"));
    // A fork of an earlier place begins a switch of its own, and hides what came after it.
    await edit(tab, "one", "uno");
    await expectSoon(tab.texts, answered("uno"));
    await switchOf(tab).reads("2 of 2");
  });

  test("can be left unmade", async () => {
    const tab = await open();
    await tab.say("one");
    await tab.shows("You said: one");
    await tab.idle();
    await tab.messages.first().hover();
    await tab.page.getByRole("button", { name: "Edit" }).click();
    await tab.page.getByRole("textbox", { name: "Say it anew" }).press("Escape");
    await expectSoon(tab.texts, answered("one"));
    const { forks } = await scene.server.program.sessions.forks(chatId);
    expect(forks).toEqual([]);
  });
});

async function messageIds(): Promise<string[]> {
  const { entries } = await scene.server.program.sessions.entries(chatId);
  return entries.filter(({ role }) => role === "user").map(({ messageId }) => messageId);
}
