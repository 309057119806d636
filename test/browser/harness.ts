import type { Browser } from "playwright-core";
import { afterAll, beforeAll } from "vitest";
import { launch } from "./browser.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";

/** A browser and a server with the chat, for all tests of a file. */
export function useChatScene(limitMs: number) {
  let browser: Browser | undefined;
  let server: ChatServer | undefined;
  beforeAll(async () => {
    browser = await launch();
    server = await startChatServer();
  }, limitMs);
  afterAll(async () => {
    await browser?.close();
    await server?.[Symbol.asyncDispose]();
  });
  return {
    get browser() {
      return browser!;
    },
    get server() {
      return server!;
    },
  };
}
