// `npm run screenshots`: pictures of the chat for the docs, as it is now.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { root } from "../../build/entries.ts";
import { makeBuild } from "../make-build.ts";
import { launch, leave, openContext } from "./browser.ts";
import { openChat } from "./chat-page.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";

const wide = { width: 1_080, height: 800 };
const pictures: Record<string, BrowserContextOptions> = {
  "chat-light": { viewport: wide, colorScheme: "light" },
  "chat-dark": { viewport: wide, colorScheme: "dark" },
  "chat-phone": {
    viewport: { width: 390, height: 760 },
    colorScheme: "light",
    isMobile: true,
    hasTouch: true,
  },
};
const folder = join(root, "docs/images");

await makeBuild();
await using server = await startChatServer();
const browser = await launch();
try {
  await talk(browser, server);
  mkdirSync(folder, { recursive: true });
  for (const [name, options] of Object.entries(pictures)) {
    const path = join(folder, `${name}.png`);
    writeFileSync(path, await picture(browser, server, options));
    console.log(path);
  }
} finally {
  await browser.close();
}

/** Writes what the pictures show: a task in progress and a call that waits for an approval. */
async function talk(inBrowser: Browser, { url }: ChatServer): Promise<void> {
  const ada = await openContext(inBrowser);
  for (const [chatId, texts] of Object.entries({
    story: ["Why does it survive?"],
    code: ["Show me some code"],
    shown: ["Do some work for me", "Now order a coffee"],
  })) {
    const tab = await openChat(ada.context, { url, chatId, agent: "guide" });
    for (const text of texts) {
      await tab.say(text);
      await tab.stop.waitFor();
      await tab.idle();
    }
  }
  await leave(ada);
}

async function picture(
  inBrowser: Browser,
  { url }: ChatServer,
  options: BrowserContextOptions,
): Promise<Uint8Array> {
  const ada = await openContext(inBrowser, {
    ...options,
    reducedMotion: "reduce",
    locale: "en-GB",
  });
  const tab = await openChat(ada.context, { url, chatId: "shown", agent: "guide" });
  await tab.page.getByRole("button", { name: "Approve order" }).waitFor();
  await tab.page.getByText("Done", { exact: true }).waitFor();
  await tab.page.getByRole("status").getByText("Online").waitFor();
  const taken = await tab.page.screenshot({ animations: "disabled", caret: "hide" });
  await leave(ada);
  return taken;
}
