import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import type { AxeResults } from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { firstPair } from "../../src/server/contract/certificates.ts";
import { launch, leave, openContext } from "./browser.ts";
import { expectSoon } from "./expect-soon.ts";
import { type KeyServer, startKeyServer } from "./key-server.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const limitMs = 180_000;
const script = `<script>window.hit = "script"</script><img src=x onerror="window.hit='img'">`;
const rebound = "evil.example";
const phone = { viewport: { width: 360, height: 700 }, isMobile: true, hasTouch: true };

let browser: Browser;
let server: KeyServer;
let others: Server;
/** Pages of others: of another site, and of another port of the same site, which gets the cookie. */
let foreign: { readonly site: string; readonly port: string };

beforeAll(async () => {
  browser = await launch([`--host-resolver-rules=MAP ${rebound} 127.0.0.1`]);
  server = await startKeyServer({ name: script });
  others = createServer((_, answer) => {
    answer
      .writeHead(200, { "Content-Type": "text/html" })
      .end("<!doctype html><title>Evil</title>");
  });
  await new Promise<void>((resolve) => others.listen(0, "127.0.0.1", resolve));
  const { port } = others.address() as AddressInfo;
  foreign = { site: `http://${rebound}:${port}`, port: `http://127.0.0.1:${port}` };
}, limitMs);
afterAll(async () => {
  await browser?.close();
  others?.close();
  await server?.[Symbol.asyncDispose]();
});

