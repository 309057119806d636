import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { launch, leave, openContext, type Watched } from "./browser.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";
import { builtPage } from "./page-build.ts";
import { expectSoon } from "./expect-soon.ts";
import { type ChatPage, counted, openChat } from "./chat-page.ts";

const limitMs = 180_000;
let server: ChatServer;
let browser: Browser;
let ada: Watched;
let chats = 0;
let chatId: string;

beforeAll(async () => {
  const [chat, strict] = await Promise.all([builtPage("chat"), builtPage("strict")]);
  const pages = { "/chat": chat, "/strict": strict };
  browser = await launch();
  server = await startChatServer(pages);
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});
beforeEach(async () => {
  chatId = `talk-${++chats}`;
  ada = await openContext(browser);
});
afterEach(async () => {
  server.proxy.block(false);
  await leave(ada);
});

const open = (who = ada, user = "ada"): Promise<ChatPage> =>
  openChat(who.context, { url: server.url, chatId, user });

describe("a chat in a browser", { timeout: limitMs }, () => {
  test("is the same in two tabs, and in a third that comes in the middle of an answer", async () => {
    const one = await open();
    await one.say("hello");
    await one.shows("You said: hello");
    const two = await open();
    await two.shows("You said: hello");

    await one.say("count 10\nhold third\ncount 5");
    await Promise.all([one.shows("10.10"), two.shows("10.10")]);
    const three = await open();
    await three.shows("10.10");
    server.open("third");
    const wanted = [
      "hello",
      "You said: hello",
      "count 10\nhold third\ncount 5",
      `${counted(10)} ${counted(5)}`,
    ];
    const tabs = [one, two, three];
    for (const tab of tabs) {
      await tab.idle();
      await expectSoon(tab.texts, wanted);
    }
    await two.say("from the second");
    for (const tab of tabs) {
      await expectSoon(tab.texts, [...wanted, "from the second", "You said: from the second"]);
    }
  });

  test("is shown in a tab that was there before the first message", async () => {
    // It has long been told that there is nothing when the other one is loaded.
    const two = await open();
    const one = await open();
    await one.say("hello");
    for (const tab of [one, two]) await expectSoon(tab.texts, ["hello", "You said: hello"]);
  });

  test("goes on where its server was killed in the middle of an answer", async () => {
    const tab = await open();
    await tab.say("attempt\ncount 10\nhold restart\ncount 5");
    await tab.shows("10.10");
    await server.kill();
    await tab.page.getByRole("status").filter({ hasText: "Reconnecting" }).waitFor();
    await server.restart();
    const asked = "attempt\ncount 10\nhold restart\ncount 5";
    // It is made anew, and takes the place of what there was.
    await expectSoon(tab.texts, [asked, `attempt 2 ${counted(10)}`]);
    server.open("restart");
    const answer = `attempt 2 ${counted(10)} ${counted(5)}`;
    await expectSoon(tab.texts, [asked, answer]);
    await tab.idle();
    await tab.say("still there?");
    await expectSoon(tab.texts, [asked, answer, "still there?", "You said: still there?"]);
  });

  test("has an answer that was made while it was offline", async () => {
    const tab = await open();
    await tab.say("count 10\nhold offline\ncount 5");
    await tab.shows("10.10");
    await ada.context.setOffline(true);
    server.proxy.block(true);
    await tab.page.getByRole("status").filter({ hasText: "Offline" }).waitFor();
    server.open("offline");
    await expectSoon(
      async () => (await server.program.sessions.get(chatId)).state,
      (state) => expect(state).toMatchObject({ state: "idle" }),
    );
    expect((await tab.texts()).at(-1)).toBe(counted(10));
    server.proxy.block(false);
    await ada.context.setOffline(false);
    await expectSoon(tab.texts, [
      "count 10\nhold offline\ncount 5",
      `${counted(10)} ${counted(5)}`,
    ]);
    await tab.idle();
  });

  test("is stopped from another tab, and keeps what was streamed", async () => {
    const one = await open();
    await one.say("count 10\nhold never");
    await one.shows("10.10");
    const two = await open();
    await two.shows("10.10");
    await two.stop.click();
    for (const tab of [one, two]) {
      await tab.idle();
      await expectSoon(tab.texts, ["count 10\nhold never", counted(10)]);
      await tab.messages.last().getByText("Stopped").waitFor();
    }
    await one.say("again");
    await expectSoon(two.texts, ["count 10\nhold never", counted(10), "again", "You said: again"]);
  });

  test("shows its place while its turn waits for a permit", async () => {
    const at = { url: server.url, agent: "narrow" };
    const one = await openChat(ada.context, { ...at, chatId: `${chatId}-first` });
    await one.say("count 3\nhold permit");
    await one.shows("3.3");
    const two = await openChat(ada.context, { ...at, chatId });
    await two.say("hello");
    const place = two.page.getByRole("feed").getByRole("status");
    await place.filter({ hasText: "Waiting for its turn: next in line" }).waitFor();
    await two.stop.waitFor();
    await expectSoon(
      async () => (await server.program.sessions.get(chatId)).state.state,
      "waiting",
    );
    server.open("permit");
    await expectSoon(two.texts, ["hello", "You said: hello"]);
    await place.waitFor({ state: "detached" });
    await two.idle();
  });

  test("is the same under StrictMode, where everything is done twice", async () => {
    const at = { url: server.url, path: "/strict", chatId };
    const one = await openChat(ada.context, at);
    await one.say("count 10\nhold strict\ncount 5");
    await one.shows("10.10");
    const two = await openChat(ada.context, at);
    await two.shows("10.10");
    await one.page.reload();
    await one.shows("10.10");
    await expectSoon(() => server.metric("flotilla_session_subscribers"), 2);
    server.open("strict");
    for (const tab of [one, two]) {
      await expectSoon(tab.texts, [
        "count 10\nhold strict\ncount 5",
        `${counted(10)} ${counted(5)}`,
      ]);
      await tab.idle();
    }
    await one.say("again");
    await expectSoon(async () => (await two.texts()).slice(2), ["again", "You said: again"]);
  });

  test("stays usable for others: what one writes, the other sees", async () => {
    const one = await open();
    await one.say("hello");
    await one.shows("You said: hello");
    await server.program.sessions.members(chatId, { addUsers: ["bob"] });
    const bob = await openContext(browser);
    const two = await open(bob, "bob");
    await two.shows("You said: hello");
    await two.say("I am Bob");
    await expectSoon(one.texts, ["hello", "You said: hello", "I am Bob", "You said: I am Bob"]);
    await one.messages.nth(2).getByText("bob", { exact: true }).waitFor();
    await leave(bob);
  });

  test("shows who else is there and who types, for as long as they do", async () => {
    const one = await open();
    await one.say("hello");
    await one.shows("You said: hello");
    await server.program.sessions.members(chatId, { addUsers: ["bob"] });
    const bob = await openContext(browser);
    const two = await open(bob, "bob");
    await one.page.getByText("Also here: bob").waitFor();
    await two.page.getByText("Also here: ada").waitFor();
    const typing = one.page.getByText("bob is typing…");
    // It is shown for a moment, which a page that is slow could miss: he types until it is seen.
    await expectSoon(async () => {
      await two.box.pressSequentially("w");
      return typing.count();
    }, 1);
    await two.box.fill("well");
    await two.box.press("Enter");
    await typing.waitFor({ state: "detached" });
    await one.shows("You said: well");
    await two.page.close();
    await one.page.getByText("Also here: bob").waitFor({ state: "detached" });
    expect(await one.texts()).toHaveLength(4);
    await leave(bob);
  });
});

