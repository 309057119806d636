import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { type IncomingHttpHeaders, request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestServer } from "./contract/test-server.ts";
import { openPages } from "./pages.ts";

let folder: string;
let server: Awaited<ReturnType<typeof startTestServer>>;
const script = "console.log('a page');\n".repeat(100);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-pages-"));
  put("secret.txt", "treasure");
  put("dist/index.html", "<!doctype html><title>Chat</title>");
  put("dist/assets/index-BbUE0B6c.js", script);
  put("dist/assets/Bild im Wald.svg", "<svg/>");
  put("dist/favicon.ico", "icon");
  put("dist/.env", "treasure");
  put("dist/.git/config", "treasure");
  symlinkSync(join(folder, "secret.txt"), join(folder, "dist/link.txt"));
  symlinkSync(folder, join(folder, "dist/up"));
  const apiKeys = ["a-key-of-16-chars-or-more"];
  server = await startTestServer({ server: { apiKeys, pages: { "/chat": join(folder, "dist") } } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

describe("a page of the server", () => {
  test("is there without credentials, and may only talk to this server", async () => {
    const { status, headers, text } = await ask("/chat/");
    expect([status, text]).toEqual([200, "<!doctype html><title>Chat</title>"]);
    expect(headers).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-cache",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "x-frame-options": "DENY",
    });
    const policy = headers["content-security-policy"];
    for (const rule of ["default-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]) {
      expect(policy).toContain(rule);
    }
    expect((await ask("/v1/tasks")).status).toBe(401);
  });

  test("is found without the slash, whatever follows it", async () => {
    const { status, headers } = await ask("/chat?user=ada");
    expect([status, headers.location]).toEqual([308, "/chat/?user=ada"]);
    expect((await ask("/chatter")).status).toBe(404);
  });

  test("has places of its own, but no files that aren't there", async () => {
    for (const path of ["/chat/s/0198f3", "/chat/settings/", "/chat/?user=a.b"]) {
      expect(await ask(path)).toMatchObject({ status: 200, text: expect.stringContaining("Chat") });
    }
    for (const path of ["/chat/nothing.js", "/chat/assets/nothing", "/chat/assets/"]) {
      expect((await ask(path)).status).toBe(404);
    }
  });

  test("is revalidated, and its files with a hash in their names are not", async () => {
    const cached = async (path: string) => (await ask(path)).headers["cache-control"];
    expect(await cached("/chat/assets/index-BbUE0B6c.js")).toBe(
      "public, max-age=31536000, immutable",
    );
    expect(await cached("/chat/assets/Bild%20im%20Wald.svg")).toBe("no-cache");
    expect(await cached("/chat/favicon.ico")).toBe("no-cache");
  });

  test("isn't sent again to a browser that has it", async () => {
    const { headers } = await ask("/chat/");
    const etag = headers.etag!;
    for (const known of [etag, `"x", W/${etag}`, "*"]) {
      expect(await ask("/chat/", { headers: { "If-None-Match": known } })).toMatchObject({
        status: 304,
        text: "",
        headers: { etag },
      });
    }
    expect((await ask("/chat/", { headers: { "If-None-Match": '"x"' } })).status).toBe(200);
  });

  test("is compressed for a browser that accepts that", async () => {
    const path = "/chat/assets/index-BbUE0B6c.js";
    const plain = await ask(path);
    expect(plain.text).toBe(script);
    expect(plain.headers).toMatchObject({
      "content-type": "text/javascript; charset=utf-8",
      "content-length": String(script.length),
      vary: "Accept-Encoding",
    });
    const zipped = await ask(path, { headers: { "Accept-Encoding": "br, gzip" } });
    expect(zipped.headers["content-encoding"]).toBe("gzip");
    expect(zipped.headers.etag).not.toBe(plain.headers.etag);
    expect(gunzipSync(zipped.body).toString()).toBe(script);
    const refused = await ask(path, { headers: { "Accept-Encoding": "gzip;q=0, br" } });
    expect(refused.headers["content-encoding"]).toBe(undefined);
  });

  test("answers HEAD without a body, and takes no writes", async () => {
    const head = await ask("/chat/", { method: "HEAD" });
    expect(head).toMatchObject({ status: 200, text: "", headers: { "content-length": "34" } });
    for (const method of ["POST", "PUT", "DELETE"]) {
      expect(await ask("/chat/", { method })).toMatchObject({
        status: 405,
        headers: { allow: "GET, HEAD" },
      });
    }
  });

  test.each([
    "/chat/../secret.txt",
    "/chat/%2e%2e/secret.txt",
    "/chat/%2e%2e%2fsecret.txt",
    "/chat/..%5csecret.txt",
    "/chat/assets/../../secret.txt",
    "/chat//etc/passwd",
    "/chat/%2fetc%2fpasswd",
    "/chat/%252e%252e/secret.txt",
    "/chat/link.txt",
    "/chat/up/secret.txt",
    "/chat/.env",
    "/chat/.git/config",
    "/chat/index.html%00.js",
    "/chat/%00",
    "/chat/%ff",
    "/chat/%",
  ])("leads nowhere else: %s", async (path) => {
    const { status, text } = await ask(path);
    expect([200, 404]).toContain(status);
    // A path that doesn't have the form of a file is a place within the page.
    expect(text.includes("<title>Chat</title>")).toBe(status === 200);
    expect(text).not.toContain("treasure");
  });

  test("is shown again when it was rebuilt", async () => {
    put("other/index.html", "first");
    const pages = { "/other": join(folder, "other") };
    await using other = await startTestServer({ server: { pages } });
    expect((await ask("/other/", { url: other.url })).text).toBe("first");
    rmSync(join(folder, "other"), { recursive: true });
    expect((await ask("/other/", { url: other.url })).text).toBe("first");
    put("other/index.html", "the second");
    put("other/assets/x-BbUE0B6c.js", "new");
    expect((await ask("/other/", { url: other.url })).text).toBe("the second");
    expect((await ask("/other/assets/x-BbUE0B6c.js", { url: other.url })).text).toBe("new");
  });

  test("that isn't built is refused at the start", async () => {
    await expect(openPages({ "/x": join(folder, "missing") })).rejects.toThrow("can't be read");
    await expect(openPages({ "/x": join(folder, "dist/assets") })).rejects.toThrow(
      "there is no index.html",
    );
  });
});

function put(path: string, text: string): void {
  const full = join(folder, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
}

type Answer = { status: number; headers: IncomingHttpHeaders; body: Buffer; text: string };
type Asked = { method?: string; headers?: Record<string, string>; url?: string };

/** Sends the path as it is, without putting dots and slashes in order first. */
function ask(path: string, { url = server.url, ...options }: Asked = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const sent = request({ hostname, port, path, agent: false, ...options }, (answer) => {
      const pieces: Buffer[] = [];
      answer.on("data", (piece: Buffer) => pieces.push(piece));
      answer.on("end", () => {
        const body = Buffer.concat(pieces);
        const { statusCode = 0, headers } = answer;
        resolve({ status: statusCode, headers, body, text: body.toString() });
      });
    });
    sent.on("error", reject);
    sent.end();
  });
}
