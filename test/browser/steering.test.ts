import { expect, test } from "vitest";
import { leave, openContext } from "./browser.ts";
import { openChat } from "./chat-page.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";

const limitMs = 180_000;
const scene = useChatScene(limitMs);

test(
  "a message that is sent during an answer is heard at its next step, and pages show where",
  { timeout: limitMs },
  async () => {
    const { server, browser } = scene;
    const at = { url: server.url, chatId: "steered", agent: "steered" };
    const before = await openContext(browser);
    const tab = await openChat(before.context, at);
    await tab.say("plan a trip");
    await tab.shows("I look.");
    const { sessions } = server.program;
    // Stop stays where it was, beside what sends.
    const send = tab.page.getByRole("button", { name: "Send", exact: true });
    expect(await send.count()).toBe(0);
    await tab.box.fill("by train");
    await send.waitFor();
    await tab.stop.waitFor();
    await tab.box.press("Enter");
    await expectSoon(async () => (await sessions.entries("steered")).entries.length, 2);
    expect(await tab.box.inputValue()).toBe("");
    server.open("steered");
    await tab.shows("Asked: plan a trip, by train.");
    await tab.idle();

    // One answer, whose parts are in this order in the page that followed it as in one that comes later.
    const shown = /^I look\.[^]*Heard: by train\s+Asked: plan a trip, by train\.$/;
    const texts = async () =>
      (await tab.texts()).map((text) => (shown.test(text) ? "answer" : text));
    await expectSoon(texts, ["plan a trip", "by train", "answer"]);
    const { entries } = await sessions.entries("steered");
    expect(entries.map(({ role }) => role)).toEqual(["user", "user", "assistant"]);
    expect(entries[2]).toMatchObject({ beganSeq: 1, upToSeq: 2, outcome: "completed" });
    await tab.page.reload();
    await expectSoon(texts, ["plan a trip", "by train", "answer"]);
    await leave(before);
  },
);
