import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { createClient } from "../../src/client/index.ts";
import { textOf } from "../../src/protocol/message.ts";
import { leave, openContext } from "./browser.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";
import { type ChatPage, openChat } from "./chat-page.ts";
import { confusingTexts, hostileChunks, hostileTexts } from "./hostile.ts";

const limitMs = 180_000;
const harness = useChatScene(limitMs);

describe("hostile content", { timeout: limitMs }, () => {
  test("shows as text, runs nothing, requests nothing and leads nowhere", async () => {
    const ada = await openContext(harness.browser);
    const { context } = ada;
    const asked: string[] = [];
    context.on("request", (request) => asked.push(request.url()));
    const texts = [...hostileTexts, ...confusingTexts];
    const chatId = "hostile";
    const tab = await openChat(context, { url: harness.server.url, chatId });
    for (const text of texts) {
      // The agent repeats it: what an answer says is no better than what its user says.
      await tab.say(`say ${JSON.stringify(text)}`);
      await expectSoon(
        async () => (await tab.messages.last().locator(".parts").textContent())?.trim(),
        text.trim(),
      );
      await tab.idle();
    }
    const program = createClient({ url: harness.server.url, user: "ada" });
    await program.session(chatId).send(hostileTexts[0]!, { id: "plain" });
    await program.session(chatId).send(`parts ${JSON.stringify(hostileChunks())}`);
    await tab.shows("parts [");
    await tab.page.getByRole("region", { name: /^Tool order/ }).waitFor();
    await tab.idle();
    program.close();

    await expectHarmless(tab.page);
    await tab.page.reload();
    await tab.page.getByRole("region", { name: /^Tool order/ }).waitFor();
    await expectHarmless(tab.page);
    // Everything that could be followed was looked at; now what can be pressed.
    for (const summary of await tab.page.locator("article summary").all()) await summary.click();
    await expectHarmless(tab.page);

    const elsewhere = asked.filter((url) => !url.startsWith(harness.server.url));
    expect(elsewhere).toEqual([]);
    expect(asked.filter((url) => /leak|\/x$|onerror/.test(url))).toEqual([]);
    await leave(ada);
  });
});

/** Nothing ran, nothing that loads or runs is in a message, and no link leads but to pages. */
async function expectHarmless(page: Page): Promise<void> {
  const found = await page.evaluate(() => {
    const inMessages =
      "img, picture, video, audio, iframe, object, embed, script, style, link, meta, base, form, svg";
    return {
      hit: (window as { hit?: string }).hit,
      elements: [...document.querySelectorAll(`article :is(${inMessages})`)].map(
        (each) => each.outerHTML,
      ),
      links: [...document.querySelectorAll<HTMLAnchorElement>("article a")]
        .map(({ protocol }) => protocol)
        .filter((protocol) => protocol !== "http:" && protocol !== "https:"),
      handlers: [...document.querySelectorAll("body *")]
        .flatMap((each) => each.getAttributeNames())
        .filter((name) => name.startsWith("on")),
      // A word of any length is broken, and what turns the writing around stays in its message.
      isWider: document.documentElement.scrollWidth > document.documentElement.clientWidth,
      title: document.title,
    };
  });
  expect(found).toMatchObject({
    hit: undefined,
    elements: [],
    links: [],
    handlers: [],
    isWider: false,
  });
}

describe("a history of 10,000 messages", { timeout: limitMs }, () => {
  const count = 10_000;

  test("loads, and is there from the first to the last", async () => {
    const chatId = "long";
    const { sessions } = harness.server.program;
    await sessions.create({ sessionId: chatId, users: ["ada"] });
    await sendAll(chatId, count);
    const textAt = async (place: number) => {
      const { entries } = await sessions.entries(chatId, { after: place - 1, limit: 1 });
      return textOf(entries[0]!).split("\n")[0]!;
    };

    const ada = await openContext(harness.browser);
    const { context } = ada;
    const tab = await openChat(context, { url: harness.server.url, chatId });
    await expectSoon(
      () => seen(tab),
      (places) => expect(places).toContain(count),
    );
    const scroll = tab.page.getByRole("region", { name: "Messages" });
    const drawnMost = 400;
    for (const [key, place] of [
      ["Home", 1],
      ["End", count],
    ] as const) {
      await expectSoon(
        async () => {
          await scroll.press(key);
          return seen(tab);
        },
        (places) => expect(places).toContain(place),
      );
      const there = tab.page.locator(`article[aria-posinset="${place}"]`);
      expect(await there.textContent()).toContain(await textAt(place));
      // What was drawn on the way goes once the list stands still.
      await expectSoon(
        () => tab.messages.count(),
        (drawn) => expect(drawn).toBeLessThan(drawnMost),
      );
    }
    // From somewhere in the middle, a page at a time, everything follows everything else.
    await scroll.evaluate((element) => (element.scrollTop = element.scrollHeight / 2));
    await expectSoon(
      () => seen(tab),
      (places) => expect(places.length).toBeGreaterThan(1),
    );
    for (let press = 0; press < 5; press++) {
      const before = (await seen(tab)).at(-1)!;
      await expectSoon(
        async () => {
          await scroll.press("PageDown");
          return seen(tab);
        },
        (places) => {
          expect(places.at(-1)).toBeGreaterThan(before);
          expect(places).toEqual(places.map((_, at) => places[0]! + at));
        },
      );
    }
    expect(await tab.messages.count()).toBeLessThan(drawnMost);
    await leave(ada);
  });
});

/** What one says is stored in its order, one after the other, so that many say it, in any order. */
async function sendAll(chatId: string, count: number): Promise<void> {
  const writers = Array.from({ length: 50 }, () =>
    createClient({ url: harness.server.direct, user: "ada" }),
  );
  let sent = 0;
  await Promise.all(
    writers.map(async (writer) => {
      while (sent < count) {
        const number = ++sent;
        await writer.session(chatId).send(`number ${number}\n`.repeat(1 + (number % 4)));
      }
      writer.close();
    }),
  );
}

/** The places of the messages that can be seen now. */
function seen({ messages }: ChatPage): Promise<number[]> {
  return messages.evaluateAll((all) => {
    const { top, bottom } = document.querySelector(".scroll")!.getBoundingClientRect();
    return all
      .filter((each) => {
        const box = each.getBoundingClientRect();
        return box.bottom > top && box.top < bottom;
      })
      .map((each) => Number(each.getAttribute("aria-posinset")));
  });
}
