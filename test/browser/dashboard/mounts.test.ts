import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { mount } from "hono/mount";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { silentLogger } from "../../../src/base/log.ts";
import { type Login } from "../../../src/runtime/server-config.ts";
import { type MountedDashboard, mountDashboard } from "../../../src/server/mount/mount.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { builtPage } from "../page-build.ts";
import {
  type DashboardServer,
  openTab,
  startDashboard,
  startStripping,
} from "./dashboard-server.ts";

const limitMs = 180_000;
let browser: Browser;
let fleet: DashboardServer;
let ops: MountedDashboard;

/** The host app knows its users by a cookie. */
const people: Record<string, Login> = {
  "who=ada": { user: "ada", role: "operator", payloads: true },
  "who=grace": { user: "grace", role: "viewer" },
};
let isSignedOut = false;
const login = (request: Request) => {
  const known = people[request.headers.get("cookie") ?? ""];
  return isSignedOut || !known
    ? new Response(null, { status: 303, headers: { Location: "/login" } })
    : known;
};

beforeAll(async () => {
  browser = await launch();
  fleet = await startDashboard();
  const folder = await builtPage("dashboard");
  ops = mountDashboard(
    fleet.flotilla,
    { login, log: silentLogger },
    { folder, isProduction: true },
  );
}, limitMs);
afterAll(async () => {
  ops?.close();
  fleet?.open();
  await browser?.close();
  await fleet?.[Symbol.asyncDispose]();
});

type Host = { readonly url: string; [Symbol.dispose](): void };

/** Real apps, which have a page of their own beside the dashboard. */
const hosts: Record<string, (path: string) => Server> = {
  Express: (path) => {
    const app = express();
    app.use(express.json());
    app.get("/login", (_, response) => void response.send("<h1>Sign in here</h1>"));
    app.use(path, ops.node);
    return createServer(app);
  },
  Hono: (path) => {
    const app = new Hono();
    app.get("/login", (c) => c.html("<h1>Sign in here</h1>"));
    app.all(`${path.replace(/\/$/, "")}/*`, mount(ops.fetch));
    const listener = getRequestListener(app.fetch);
    return createServer((incoming, outgoing) => void listener(incoming, outgoing));
  },
};

async function start(make: (path: string) => Server, path: string): Promise<Host> {
  const server = make(path);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.dispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

const as = (who: string): BrowserContextOptions => ({ extraHTTPHeaders: { cookie: who } });
const statusOf = async (taskId: string) => (await fleet.flotilla.tasks.get(taskId))?.status;

describe.each(Object.entries(hosts))("in an app of %s", { timeout: limitMs }, (_, make) => {
  test.each(["/", "/ops", "/a/b/"])(
    "at %s: pages, deep links, reload, an act, and what is live",
    async (path) => {
      using host = await start(make, path);
      const at = host.url + path.replace(/\/$/, "");
      const failed = await fleet.put("broken", {}, "failed");
      const tab = await openTab(browser, at, as("who=ada"));
      const { page } = tab;
      await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
      await page.getByText("ada, operator").waitFor();
      await page.getByRole("navigation").getByRole("link", { name: "Tasks" }).click();
      await page.waitForURL(`${at}/tasks`);
      await page.goto(`${at}/tasks/${failed}`);
      await page.getByRole("heading", { level: 1, name: "broken" }).waitFor();
      await page.reload();
      await page.getByText("the recipient is unknown").first().waitFor();
      await page.getByRole("button", { name: "Retry" }).click();
      await page
        .getByRole("dialog", { name: "Retry this task?" })
        .getByRole("button", { name: "Retry" })
        .click();
      await page.getByRole("status").getByText("The task waits to run again.").waitFor();
      const { entries } = await fleet.flotilla.audit.list({ action: "tasks.retry" });
      expect(entries[0]).toMatchObject({ actor: "user/ada", subject: failed });

      await page.goto(`${at}/tasks?name=unhandled-${path.length}`);
      await page.getByRole("heading", { level: 1, name: "Tasks" }).waitFor();
      await fleet.flotilla.enqueue(`unhandled-${path.length}`, null as never);
      await page
        .getByRole("link", { name: `unhandled-${path.length}` })
        .first()
        .waitFor();
      expect(tab.outside).toEqual([]);
      await leave(tab);
    },
  );
});

describe("mounted in an app", { timeout: limitMs }, () => {
  test("works where a proxy takes off a prefix before the app does", async () => {
    using host = await start(hosts["Express"]!, "/ops");
    const proxy = await startStripping("/intern", host.url);
    const tab = await openTab(browser, `${proxy.url}/ops`, as("who=ada"));
    await tab.page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await tab.page.getByRole("navigation").getByRole("link", { name: "Failures" }).click();
    await tab.page.waitForURL(`${proxy.url}/ops/failures`);
    await tab.page.reload();
    await tab.page.getByRole("heading", { level: 1, name: "Failures" }).waitFor();
    expect(tab.outside).toEqual([]);
    await leave(tab);
    proxy.close();
  });

  test("shows a viewer no act, and leads strangers to the app's own sign-in", async () => {
    using host = await start(hosts["Hono"]!, "/ops");
    const failed = await fleet.put("broken", {}, "failed");
    const tab = await openTab(browser, `${host.url}/ops/tasks/${failed}`, as("who=grace"));
    await tab.page.getByText("grace, viewer").waitFor();
    expect(await tab.page.getByRole("button", { name: "Retry" }).count()).toBe(0);
    // The app signs her out while the page is open: it stays, and its link leads to the app.
    isSignedOut = true;
    await tab.page.getByRole("alert").getByText("The sign-in has ended.").waitFor();
    await tab.page.getByRole("link", { name: "Sign in again" }).click();
    await tab.page.getByRole("heading", { level: 1, name: "Sign in here" }).waitFor();
    expect(new URL(tab.page.url()).pathname).toBe("/login");
    isSignedOut = false;
    await leave(tab);
    expect(await statusOf(failed)).toBe("failed");
  });

  test("says what to do where its files aren't found, instead of nothing", async () => {
    const app = express();
    // Only the page is passed on, and nothing below it.
    app.get("/ops", ops.node);
    using host = await start(() => createServer(app), "/ops");
    const tab = await openTab(browser, `${host.url}/ops`, as("who=ada"));
    await tab.page.getByText("The files of the dashboard are not found").waitFor();
    await expectSoon(() => tab.page.getByText("slash at its end").isVisible(), true);
    await tab.context.close();
  });
});
