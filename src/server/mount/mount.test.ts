import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import express from "express";
import { Hono } from "hono";
import { mount } from "hono/mount";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { Login } from "../../runtime/server-config.ts";
import { openTestStore } from "../contract/app-harness.ts";
import {
  type DashboardOptions,
  type MountedDashboard,
  mountDashboard,
  type MountParts,
} from "./mount.ts";

const { flotilla } = openTestStore();
const Accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const cookie = "who=ada";
const ends: (() => Promise<void> | void)[] = [];
let folder: string;
// Long enough to be sent compressed.
const script = "// the dashboard\n".repeat(200);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-mount-"));
  mkdirSync(join(folder, "@dashboard"));
  writeFileSync(join(folder, "@dashboard/index-BbUE0B6c.js"), script);
  writeFileSync(
    join(folder, "index.html"),
    `<!doctype html><title>Dashboard</title><script type="module" src="./@dashboard/index-BbUE0B6c.js"></script>`,
  );
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Knows one person by a cookie. */
const login = (asked: Request): Login | undefined =>
  asked.headers.get("cookie") === cookie ? { user: "ada", role: "operator" } : undefined;

function mounted<Host = unknown>(
  options: DashboardOptions<Host>,
  parts: MountParts = {},
): MountedDashboard<Host> {
  const given = { log: silentLogger, ...options };
  const made = mountDashboard<Host>(flotilla, given, { folder, isProduction: false, ...parts });
  ends.push(made.close);
  return made;
}

type Listener = (incoming: IncomingMessage, outgoing: ServerResponse) => void;

