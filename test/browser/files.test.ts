import { createHash, randomBytes } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { launch, leave, openContext, type Watched } from "./browser.ts";
import { openChat } from "./chat-page.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";
import { expectSoon } from "./expect-soon.ts";
import { builtPage } from "./page-build.ts";

const limitMs = 300_000;
let server: ChatServer;
let browser: Browser;
let ada: Watched;
let chats = 0;
let chatId: string;

beforeAll(async () => {
  const [seven, six] = [await builtPage("durable"), await builtPage("durable-6")];
  const pages = { "/chat": await builtPage("chat"), "/7": seven, "/6": six };
  browser = await launch();
  server = await startChatServer(pages);
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});
beforeEach(async () => {
  chatId = `files-${++chats}`;
  ada = await openContext(browser);
});
afterEach(() => leave(ada));

/** A picture of noise, which no compression makes smaller: far more than an entry may be. */
const side = 400;
const photo = pngOf(side);

describe("a photo in useChat", { timeout: limitMs }, () => {
  test.each(["7", "6"])(
    "of the AI SDK %s is seen by its model as bytes, in a second tab and after a reload",
    async (version) => {
      const open = async (): Promise<Page> => {
        const page = await ada.context.newPage();
        await page.goto(`${server.url}/${version}/?agent=viewer#${chatId}`);
        return page;
      };
      const seen = async (page: Page) => ({
        said: await page.locator("article p").allInnerTexts(),
        pictures: await page.locator("article img").evaluateAll((all) =>
          (all as HTMLImageElement[]).map(({ alt, src, naturalWidth, naturalHeight }) => ({
            alt,
            of: new URL(src, location.href).pathname.replace(/[^/]+\/(?=[0-9a-f]{64}$)/, ""),
            size: [naturalWidth, naturalHeight],
          })),
        ),
      });
      const hash = createHash("sha256").update(photo).digest("hex");
      const wanted = {
        said: ["look", `image/png ${photo.length} ${hash}`],
        pictures: [{ alt: "sea.png", of: `/v1/files/${hash}`, size: [side, side] }],
      };
      const file = { name: "sea.png", mimeType: "image/png", buffer: photo };

      const one = await open();
      await one.getByLabel("Files").setInputFiles(file);
      await one.getByRole("textbox", { name: "Message" }).fill("look");
      await one.getByRole("textbox", { name: "Message" }).press("Enter");
      await expectSoon(() => seen(one), wanted);
      const two = await open();
      await expectSoon(() => seen(two), wanted);
      await one.reload();
      await expectSoon(() => seen(one), wanted);

      const { entries } = await server.program.sessions.entries(chatId);
      expect(entries[0]!.parts).toContainEqual({
        type: "file",
        url: `flotilla-file:${hash}`,
        mediaType: "image/png",
        filename: "sea.png",
        size: photo.length,
      });
    },
  );

  test("is attached in the chat, and stays when its message is edited", async () => {
    const tab = await openChat(ada.context, { url: server.url, chatId, agent: "viewer" });
    const { page, messages } = tab;
    const file = { name: "sea.png", mimeType: "image/png", buffer: photo };
    await page.locator("input[type=file]").setInputFiles([file, { ...file, name: "again.png" }]);
    await page.getByRole("button", { name: "Remove again.png" }).click();
    await tab.say("look");
    const hash = createHash("sha256").update(photo).digest("hex");
    const answer = `image/png ${photo.length} ${hash}`;
    await expectSoon(tab.texts, ["look", answer]);
    const picture = messages.first().getByRole("img", { name: "sea.png" });
    const width = () => picture.evaluate((image) => (image as HTMLImageElement).naturalWidth);
    await expectSoon(width, side);

    await messages.first().hover();
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Say it anew" }).fill("look again");
    await page.getByRole("button", { name: "Say this instead" }).click();
    await expectSoon(tab.texts, ["look again", answer]);
    await expectSoon(width, side);
  });
});

describe("a file that would run something", { timeout: limitMs }, () => {
  const script = `document.cookie = "ran=1"; localStorage.setItem("ran", "1"); fetch("/ran");`;
  const html = `<!doctype html><title>page</title><script>${script}</script>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" onload='${script}'><script>${script}</script></svg>`;
  /** What it is, the type that its sender claims, and what it is served as. */
  const hostile = [
    ["HTML", html, "text/html", "application/octet-stream", "attachment"],
    ["SVG", svg, "image/svg+xml", "application/octet-stream", "attachment"],
    ["XHTML", svg, "application/xhtml+xml", "application/octet-stream", "attachment"],
    ["a script", script, "text/javascript", "application/octet-stream", "attachment"],
    ["HTML as an image", html, "image/png", "image/png", "inline"],
    ["HTML as text", html, "text/plain", "text/plain; charset=utf-8", "inline"],
  ] as const;

  test.each(hostile)("runs nothing: %s", async (_, content, mediaType, type, disposition) => {
    const asked: string[] = [];
    ada.context.on("request", (request) => asked.push(new URL(request.url()).pathname));
    const { sessions } = server.program;
    await sessions.create({ sessionId: chatId, agent: "script" });
    const part = await sessions.upload(chatId, new TextEncoder().encode(content), { mediaType });
    const direct = (await sessions.openFiles(chatId)).urlOf(part)!;
    const address = server.url + new URL(direct).pathname;

    const { headers, status } = await fetch(address);
    expect([status, headers.get("content-type")]).toEqual([200, type]);
    expect(headers.get("content-disposition")).toMatch(new RegExp(`^${disposition}`));
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("content-security-policy")).toBe(
      "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; sandbox",
    );

    const opened = await ada.context.newPage();
    // A download ends the navigation with an error.
    const [download] = await Promise.all([
      disposition === "attachment" ? opened.waitForEvent("download") : undefined,
      opened.goto(address).catch(() => {}),
    ]);
    await download?.cancel();
    // From a page of the server itself, in all ways that a page may take.
    const page = await ada.context.newPage();
    await page.goto(`${server.url}/7/?agent=script#${chatId}`);
    await page.getByRole("status").waitFor();
    await page.evaluate(async (src) => {
      const ended = ["iframe", "object", "embed", "img", "script"].map((name) => {
        const element = document.createElement(name);
        element.setAttribute(name === "object" ? "data" : "src", src);
        const end = new Promise((resolve) => {
          for (const event of ["load", "error"]) element.addEventListener(event, resolve);
          // A frame that becomes a download, and an object that isn't allowed, end with neither.
          if (name !== "img" && name !== "script") setTimeout(resolve, 500);
        });
        document.body.append(element);
        return end;
      });
      await Promise.all(ended);
    }, address);
    expect(asked).toContain(new URL(address).pathname);
    expect(asked).not.toContain("/ran");
    expect(await page.evaluate(() => localStorage.getItem("ran"))).toBe(null);
    expect(await ada.context.cookies()).toEqual([]);
    // That its policy forbids to load such things is what the page reports.
    ada.troubles.length = 0;
  });
});

/** A picture in colours, of noise. */
function pngOf(width: number): Buffer {
  const chunk = (name: string, data: Buffer) => {
    const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
    const out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length, 0);
    body.copy(out, 4);
    out.writeUInt32BE(crc32(body), body.length + 4);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(width, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const rows = Array.from({ length: width }, () =>
    Buffer.concat([Buffer.from([0]), randomBytes(width * 3)]),
  );
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", head),
    chunk("IDAT", deflateSync(Buffer.concat(rows))),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}
