import { describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { between, seededRandom } from "../../src/base/random.ts";
import { viewOf } from "../../src/protocol/view.ts";
import { textOf } from "../../src/protocol/message.ts";
import { leave, openContext } from "./browser.ts";
import { expectSoon } from "./expect-soon.ts";
import { useChatScene } from "./harness.ts";
import { type ChatPage, counted, openChat } from "./chat-page.ts";

const limitMs = 240_000;
const cutsWanted = 50;
const words = 120;
const seed = Number(process.env["BROWSER_SEED"] ?? Date.now() % 100_000);
const harness = useChatScene(limitMs);

describe("a chat whose connection is cut again and again", { timeout: limitMs }, () => {
  test(`shows exactly the messages of the log, seed ${seed}`, async () => {
    const random = seededRandom(seed);
    const ada = await openContext(harness.browser);
    const { context } = ada;
    const chatId = "cut";
    const one = await openChat(context, { url: harness.server.url, chatId });
    await one.say("count 1");
    await one.shows("1.1");
    const two = await openChat(context, { url: harness.server.url, chatId });
    await two.shows("1.1");
    await Promise.all([one, two].map(watchAnswers));

    let said = 1;
    while (harness.server.proxy.cuts < cutsWanted) {
      await one.idle();
      await one.say(`count ${words}`);
      said++;
      // Now and then before either side has noticed.
      if (between(random, 0, 1) === 0) harness.server.proxy.cut();
      // It is there from its beginning on, and may be over before it was looked at.
      await one.page.locator(`article[aria-posinset="${2 * said}"]`).waitFor();
      while ((await one.stop.count()) > 0 && harness.server.proxy.cuts < cutsWanted) {
        const soFar = harness.server.proxy.cuts;
        harness.server.proxy.cutAfter(between(random, 0, 4_000));
        await until("a cut, or the answer's end", async () => {
          await tryNow(one);
          return harness.server.proxy.cuts > soFar || (await one.stop.count()) === 0;
        });
      }
      harness.server.proxy.cutAfter(Infinity);
    }

    const wanted = ["count 1", "1.1"];
    for (let turn = 1; turn < said; turn++) wanted.push(`count ${words}`, counted(words));
    for (const tab of [one, two]) {
      await expectSoon(tab.texts, wanted);
      await tab.idle();
      expect(await strayAnswers(tab)).toEqual([]);
    }
    const { entries } = await harness.server.program.sessions.entries(chatId, { limit: 1_000 });
    expect(entries.map(({ seq }) => seq)).toEqual(wanted.map((_, at) => at + 1));
    expect(viewOf(entries).map((message) => textOf(message).trim())).toEqual(wanted);
    await one.say("over");
    await expectSoon(two.texts, [...wanted, "over", "You said: over"]);
    await leave(ada);
  });
});

/** As a user does who sees that the connection is lost. */
async function tryNow({ page }: ChatPage): Promise<void> {
  const button = page.getByRole("button", { name: "Try now" });
  if (await button.isVisible()) await button.click({ timeout: 200 }).catch(() => {});
}

/** Looks at every step of an answer in the making: each is the beginning of the whole, nothing twice. */
async function watchAnswers({ page }: ChatPage): Promise<void> {
  await page.evaluate((whole) => {
    const stray: string[] = [];
    Object.assign(window, { stray });
    new MutationObserver(() => {
      const last = [...document.querySelectorAll<HTMLElement>("article .parts")].at(-1);
      const text = last?.innerText.trim() ?? "";
      if (text.startsWith(whole.slice(0, 4)) && !whole.startsWith(text)) stray.push(text);
    }).observe(document.body, {
      subtree: true,
      childList: true,
      characterData: true,
    });
  }, counted(words));
}

function strayAnswers({ page }: ChatPage): Promise<string[]> {
  return page.evaluate(() => (window as unknown as { stray: string[] }).stray);
}