async function listen(listener: Listener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  ends.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Serves what takes a `Request`, as an adapter for Node does. */
function ofFetch(answer: (asked: Request, env: object) => Response | Promise<Response>): Listener {
  return (incoming, outgoing) => {
    const { method = "GET", headers, url = "/" } = incoming;
    const hasBody = method !== "GET" && method !== "HEAD";
    const asked = new Request(`http://${headers.host}${url}`, {
      method,
      headers: Object.entries(headers).map(([name, value]) => [name, String(value)]),
      ...(hasBody && { body: Readable.toWeb(incoming) as ReadableStream, duplex: "half" }),
    } as RequestInit);
    void Promise.resolve(answer(asked, { incoming, outgoing })).then(
      async ({ status, headers: sent, body }) => {
        outgoing.writeHead(status, Object.fromEntries(sent));
        for await (const bytes of body ?? []) outgoing.write(bytes);
        outgoing.end();
      },
      () => outgoing.destroy(),
    );
  };
}

/** Every way into a host app, at a path. */
const hosts: Record<string, (ops: MountedDashboard, path: string) => Listener> = {
  "Express, by `use`": (ops, path) => express().use(path, ops.node),
  "Express, by a route": (ops, path) =>
    express().all([path, `${bare(path)}/`, `${bare(path)}/*path`], ops.node),
  "node:http": (ops) => ops.node,
  "Hono, by `mount`": (ops, path) =>
    ofFetch(new Hono().all(`${bare(path)}/*`, mount(ops.fetch)).fetch),
  "Hono, by a route": (ops, path) =>
    ofFetch(new Hono().all(`${bare(path)}/*`, (c) => ops.fetch(c.req.raw)).fetch),
  "Next's router": (ops, path) =>
    ofFetch(async (asked) => {
      const { pathname } = new URL(asked.url);
      // As it does with every path but the first.
      if (pathname.endsWith("/") && pathname !== "/")
        return new Response(null, { status: 308, headers: { Location: pathname.slice(0, -1) } });
      const below = pathname.slice(bare(path).length + 1);
      const params = Promise.resolve(below === "" ? {} : { path: below.split("/") });
      const { status, headers, body } = await ops.next[asked.method as "GET"](asked, { params });
      const kept = [...headers].filter(([name]) => !/^content-(encoding|length)$/.test(name));
      return new Response(body, { status, headers: kept });
    }),
};
const bare = (path: string) => path.replace(/\/$/, "");

describe.each(Object.entries(hosts))("mounted in %s", (_, host) => {
  test.each(["/", "/ops", "/a/b/"])(
    "at %s, its pages find their files and routes",
    async (path) => {
      const ops = mounted({ login });
      const url = await listen(host(ops, path));
      const at = url + bare(path);
      const open = (address: string) => fetch(address, { headers: { Accept, cookie } });
      for (const address of [
        ...(path === "/" ? [] : [at]),
        `${at}/`,
        `${at}/tasks`,
        `${at}/runs/x`,
      ]) {
        const page = await open(address);
        expect([address, page.status]).toEqual([address, 200]);
        const [, src] = /src="([^"]+)"/.exec(await page.text())!;
        const linked = new URL(src!, page.url).href;
        expect(linked).toBe(`${at}/@dashboard/index-BbUE0B6c.js`);
        expect(await (await open(linked)).text()).toBe(script);
      }
      const json = { headers: { Accept: "application/json", cookie } };
      const home = await (await fetch(`${at}/`, json)).json();
      expect(home).toMatchObject({ name: "flotilla", caller: { name: "ada", role: "operator" } });
      expect(home).not.toHaveProperty("links.signIn");
      const { taskId } = await flotilla.enqueue("mail", { to: "ada" } as never);
      const act = await fetch(`${at}/v1/tasks/${taskId}/cancel`, {
        method: "POST",
        headers: { cookie, "Flotilla-Action": crypto.randomUUID(), Origin: url },
      });
      expect([act.status, (await flotilla.tasks.get(taskId))?.status]).toEqual([200, "cancelled"]);
      const { entries } = await flotilla.audit.list({});
      expect(entries[0]).toMatchObject({ action: "tasks.cancel", actor: "user/ada" });
      expect((await fetch(`${at}/v1/tasks`)).status).toBe(401);
    },
  );

  test("lets pages of the origins act that its options name, and tells others which option that is", async () => {
    const origin = "https://app.example.com";
    const url = await listen(host(mounted({ login, origins: [origin] }), "/ops"));
    const ask = (method: string, headers: Record<string, string>) =>
      fetch(`${url}/ops/v1/tasks/none/cancel`, { method, headers: { cookie, ...headers } });
    const asked = await ask("OPTIONS", { origin, "Access-Control-Request-Method": "POST" });
    expect([asked.status, asked.headers.get("access-control-allow-origin")]).toEqual([204, origin]);
    expect((await ask("POST", { origin })).status).toBe(404);
    const refused = await ask("POST", { origin: "https://evil.example" });
    const { error } = (await refused.json()) as { error: { message: string } };
    expect([refused.status, error.message]).toEqual([403, expect.stringMatching(/to `origins`$/)]);
  });

  test("sends what is live as it comes, until the host closes it", async () => {
    const ops = mounted({ login });
    const url = await listen(host(ops, "/ops"));
    const asked = request(`${url}/ops/v1/watch?topics=pods`, { headers: { cookie } });
    ends.push(() => void asked.destroy());
    let text = "";
    let isOver = false;
    asked.on("response", (answer) => {
      expect(answer.headers["cache-control"]).toBe("no-store, no-transform");
      answer.setEncoding("utf8").on("data", (more: string) => (text += more));
      answer.on("end", () => (isOver = true));
    });
    asked.on("error", () => {}).end();
    await until("a first event", () => text.includes("event: "));
    ops.close();
    await until("its end", () => isOver);
    expect((await fetch(`${url}/ops/v1/tasks`, { headers: { cookie } })).status).toBe(503);
  });
});

