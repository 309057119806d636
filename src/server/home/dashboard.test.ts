import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../contract/test-server.ts";
import { openDashboard } from "./dashboard.ts";

// What browsers send for a page.
const Accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const key = "a-key-of-16-chars-or-more";
const script = "console.log('the dashboard');\n".repeat(100);

let folder: string;
let server: TestServer;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-dashboard-"));
  const put = (path: string, text: string) => {
    mkdirSync(join(folder, path, ".."), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  put("built/@dashboard/index-BbUE0B6c.js", script);
  put("built/@dashboard/style-abcdefgh.css", "body { margin: 0 }");
  put(
    "built/index.html",
    `<!doctype html><title>Dashboard</title><link rel="stylesheet" href="./@dashboard/style-abcdefgh.css"><script type="module" src="./@dashboard/index-BbUE0B6c.js"></script>`,
  );
  put("chat/index.html", "<!doctype html><title>Chat</title>");
  server = await startTestServer({
    server: { apiKeys: [key], pages: { "/tasks": join(folder, "chat") } },
    dashboardFolder: join(folder, "built"),
  });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const open = (path: string, headers: Record<string, string> = { Accept }) =>
  fetch(server.url + path, { headers, redirect: "manual" });

describe("the dashboard", () => {
  test("is what browsers get at / and at every path that nothing else answers", async () => {
    for (const path of ["/", "/failures", "/pods/", "/runs/0198f3", "/runs/a.b/c?x=/y"]) {
      const answer = await open(path);
      expect([path, answer.status]).toEqual([path, 200]);
      expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(await answer.text()).toContain("<title>Dashboard</title>");
    }
  });

  test.each([
    ["/", "./"],
    ["/failures", "./"],
    ["/failures/", "../"],
    ["/runs/0198f3", "../"],
    ["/runs/a%2Fb/c", "../../"],
  ])("links its files relative to %s", async (path, up) => {
    const page = await (await open(path)).text();
    expect(page).toContain(`src="${up}@dashboard/index-BbUE0B6c.js"`);
    expect(page).toContain(`href="${up}@dashboard/style-abcdefgh.css"`);
    // As a browser resolves it, also where a proxy has taken `/ops` off the path.
    const { pathname } = new URL(`${up}@dashboard/index-BbUE0B6c.js`, `http://host/ops${path}`);
    expect(pathname).toBe("/ops/@dashboard/index-BbUE0B6c.js");
  });

  test("leaves programs, routes, files and pages of the config what they are", async () => {
    expect(await (await open("/", { Accept: "*/*" })).json()).toMatchObject({ name: "flotilla" });
    for (const path of ["/failures", "/nothing"])
      expect([path, (await open(path, {})).status]).toEqual([path, 404]);
    const refused = { "/v1/tasks": 401, "/v1/nothing": 401, "/metrics": 401 };
    for (const [path, status] of Object.entries(refused))
      expect([path, (await open(path)).status]).toEqual([path, status]);
    expect(await (await open("/health/live")).json()).toEqual({ status: "live" });
    for (const path of [
      "/health/nothing",
      "/@dashboard/nothing.js",
      "/@other",
      "/a/b/c/d/e/f/g/h/i/j",
    ])
      expect([path, (await open(path)).status]).toEqual([path, 404]);
    expect(await (await open("/tasks/")).text()).toContain("<title>Chat</title>");
    expect(await (await open("/sign-in")).text()).toContain("Sign in to Flotilla");
    const sent = await fetch(`${server.url}/failures`, { method: "POST", headers: { Accept } });
    expect(sent.status).toBe(404);
  });

  test("runs no script but its own, makes none from text, and is in no frame", async () => {
    for (const path of ["/", "/failures", "/@dashboard/index-BbUE0B6c.js"]) {
      const { headers } = await open(path);
      const policy = headers.get("content-security-policy")!;
      for (const rule of [
        "default-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
      ])
        expect(policy).toContain(rule);
      expect(policy).not.toMatch(/unsafe|https?:|data:|\*/);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("x-frame-options")).toBe("DENY");
    }
  });

  test("has files that browsers keep for good, and a page that they don't", async () => {
    const file = await open("/@dashboard/index-BbUE0B6c.js", { "Accept-Encoding": "gzip" });
    expect(file.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(file.headers.get("content-encoding")).toBe("gzip");
    expect(await file.text()).toBe(script);
    const page = await open("/failures");
    expect(page.headers.get("cache-control")).toBe("no-store");
    expect(page.headers.get("vary")).toContain("Accept");
  });

  test("isn't there where the config says so, nor where it isn't built", async () => {
    await using off = await startTestServer({
      server: { dashboard: false },
      dashboardFolder: join(folder, "built"),
    });
    const plain = await fetch(off.url, { headers: { Accept } });
    expect(await plain.text()).toContain("This server shows no dashboard");
    expect((await fetch(`${off.url}/failures`, { headers: { Accept } })).status).toBe(404);
    expect(openDashboard(join(folder, "nowhere"))).toBeUndefined();
  });
});
