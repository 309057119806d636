// `npm run screenshots`: pictures of the chat, the sign-in and the dashboard for the docs, as they are now.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { root } from "../../build/entries.ts";
import { makeBuild } from "../make-build.ts";
import { launch, leave, openContext } from "./browser.ts";
import { openChat } from "./chat-page.ts";
import { busyFleet } from "./dashboard/busy-fleet.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";
import { startKeyServer } from "./key-server.ts";

const wide = { width: 1_080, height: 800 };
const looks: Record<string, BrowserContextOptions> = {
  light: { viewport: wide, colorScheme: "light" },
  dark: { viewport: wide, colorScheme: "dark" },
  phone: {
    viewport: { width: 390, height: 760 },
    colorScheme: "light",
    isMobile: true,
    hasTouch: true,
  },
};
const folder = join(root, "docs/images");
const still = { animations: "disabled", caret: "hide" } as const;
const settleMs = 1_500;

await makeBuild();
mkdirSync(folder, { recursive: true });
const browser = await launch();
try {
  // Each alone, by its name: `npm run screenshots -- dashboard`.
  const wanted = process.argv.slice(2);
  const takes = { "sign-in": takeSignIn, chat: takeChat, dashboard: takeDashboard };
  for (const [name, take] of Object.entries(takes))
    if (wanted.length === 0 || wanted.includes(name)) await take(browser);
} finally {
  await browser.close();
}

function keep(name: string, taken: Uint8Array): void {
  const path = join(folder, `${name}.png`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, taken);
  console.log(path);
}

async function takeChat(inBrowser: Browser): Promise<void> {
  await using server = await startChatServer();
  await talk(inBrowser, server);
  for (const [look, options] of Object.entries(looks))
    keep(`chat-${look}`, await picture(inBrowser, server, options));
}

/** Every page, of a fleet that has something to do and to mend, in every look. */
async function takeDashboard(inBrowser: Browser): Promise<void> {
  await using fleet = await busyFleet();
  const empty: string[] = [];
  for (const [look, options] of Object.entries(looks)) {
    const motionless = { reducedMotion: "reduce", locale: "en-GB" } as const;
    const ada = await openContext(inBrowser, { ...options, ...motionless });
    const page = await ada.context.newPage();
    for (const [name, path] of Object.entries(fleet.pages)) {
      await page.goto(fleet.url + path);
      const heading = page.getByRole("heading", { level: 1 });
      await heading.waitFor();
      await page.locator(".loading").first().waitFor({ state: "detached" });
      // Plots and lists are there a moment after the page.
      await page.waitForTimeout(settleMs);
      const text = await page.locator("main#page").innerText();
      if (text.trim() === (await heading.innerText()).trim()) empty.push(`${name} in ${look}`);
      else keep(`dashboard/${name}-${look}`, await page.screenshot(still));
    }
    await leave(ada);
  }
  showInDocs(Object.keys(fleet.pages));
  if (empty.length > 0)
    throw new Error(`no picture of pages that show their heading alone: ${empty.join(", ")}`);
}

/** Puts the pictures of the dashboard into its page of the docs, between two comments. */
function showInDocs(names: readonly string[]): void {
  const path = join(root, "docs/dashboard.md");
  const shown = names.filter((name) => existsSync(join(folder, `dashboard/${name}-phone.png`)));
  const pictures = shown.map((name) =>
    [
      "<details>",
      `<summary>${name}</summary>`,
      "",
      "<picture>",
      `  <source media="(prefers-color-scheme: dark)" srcset="images/dashboard/${name}-dark.png" />`,
      `  <img src="images/dashboard/${name}-light.png" alt="The page ${name} of the dashboard" width="720" />`,
      "</picture>",
      `<img src="images/dashboard/${name}-phone.png" alt="The page ${name} on a phone" width="260" />`,
      "",
      "</details>",
    ].join("\n"),
  );
  const text = readFileSync(path, "utf8");
  const between = /(?<=<!-- pictures -->\n)[^]*?(?=<!-- end of pictures -->)/;
  writeFileSync(
    path,
    text.replace(between, () => `\n${pictures.join("\n\n")}\n\n`),
  );
}

/** The form, and what it says to a wrong key. */
async function takeSignIn(inBrowser: Browser): Promise<void> {
  await using server = await startKeyServer({ name: "web" });
  for (const [look, options] of Object.entries(looks)) {
    const viewport = { width: options.viewport!.width, height: 560 };
    const ada = await openContext(inBrowser, { ...options, viewport, locale: "en-GB" });
    const page = await ada.context.newPage();
    await page.goto(`${server.url}/sign-in`);
    const shot = () => page.screenshot(still);
    keep(`sign-in-${look}`, await shot());
    await page.getByLabel("Key").fill("a-key-that-no-server-has");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    keep(`sign-in-refused-${look}`, await shot());
    await leave(ada);
  }
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
  const taken = await tab.page.screenshot(still);
  await leave(ada);
  return taken;
}
