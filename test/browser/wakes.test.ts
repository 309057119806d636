import { expect, test } from "vitest";
import { leave, openContext } from "./browser.ts";
import { type ChatPage, openChat } from "./chat-page.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";

const limitMs = 180_000;
const scene = useChatScene(limitMs);

test(
  "a wake that fires while no page is open is there when its user comes back",
  { timeout: limitMs },
  async () => {
    const { server, browser } = scene;
    const at = { url: server.url, chatId: "wakes" };
    const before = await openContext(browser);
    const tab = await openChat(before.context, at);
    await tab.say("hello");
    await tab.shows("You said: hello");
    await tab.idle();
    const { sessions } = server.program;
    await sessions.wake("wakes", { key: "later", afterMs: 3_600_000, message: "is it done?" });
    expect(await sessions.wakes("wakes")).toMatchObject([{ key: "later" }]);
    await leave(before);
    expect((await sessions.entries("wakes")).entries.map(({ kind }) => kind)).toEqual([
      "message",
      "message",
      "wake",
    ]);

    // Set again, it comes at another time: no browser is so slow that it would be open then.
    await sessions.wake("wakes", { key: "later", afterMs: 1_000, message: "is it done?" });
    const isAnswered = async () =>
      (await sessions.entries("wakes")).entries.filter(({ role }) => role === "assistant").length;
    await expectSoon(isAnswered, 2);
    expect(await sessions.wakes("wakes")).toEqual([]);

    const after = await openContext(browser);
    const again = await openChat(after.context, at);
    await expectSoon(again.texts, ["hello", "You said: hello", "You said: is it done?"]);
    await leave(after);
  },
);

test(
  "a reminder that a user sets is seen and cancelled in another tab, and asks the agent at its time",
  { timeout: limitMs },
  async () => {
    const { server, browser } = scene;
    const { sessions } = server.program;
    const at = { url: server.url, chatId: "reminded" };
    const ada = await openContext(browser);
    const tab = await openChat(ada.context, at);
    await tab.say("hello");
    await tab.shows("You said: hello");
    await tab.idle();
    const open = async ({ page }: ChatPage) => {
      await page.getByRole("button", { name: "Reminders" }).click();
      return page.getByRole("dialog", { name: "Reminders" });
    };
    const mine = await open(tab);
    const shown = (dialog: typeof mine) => () =>
      dialog.getByRole("list", { name: "Set" }).getByRole("listitem").allInnerTexts();
    const set = async (text: string, when: string) => {
      await mine.getByRole("textbox", { name: "Ask the agent" }).fill(text);
      await mine.getByRole("combobox", { name: "When" }).selectOption(when);
      await mine.getByRole("button", { name: "Remind me" }).click();
    };
    await set("is it done?", "In an hour");
    await expectSoon(async () => (await shown(mine)()).length, 1);
    await set("what is new?", "Every day at 9");
    await expectSoon(async () => (await shown(mine)()).length, 2);
    const [once, daily] = (await sessions.wakes("reminded")).toSorted(
      (one, other) => one.setSeq - other.setSeq,
    );
    expect(once).toMatchObject({ author: "ada", preview: "is it done?" });
    // The one is counted from when it was asked for, the other is when it was stored.
    expect(Math.abs(once!.atMs - once!.setAtMs - 3_600_000)).toBeLessThan(60_000);
    const timezone = await tab.page.evaluate(
      () => Intl.DateTimeFormat().resolvedOptions().timeZone,
    );
    expect(daily).toMatchObject({ preview: "what is new?", cron: "0 9 * * *", timezone });

    const theirs = await open(await openChat(ada.context, at));
    await expectSoon(async () => (await shown(theirs)()).length, 2);
    await theirs.getByRole("button", { name: "Cancel what is new?" }).click();
    await expectSoon(async () => (await shown(mine)()).length, 1);
    expect((await sessions.wakes("reminded")).map(({ key }) => key)).toEqual([once!.key]);

    // An hour is too long for a test: the same one, sooner.
    await sessions.wake("reminded", { key: once!.key, afterMs: 100, message: "is it done?" });
    await expectSoon(tab.texts, ["hello", "You said: hello", "You said: is it done?"]);
    await expectSoon(async () => (await shown(theirs)()).length, 0);
    await expectSoon(async () => (await shown(mine)()).length, 0);
    await leave(ada);
  },
);
