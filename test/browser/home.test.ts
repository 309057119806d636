import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { launch, leave, openContext } from "./browser.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const limitMs = 180_000;
let browser: Browser;
let server: ChatServer;

beforeAll(async () => {
  browser = await launch();
  server = await startChatServer({});
  await server.program.tasks.enqueue("gated", { gate: "never" });
  await server.program.runs.start("asking", {});
  await until("both are under way", async () => {
    const { overview } = (await (await fetch(server.direct)).json()) as {
      overview: { tasks: { running: number }; runs: { waiting_for_signal: number } };
    };
    return overview.tasks.running === 1 && overview.runs.waiting_for_signal === 1;
  });
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

describe("the page at /", { timeout: limitMs }, () => {
  test.each(["light", "dark"] as const)("is accessible: %s", async (colorScheme) => {
    const ada = await openContext(browser, { colorScheme });
    const page = await ada.context.newPage();
    await page.goto(server.url);
    await page.getByRole("heading", { name: "In the store now" }).waitFor();
    const colour = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(colour).toBe(colorScheme === "light" ? "rgb(255, 255, 255)" : "rgb(13, 20, 27)");
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() =>
      (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
    );
    expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
    await leave(ada);
  });

  test("works without scripts", async () => {
    const ada = await openContext(browser, { javaScriptEnabled: false });
    const page = await ada.context.newPage();
    await page.goto(server.url);
    await page.getByRole("row", { name: "tasks 1 running" }).waitFor();
    await page.getByText("asking waits for word").waitFor();
    await page.getByRole("link", { name: "health: this process answers" }).click();
    await page.waitForURL("**/health/live");
    expect(await page.locator("body").innerText()).toContain('{"status":"live"}');
    await leave(ada);
  });
});
