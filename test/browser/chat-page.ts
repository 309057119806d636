import type { BrowserContext, Page } from "playwright-core";

export type ChatPage = ReturnType<typeof onPage>;

/** Opens a conversation in a tab of its own. */
export async function openChat(
  context: BrowserContext,
  { url, path = "/chat", chatId, user = "ada", agent = "script" }: ChatAt,
): Promise<ChatPage> {
  const page = await context.newPage();
  await page.goto(`${url}${path}/?user=${user}&agent=${agent}#/${chatId}`);
  return onPage(page);
}

export type ChatAt = { url: string; path?: string; chatId: string; user?: string; agent?: string };

/** A conversation as its user sees it. */
export function onPage(page: Page) {
  const box = page.getByRole("textbox", { name: "Message" });
  const messages = page.getByRole("feed").getByRole("article");
  const send = page.getByRole("button", { name: "Send", exact: true });
  const stop = page.getByRole("button", { name: "Stop", exact: true });
  return {
    page,
    box,
    messages,
    stop,
    /** What every message says, in order, without what stands around it. */
    texts: async (): Promise<string[]> =>
      (await messages.locator(".parts").allInnerTexts()).map((text) => text.trim()),
    async say(text: string): Promise<void> {
      // While an answer is made, there is Stop in its place.
      await send.waitFor();
      await box.fill(text);
      await box.press("Enter");
    },
    /** Once no server answers any more. */
    async idle(): Promise<void> {
      await stop.waitFor({ state: "detached" });
    },
    async shows(text: string | RegExp): Promise<void> {
      await page.getByRole("feed").getByText(text).first().waitFor();
    },
  };
}

/** What `count` says. */
export const counted = (words: number): string =>
  Array.from({ length: words }, (_, at) => `${words}.${at + 1}`).join(" ");