describe("the login of a host app", () => {
  const page = (url: string, headers: Record<string, string> = {}) =>
    fetch(url, { headers: { Accept, ...headers }, redirect: "manual" });

  test("lets in only callers that it knows: a page says so, and routes as they do", async () => {
    const url = await listen(express().use("/ops", mounted({ login }).node));
    for (const path of ["/ops", "/ops/tasks"]) {
      const refused = await page(url + path);
      expect([path, refused.status]).toEqual([path, 401]);
      expect(refused.headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(await refused.text()).toContain("Sign in first");
    }
    const routes = await fetch(`${url}/ops/v1/tasks`);
    expect([routes.status, await routes.json()]).toEqual([
      401,
      expect.objectContaining({ error: expect.objectContaining({ code: "unauthorized" }) }),
    ]);
  });

  test("may lead browsers to the app's own sign-in; programs are refused", async () => {
    const leading = () => new Response(null, { status: 303, headers: { Location: "/login" } });
    const url = await listen(express().use("/ops", mounted({ login: leading }).node));
    for (const path of ["/ops/", "/ops/tasks/x"]) {
      const led = await page(url + path);
      expect([led.status, led.headers.get("location")]).toEqual([303, "/login"]);
    }
    expect((await fetch(`${url}/ops/v1/tasks`)).status).toBe(401);
    expect((await fetch(`${url}/ops/`)).status).toBe(200);
  });

  test("gets the request as the host was given it, and what the host knows of it", async () => {
    type Asked = IncomingMessage & { user?: string };
    const seen: string[] = [];
    const ops = mounted({
      login: (asked, req: Asked) => {
        seen.push(asked.url);
        return req.user === undefined ? null : { user: req.user, role: "viewer" };
      },
    });
    const app = express();
    app.use((req: Asked, _, next) => {
      req.user = "grace";
      next();
    });
    app.use("/ops", ops.node);
    const url = await listen(app);
    const home = await fetch(`${url}/ops/`, { headers: { Accept: "application/json" } });
    expect(await home.json()).toMatchObject({ caller: { name: "grace", role: "viewer" } });
    await fetch(`${url}/ops/v1/tasks?limit=1`);
    expect(seen).toEqual([`${url}/ops/`, `${url}/ops/v1/tasks?limit=1`]);
    const byFetch = mounted({
      login: (_, { user }: { user: string }) => ({ user, role: "admin" as const }),
    });
    const asked = new Request("http://host/ops/", { headers: { Accept: "application/json" } });
    const answer = await byFetch.fetch(asked, { user: "linus" });
    expect(await answer.json()).toMatchObject({ caller: { name: "linus", role: "admin" } });
  });

  test("holds each caller to its role and tenant", async () => {
    const roles: Login[] = [
      { user: "viewer", role: "viewer" },
      { user: "acme", role: "operator", tenant: "acme" },
    ];
    const byName = (asked: Request) =>
      roles.find(({ user }) => asked.headers.get("cookie") === user);
    const url = await listen(mounted({ login: byName }).node);
    const { taskId } = await flotilla.enqueue("mail", {} as never, { tenant: "other" });
    const cancel = (who: string) =>
      fetch(`${url}/v1/tasks/${taskId}/cancel`, {
        method: "POST",
        headers: { cookie: who, "Flotilla-Action": crypto.randomUUID() },
      });
    expect((await cancel("viewer")).status).toBe(403);
    expect((await cancel("acme")).status).toBe(404);
    expect((await flotilla.tasks.get(taskId))?.status).toBe("pending");
  });

  test("is asked nothing for what a page of another site sends", async () => {
    let asked = 0;
    const known = () => {
      asked++;
      return { user: "ada", role: "admin" } as const;
    };
    const url = await listen(mounted({ login: known }).node);
    const cancel = (headers: Record<string, string>) =>
      fetch(`${url}/v1/tasks/x/cancel`, { method: "POST", headers });
    for (const headers of [{ Origin: "https://evil.example" }, { "Sec-Fetch-Site": "cross-site" }])
      expect((await cancel(headers as Record<string, string>)).status).toBe(403);
    expect(asked).toBe(0);
    expect((await cancel({ Origin: url })).status).toBe(404);
  });

  test("that throws lets no caller in and tells no secret", async () => {
    const broken = () => Promise.reject(new Error("the password is hunter2"));
    const url = await listen(mounted({ login: broken }).node);
    const refused = await page(url);
    expect(refused.status).toBe(503);
    expect(await refused.text()).toMatch(/Cannot tell right now who calls/);
    expect((await fetch(`${url}/v1/tasks`)).status).toBe(503);
  });
});

describe("without a login", () => {
  test("nothing is answered in production, and the page says what to do", async () => {
    const url = await listen(mounted({}, { isProduction: true }).node);
    const refused = await fetch(url, { headers: { Accept } });
    expect([refused.status, await refused.text()]).toEqual([
      403,
      expect.stringContaining("in production it needs to know who calls"),
    ]);
    for (const path of ["/v1/tasks", "/@dashboard/index-BbUE0B6c.js"])
      expect([path, (await fetch(url + path)).status]).toEqual([path, 403]);
  });

  test("this user on this machine is let in, and nothing that may come from elsewhere", async () => {
    const url = await listen(mounted({}).node);
    const status = async (headers: Record<string, string> = {}) =>
      (await fetch(`${url}/v1/tasks`, { headers })).status;
    expect(await status()).toBe(200);
    expect(await status({ "X-Forwarded-For": "203.0.113.7" })).toBe(403);
    expect(await status({ "Sec-Fetch-Site": "cross-site" })).toBe(403);
    const named = await new Promise<number>((resolve) => {
      const options = { headers: { Host: "evil.example" } };
      request(`${url}/v1/tasks`, options, (got) => resolve(got.resume().statusCode!)).end();
    });
    expect(named).toBe(403);
  });

  test("another user of this machine isn't, nor a caller whose connection isn't known", async () => {
    const ofAnother = { uid: 1_000, read: async () => "" };
    const url = await listen(mounted({}, { peers: ofAnother }).node);
    expect((await fetch(`${url}/v1/tasks`)).status).toBe(403);
    const { fetch: answer, next } = mounted({});
    const asked = () => new Request("http://localhost/v1/tasks");
    expect((await answer(asked())).status).toBe(403);
    const byNext = await next.GET(asked(), { params: { path: ["v1", "tasks"] } });
    expect([byNext.status, await byNext.json()]).toEqual([
      403,
      expect.objectContaining({
        error: expect.objectContaining({
          message: expect.stringContaining("without a login the dashboard answers"),
        }),
      }),
    ]);
  });
});

describe("a mount", () => {
  test("takes bodies that a parser of the host has read", async () => {
    const admin = () => ({ user: "ada", role: "admin" }) as const;
    const app = express()
      .use(express.json())
      .use("/ops", mounted({ login: admin }).node);
    const url = await listen(app);
    const sent = await fetch(`${url}/ops/v1/tasks`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Origin: url },
      body: JSON.stringify({ name: "mail", input: { to: "Zoë" } }),
    });
    const { taskId } = (await sent.json()) as { taskId: string };
    expect(sent.status).toBe(201);
    expect(await flotilla.tasks.get(taskId)).toMatchObject({ payload: { to: "Zoë" } });
  });

  test("has no probes, metrics and sign-in of its own", async () => {
    const url = await listen(mounted({ login }).node);
    for (const path of ["/metrics", "/health/live", "/sign-in"]) {
      const answer = await fetch(url + path, { headers: { cookie } });
      expect([path, answer.status]).toEqual([path, 404]);
    }
  });

  test("can't be left by the name of a mount", async () => {
    const { fetch: answer } = mounted({ login });
    for (const name of [
      `x"><script>alert(1)</script>`,
      "x&quot;y",
      "javascript:alert(1)",
      "..%2f",
    ]) {
      const asked = new Request(`http://host/${name}`, { headers: { Accept, cookie } });
      const page = await (await answer(asked)).text();
      expect(page.match(/<script/g)).toHaveLength(1);
      const [, src] = /src="([^"]*)"/.exec(page)!;
      expect(src).toMatch(/^\.\/[^"<>]+\/@dashboard\/index-BbUE0B6c\.js$/);
      const { origin } = new URL(src!.replaceAll("&amp;", "&"), asked.url);
      expect(origin).toBe("http://host");
    }
  });

  test("that isn't built says so", async () => {
    const url = await listen(mounted({ login }, { folder: join(folder, "nowhere") }).node);
    const page = await fetch(url, { headers: { Accept, cookie } });
    expect([page.status, await page.text()]).toEqual([
      503,
      expect.stringContaining("npm run build"),
    ]);
  });

  test("opens nothing before the first request, and refuses options that it doesn't know", () => {
    const untouched = new Proxy({}, { get: (_, name) => expect.fail(`it used ${String(name)}`) });
    mountDashboard(untouched as never, { login }, { folder });
    expect(() => mounted({ logn: login } as never)).toThrow("did you mean `login`?");
    expect(() => mounted({ login: "ada" as never })).toThrow("login must be a function");
    expect(() => mounted({ basePath: "ops/" })).toThrow("basePath must be a path like /ops");
    expect(() => mounted({ origins: ["ops"] })).toThrow("isn't an origin");
  });
});