describe("an approval", { timeout: limitMs }, () => {
  const approve = (tab: ChatPage) => tab.page.getByRole("button", { name: "Approve order" });
  const deny = (tab: ChatPage) => tab.page.getByRole("button", { name: "Deny order" });
  const openGuide = (): Promise<ChatPage> =>
    openChat(ada.context, { url: server.url, chatId, agent: "guide" });

  test("is requested in every tab, survives a reload, and is given once for all", async () => {
    const one = await openGuide();
    await one.say("coffee, please");
    await approve(one).waitFor();
    const two = await openGuide();
    await approve(two).waitFor();
    await one.page.reload();
    await approve(one).click();
    for (const tab of [one, two]) {
      await tab.shows("Done. You will hear from me when it is here.");
      await tab.idle();
      await tab.shows("№ 4711");
      expect(await approve(tab).count()).toBe(0);
      expect(await tab.messages.count()).toBe(2);
    }
    const shown = await one.texts();
    expect(await two.texts()).toEqual(shown);
    await one.page.reload();
    await expectSoon(one.texts, shown);
    await one.say("thanks");
    await one.shows("I have heard 3 of our messages");
  });

  test("that is denied after a reload ends the matter", async () => {
    const one = await openGuide();
    await one.say("coffee, please");
    await deny(one).waitFor();
    await one.page.reload();
    await deny(one).click();
    await one.shows("Then I won't.");
    await one.idle();
    expect((await one.texts()).at(-1)).not.toContain("№ 4711");
    await one.page.reload();
    await one.shows("Then I won't.");
    expect(await approve(one).count()).toBe(0);
    expect(await one.messages.count()).toBe(2);
  });
});
