import process from "node:process";
import { type Browser, type BrowserContext, chromium } from "playwright-core";
import { part } from "../parts.ts";

/** A page takes as long as the machine is busy, or its disk stands still. */
export const patienceMs = 90_000;

export async function launch(more: readonly string[] = []): Promise<Browser> {
  return chromium.launch({
    executablePath: part("chromium"),
    // Its sandbox doesn't work for root, and containers have little shared memory.
    args: [
      ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
      "--disable-dev-shm-usage",
      ...more,
    ],
    timeout: patienceMs,
  });
}

/** What a browser reports of its pages: what they threw, and what their policy forbade. */
export type Watched = {
  readonly context: BrowserContext;
  readonly troubles: string[];
};

/** Tabs of one person. Everything that goes wrong in one of them is kept. */
export async function openContext(
  browser: Browser,
  options: Parameters<Browser["newContext"]>[0] = {},
): Promise<Watched> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patienceMs);
  const troubles: string[] = [];
  context.on("weberror", (each) => troubles.push(`thrown: ${String(each.error())}`));
  context.on("dialog", (dialog) => {
    troubles.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  context.on("console", (message) => {
    const { type, text } = { type: message.type(), text: message.text() };
    // That a server can't be reached is said by the browser itself.
    if (type !== "error" && type !== "warning") return;
    if (/WebSocket connection to|Failed to load resource|net::ERR/.test(text)) return;
    troubles.push(`console: ${text}`);
  });
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  return { context, troubles };
}

/** Closes the tabs. What went wrong in them, however quietly, is a failure. */
export async function leave({ context, troubles }: Watched): Promise<void> {
  await context.close();
  if (troubles.length > 0) throw new Error(`pages had troubles:\n${troubles.join("\n")}`);
}