async function signIn(page: Page, { url, key } = server): Promise<void> {
  await page.goto(`${url}/sign-in`);
  await page.getByLabel("Key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${url}/`);
}

async function faults(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
  );
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

const isPaused = async () => (await server.send("GET", "/v1/pauses")).paused.length > 0;
const cookieOf = async (context: BrowserContext) =>
  (await context.cookies()).find(({ name }) => name === "flotilla")?.value;
/** Whether the browser is signed in still. */
const isSignedIn = async (context: BrowserContext) => {
  const page = await context.newPage();
  await page.goto(`${server.url}/sign-in`);
  const found = await page.getByRole("button", { name: "Sign out" }).count();
  await page.close();
  return found === 1;
};

describe("the page of the sign-in", { timeout: limitMs }, () => {
  test.each([
    ["light", { colorScheme: "light" }, "rgb(255, 255, 255)"],
    ["dark", { colorScheme: "dark" }, "rgb(13, 20, 27)"],
    ["on a phone", { colorScheme: "light", ...phone }, "rgb(255, 255, 255)"],
  ] as const)("and its refusal are accessible: %s", async (_, options, background) => {
    // The checker is a script, and the page allows none.
    const ada = await openContext(browser, { ...options, bypassCSP: true });
    const page = await ada.context.newPage();
    await page.goto(`${server.url}/sign-in`);
    const colour = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(colour).toBe(background);
    expect(await faults(page)).toEqual([]);
    await page.getByLabel("Key").fill("a-key-that-no-server-has");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    expect(await faults(page)).toEqual([]);
    const isWide = await page.evaluate(
      () => document.documentElement.scrollWidth > document.documentElement.clientWidth,
    );
    expect(isWide).toBe(false);
    await signIn(page);
    await page.goto(`${server.url}/sign-in`);
    expect(await faults(page)).toEqual([]);
    await leave(ada);
  });

  test("is used from the keyboard alone, without scripts, and with its own style", async () => {
    const ada = await openContext(browser, { javaScriptEnabled: false });
    const page = await ada.context.newPage();
    await page.goto(`${server.url}/sign-in?next=/app/`);
    const button = await page.getByRole("button", { name: "Sign in" }).boundingBox();
    expect(button!.height).toBeGreaterThanOrEqual(44);
    // The field has the focus: one may type at once.
    await page.keyboard.type(server.key);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL(`${server.url}/app/`);
    await page.goto(`${server.url}/sign-in`);
    await page.getByText("admin", { exact: true }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByLabel("Key").waitFor();
    expect(await cookieOf(ada.context)).toBeUndefined();
    await leave(ada);
  });

  test("gives a cookie that scripts can't read, over HTTPS one of this host alone", async () => {
    await using secure = await startKeyServer({ name: "web", tls: firstPair });
    const ada = await openContext(browser, { ignoreHTTPSErrors: true });
    const page = await ada.context.newPage();
    await signIn(page, secure);
    expect(await ada.context.cookies()).toMatchObject([
      { name: "__Host-flotilla", httpOnly: true, secure: true, sameSite: "Strict", path: "/" },
    ]);
    await page.goto(`${secure.url}/app/`);
    expect(await page.evaluate(() => document.cookie)).toBe("");
    expect(await page.evaluate(async () => (await fetch("/v1/pods")).status)).toBe(200);
    await leave(ada);
  });

  test("lets own pages change things and open sockets, with the id of an act", async () => {
    const ada = await openContext(browser);
    const page = await ada.context.newPage();
    await signIn(page);
    await page.goto(`${server.url}/app/`);
    const statuses = await page.evaluate(async () => {
      const send = async (headers: Record<string, string>) =>
        (
          await fetch("/v1/limits", {
            method: "PUT",
            headers: { "Content-Type": "application/json", ...headers },
            body: JSON.stringify({ scope: "tenant/acme", limit: 5 }),
          })
        ).status;
      const socket = new WebSocket("/v1/socket");
      const opened = await new Promise((resolve) => {
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      });
      socket.close();
      return [await send({}), await send({ "Flotilla-Action": "a-1" }), opened];
    });
    expect(statuses).toEqual([403, 200, "open"]);
    await leave(ada);
  });
});

describe("a page of another origin", { timeout: limitMs }, () => {
  test.each([
    ["of another site, which gets no cookie", "site", 401],
    ["of another port, which gets the cookie", "port", 403],
  ] as const)("changes nothing by a form or a request: %s", async (_, which, status) => {
    const { context } = await openContext(browser);
    const page = await context.newPage();
    await signIn(page);
    const cookie = await cookieOf(context);
    const { text: evilKey } = await server.send("POST", "/v1/keys", {
      name: "evil",
      role: "viewer",
    });
    const statuses: [string, number][] = [];
    page.on("response", (answer) => {
      const { method, url } = { method: answer.request().method(), url: new URL(answer.url()) };
      if (url.origin === server.url && method === "POST")
        statuses.push([url.pathname, answer.status()]);
    });
    const forms = [
      ["/v1/pause", "text/plain", `{"name":"mail","x":"`, `"}`],
      ["/v1/pause", "application/x-www-form-urlencoded", "name", "mail"],
      ["/v1/pause", "multipart/form-data", "name", "mail"],
      ["/sign-out", "application/x-www-form-urlencoded", "a", "b"],
      ["/sign-in", "application/x-www-form-urlencoded", "key", evilKey],
    ] as const;
    for (const [path, type, name, value] of forms) {
      await page.goto(foreign[which]);
      const navigated = page.waitForNavigation();
      await page.evaluate(
        ([action, enctype, field, content]) => {
          const form = Object.assign(document.createElement("form"), {
            method: "post",
            action,
            enctype,
          });
          const input = Object.assign(document.createElement("input"), {
            name: field,
            value: content,
          });
          form.append(input);
          document.body.append(form);
          form.submit();
        },
        [server.url + path, type, name, value] as const,
      );
      await navigated;
    }
    const ofPages = [
      ["/sign-out", 403],
      ["/sign-in", 403],
    ];
    expect(statuses).toEqual([
      ...Array.from({ length: 3 }, () => ["/v1/pause", status]),
      ...ofPages,
    ]);

    await page.goto(foreign[which]);
    const outcomes = await page.evaluate(async (url) => {
      const body = JSON.stringify({ name: "mail" });
      const credentials = "include" as const;
      const tries: [string, RequestInit][] = [
        ["/v1/pods", { credentials }],
        ["/v1/pause", { method: "POST", credentials, body, mode: "no-cors" }],
        [
          "/v1/pause",
          { method: "POST", credentials, body, headers: { "Content-Type": "text/plain" } },
        ],
        [
          "/v1/pause",
          {
            method: "POST",
            credentials,
            body,
            headers: { "Content-Type": "application/json", "Flotilla-Action": "a" },
          },
        ],
      ];
      const results: string[] = [];
      for (const [path, init] of tries) {
        try {
          results.push((await fetch(url + path, init)).type);
        } catch {
          results.push("refused");
        }
      }
      const socket = new WebSocket(`${url.replace("http", "ws")}/v1/socket`);
      results.push(
        await new Promise((resolve) => {
          socket.onopen = () => resolve("open");
          socket.onerror = () => resolve("refused");
        }),
      );
      return results;
    }, server.url);
    expect(outcomes).toEqual(["refused", "opaque", "refused", "refused", "refused"]);
    expect(await isPaused()).toBe(false);
    expect(await cookieOf(context)).toBe(cookie);
    expect(await isSignedIn(context)).toBe(true);
    await context.close();
  });

  test("holds no page of the server in a frame, to have it clicked unseen", async () => {
    const { context } = await openContext(browser);
    const page = await context.newPage();
    await signIn(page);
    for (const path of ["/sign-in", "/", "/app/"]) {
      for (const origin of [foreign.site, foreign.port]) {
        await page.goto(origin);
        await page.evaluate(
          (src) =>
            new Promise((resolve) => {
              const frame = Object.assign(document.createElement("iframe"), { src });
              frame.addEventListener("load", resolve);
              document.body.append(frame);
            }),
          server.url + path,
        );
        // What browsers show in place of a page that may not be there.
        await expectSoon(
          async () => [path, page.frames()[1]!.url()],
          [path, "chrome-error://chromewebdata/"],
        );
      }
    }
    await context.close();
  });

  test("under a name that leads to the server has no sign-in, and gets none", async () => {
    const { context } = await openContext(browser);
    const page = await context.newPage();
    await signIn(page);
    const at = server.url.replace("127.0.0.1", rebound);
    await page.goto(`${at}/app/`);
    const statuses = await page.evaluate(async () => {
      const headers = { "Flotilla-Action": "a", "Content-Type": "application/json" };
      const paused = await fetch("/v1/pause", { method: "POST", headers, body: `{"name":"mail"}` });
      return [(await fetch("/v1/pods")).status, paused.status];
    });
    expect(statuses).toEqual([401, 401]);
    await page.goto(`${at}/sign-in`);
    await page.getByText("This page came over plain HTTP").waitFor();
    expect(await page.getByLabel("Key").count()).toBe(0);
    expect((await context.cookies(at)).length).toBe(0);
    expect(await isPaused()).toBe(false);
    await context.close();
  });
});

test(
  "a script in the name of a key, in a task or in a message is text, whichever page shows it",
  { timeout: limitMs },
  async () => {
    const options = { key: script, delayMs: 3_600_000 };
    await server.send("POST", "/v1/tasks", { name: "mail", input: { script }, options });
    const { sessionId } = await server.send("POST", "/v1/sessions", { users: ["ada"] });
    const message = { author: "ada", parts: [{ type: "text", text: script }] };
    await server.send("POST", `/v1/sessions/${sessionId}/messages`, message);
    const ada = await openContext(browser);
    const page = await ada.context.newPage();
    await signIn(page);
    for (const path of [
      "/sign-in",
      "/v1/tasks",
      `/v1/sessions/${sessionId}/messages`,
      "/v1/sign-ins",
    ]) {
      await page.goto(server.url + path);
      expect([path, await page.locator("body").innerText()]).toEqual([
        path,
        expect.stringContaining("<script>"),
      ]);
      const found = await page.evaluate(() => [
        (window as { hit?: string }).hit,
        document.querySelectorAll("script, img").length,
      ]);
      expect([path, ...found]).toEqual([path, undefined, 0]);
    }
    await leave(ada);
  },
);
