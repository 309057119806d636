import { Buffer } from "node:buffer";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { confusingTexts, hostileTexts } from "../hostile.ts";
import {
  type DashboardServer,
  expectShown,
  isTooWide,
  openTab,
  startDashboard,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const long = "w".repeat(1024 ** 2);

let browser: Browser;
let server: DashboardServer;
let failed: string;
let large: string;

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard();
  for (const message of [...hostileTexts, ...confusingTexts.slice(0, 3)])
    failed = await server.put("broken", { message, texts: hostileTexts }, "failed");
  const { taskId } = await server.flotilla.enqueue(
    "unhandled",
    {
      long,
      links: ["https://good.example@evil.example/", "javascript:window.hit='link'"],
      turned: "pay \u202e001\u202c now",
      [hostileTexts[0]!]: hostileTexts[2]!,
      many: Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`field ${at}`, at])),
    } as never,
    { key: hostileTexts[0]!, tenant: "<b>acme</b>" },
  );
  large = taskId;
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

describe("what is stored", { timeout: limitMs }, () => {
  test.each(["/", "/tasks", "/failures", "/pods", "failed", "large"])(
    "is text and nothing else, on %s",
    async (name) => {
      const path = { failed: `/tasks/${failed}`, large: `/tasks/${large}` }[name] ?? name;
      const tab = await openTab(browser, server.url + path);
      const { page } = tab;
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page
        .getByText(/broken|unhandled|leads/)
        .first()
        .waitFor();
      const inserted = await page.evaluate(
        () =>
          document.querySelectorAll(
            "#root :is(img, iframe, object, script, style, b, form[action])",
          ).length,
      );
      expect(inserted).toBe(0);
      expect(await page.evaluate(() => (globalThis as { hit?: string }).hit)).toBeUndefined();
      const links = await page.evaluate(() =>
        [...document.querySelectorAll("a")].map(({ protocol }) => protocol),
      );
      expect(links.filter((each) => each !== "http:" && each !== "https:")).toEqual([]);
      expect(await isTooWide(page)).toBe(false);
      expect(tab.outside).toEqual([]);
      await leave(tab);
    },
  );

  test("shows the messages as they are written", async () => {
    const tab = await openTab(browser, `${server.url}/failures`);
    for (const text of [hostileTexts[0]!, hostileTexts[2]!])
      await expectShown(tab.page.getByRole("link", { name: text }));
    await leave(tab);
  });

  test("shows hidden characters, the host of a link, and long texts when asked", async () => {
    const tab = await openTab(browser, `${server.url}/tasks/${large}`);
    const { page } = tab;
    await page.getByText("U+202E").waitFor();
    const link = page.getByRole("link", { name: /evil\.example/ });
    expect(await link.getAttribute("rel")).toContain("noreferrer");
    expect(await page.getByRole("link", { name: /javascript/ }).count()).toBe(0);
    await page.getByRole("button", { name: "show all 1,048,576 characters" }).click();
    await page.getByRole("button", { name: "show less" }).waitFor();
    expect(await isTooWide(page)).toBe(false);
    const shown = await page.evaluate(() => document.querySelectorAll("li").length);
    // Of ten thousand fields only the first are drawn.
    expect(shown).toBeLessThan(1_000);
    await leave(tab);
  });

  test("keeps the digits of numbers that JavaScript can't hold, on the page and when copied", async () => {
    const digits = "12345678901234567890";
    const { context, ...tab } = await openTab(browser, `${server.url}/pods`);
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    // As a server answers that has them from its database as they are.
    await context.route("**/v1/tasks/*", async (route) => {
      const answer = await route.fetch();
      const text = (await answer.text()).replace(
        /"payload":(?:"[^"]*"|\{[^]*?\}|null)/,
        `"payload":{"id":${digits},"rate":1.50}`,
      );
      await route.fulfill({ response: answer, body: Buffer.from(text) });
    });
    const { taskId } = await server.flotilla.enqueue("unhandled", null as never);
    await tab.page.goto(`${server.url}/tasks/${taskId}`);
    await tab.page.getByText(digits).waitFor();
    await tab.page.getByRole("button", { name: "Copy the payload as JSON" }).click();
    await tab.page.getByRole("status").getByText("Copied the payload.").waitFor();
    await expectSoon(
      () => tab.page.evaluate(() => navigator.clipboard.readText()),
      `{\n  "id": ${digits},\n  "rate": 1.50\n}`,
    );
    await leave({ context, ...tab });
  });
});
