import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Browser } from "playwright-core";
import pg from "pg";
import { connect } from "flotilla";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { openStore } from "../../../src/store/open.ts";
import { type FleetStore, postgresStore } from "../../crash/stores.ts";
import { kept } from "../../upgrade/versions.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { startProxy } from "../proxy.ts";
import {
  type DashboardServer,
  expectShown,
  openTab,
  serveWithoutPod,
  startDashboard,
} from "./dashboard-server.ts";

const limitMs = 180_000;
let browser: Browser;

beforeAll(async () => {
  browser = await launch();
}, limitMs);
afterAll(() => browser?.close());

function temporaryFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-faults-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "test.db");
}

describe("a page that is open", { timeout: limitMs }, () => {
  let store: FleetStore;
  beforeAll(async () => {
    store = await postgresStore(inject("postgresUrl"));
  }, limitMs);
  afterAll(() => store?.remove());

  /** As an administrator of the database, on a connection that takes writes. */
  async function administer(...texts: readonly string[]): Promise<void> {
    const { pathname } = new URL(store.url);
    const client = new pg.Client({
      connectionString: Object.assign(new URL(inject("postgresUrl")), { pathname }).href,
      options: "-c default_transaction_read_only=off",
    });
    await client.connect();
    for (const text of texts) await client.query(text.replace("$database", pathname.slice(1)));
    await client.end();
  }
  const setReadOnly = (value: "on" | "off") =>
    administer(
      `alter database "$database" set default_transaction_read_only = ${value}`,
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()`,
    );

  test("goes on over a store that turns read-only, and an act there waits for a person to send it again", async () => {
    const server = await serveWithoutPod(store.url);
    const { taskId } = await server.flotilla.enqueue("mail", null as never);
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`);
    const { page } = tab;
    await page.getByRole("button", { name: "Cancel" }).click();
    await setReadOnly("on");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Cancel it" }).click();
    await dialog.getByRole("alert").getByText("read-only").waitFor();
    // What can be read is shown as before.
    await expectSoon(() => page.locator(".banner").count(), 0);
    await setReadOnly("off");
    const done = page.getByRole("status").getByText("The task is cancelled.");
    await dialog.getByRole("button", { name: "Cancel it" }).click();
    // The server's connections end one by one: an act that meets one of them is sent once more.
    await expectSoon(async () => {
      const isRefused = (await dialog.getByRole("alert").count()) > 0;
      if (isRefused) await dialog.getByRole("button", { name: "Cancel it" }).click();
      return done.count();
    }, 1);
    await expectShown(page.locator(".status", { hasText: "cancelled" }).first());
    const { entries } = await server.flotilla.audit.list({ action: "tasks.cancel" });
    expect(entries).toHaveLength(1);
    await leave(tab);
    await server.stop();
  });

  test("says that the store is away, keeps what it shows, and goes on when the store is back", async () => {
    const { port } = new URL(store.url);
    const proxy = await startProxy(() => Number(port));
    const through = Object.assign(new URL(store.url), { port: String(proxy.port) }).href;
    const server = await serveWithoutPod(through);
    await using direct = connect(store.url);
    await direct.enqueue("before", null as never);
    const tab = await openTab(browser, `${server.url}/tasks?status=pending`);
    const { page } = tab;
    await page.getByRole("row", { name: /before/ }).waitFor();
    proxy.block(true);
    const banner = page.getByRole("alert").filter({ hasText: "What is shown is as it was" });
    await banner.waitFor();
    await page.getByRole("row", { name: /before/ }).waitFor();
    await direct.enqueue("meanwhile", null as never);
    proxy.block(false);
    await page.getByRole("row", { name: /meanwhile/ }).waitFor();
    await expectSoon(() => page.getByRole("alert").count(), 0);
    expect(page.url()).toContain("/tasks?status=pending");
    await leave(tab);
    await server.stop();
    await proxy.close();
  });

  test("goes on when the server stops in the middle of its stream and is started again", async () => {
    const path = `sqlite:${temporaryFile()}`;
    const first = await serveWithoutPod(path);
    const { taskId } = await first.flotilla.enqueue("mail", null as never);
    const tab = await openTab(browser, "about:blank");
    const { page } = tab;
    const streaming = page.waitForResponse((answer) => answer.url().includes("/v1/watch?"));
    await page.goto(`${first.url}/tasks/${taskId}`);
    await streaming;
    await page.getByRole("button", { name: "Cancel" }).click();
    await first.stop();
    await page.getByText("The server can't be reached").waitFor();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Cancel it" }).click();
    await dialog.getByRole("alert").getByText("try again, which does it once").waitFor();
    const second = await serveWithoutPod(path, {}, first.port);
    await expectSoon(() => page.locator(".banner").count(), 0);
    await dialog.getByRole("button", { name: "Cancel it" }).click();
    await expectShown(page.getByRole("status").getByText("The task is cancelled."));
    await leave(tab);
    await second.stop();
  });

  test("says that the store is of an older schema and what to do, and goes on after that", async () => {
    const [path, older] = [temporaryFile(), temporaryFile()];
    const written = new DatabaseSync(older);
    for (const what of ["schema", "rows"] as const) written.exec(kept(5, "sqlite", what));
    written.close();
    const first = await serveWithoutPod(`sqlite:${path}`);
    const tab = await openTab(browser, `${first.url}/tasks`);
    const { page } = tab;
    await page.getByText("There are no tasks yet.").waitFor();
    await first.stop();
    // As after a restore of an older backup, by servers that don't migrate.
    const second = await serveWithoutPod(`sqlite:${older}`, { migrate: "check" }, first.port);
    const banner = page.getByRole("alert");
    await banner.getByText("flotilla migrate").first().waitFor();
    await page.goto(`${second.url}/tasks`);
    await banner.getByText("flotilla migrate").first().waitFor();
    await (await openStore(`sqlite:${older}`)).close();
    await page.getByRole("row").nth(1).waitFor();
    await expectSoon(() => page.getByRole("alert").count(), 0);
    await leave(tab);
    await second.stop();
  });
});

describe("two people", { timeout: limitMs }, () => {
  const spare = "a-key-that-does-not-expire";
  let server: DashboardServer;
  beforeAll(async () => {
    server = await startDashboard({
      server: { apiKeys: [{ key: spare, name: "ops", role: "operator" }] },
    });
  }, limitMs);
  afterAll(async () => {
    server?.open();
    await server?.[Symbol.asyncDispose]();
  });

  async function openAs(key: string, path: string) {
    const tab = await openTab(browser, server.url + path);
    await tab.page.waitForURL("**/sign-in?next=*");
    await signIn(tab.page, key);
    return tab;
  }
  const signIn = async (page: Awaited<ReturnType<typeof openTab>>["page"], key: string) => {
    await page.getByLabel("Key").fill(key);
    await page.getByRole("button", { name: "Sign in" }).click();
  };

  test("are asked to sign in again when a key expires, and come back to the same list", async () => {
    const { key, text } = await server.flotilla.keys.create({
      name: "shift",
      role: "operator",
      expiresAtMs: systemClock.now() + 3_600_000,
    });
    await server.put("mail", { to: "ada" }, "completed");
    const list = "/tasks?name=mail&status=completed";
    const tab = await openAs(text, list);
    const { page } = tab;
    await page.getByRole("row", { name: /mail/ }).first().waitFor();
    // An hour passes. Servers read keys anew whose version has fallen, as after a restore.
    const file = new DatabaseSync(server.path, { timeout: 30_000 });
    file
      .prepare("update flotilla_api_key set expires_at = ? where key_id = ?")
      .run(systemClock.now() - 1, key.keyId);
    file.exec("update flotilla_credential_version set version = version - 1");
    file.close();
    await page.getByRole("alert").getByText("The sign-in has ended.").waitFor();
    expect(await page.getByRole("row", { name: /mail/ }).count()).toBeGreaterThan(0);
    await page.getByRole("link", { name: "Sign in again" }).click();
    await signIn(page, spare);
    await page.waitForURL(`**${list}`);
    await expectShown(page.getByRole("row", { name: /mail/ }).first());
    await expectSoon(() => page.getByRole("alert").count(), 0);
    await leave(tab);
  });

  test("that act on one task at once get an answer each, and one act is done", async () => {
    const taskId = await server.put("broken", {}, "failed");
    server.mend();
    const before = (await server.flotilla.audit.list({ action: "tasks.retry" })).entries.length;
    const tabs = await Promise.all([1, 2].map(() => openAs(spare, `/tasks/${taskId}`)));
    for (const { page } of tabs) {
      await page.getByRole("button", { name: "Retry" }).click();
      await page.getByRole("dialog").waitFor();
    }
    await Promise.all(
      tabs.map(({ page }) =>
        page.getByRole("dialog").getByRole("button", { name: "Retry" }).click(),
      ),
    );
    const answers = await Promise.all(
      tabs.map(async ({ page }) => {
        const done = page.getByRole("status").getByText("The task waits to run again.");
        const refused = page.getByRole("alert").getByText("only failed and cancelled tasks can be");
        await done.or(refused).first().waitFor();
        return (await done.count()) > 0 ? "done" : "refused";
      }),
    );
    expect(answers.toSorted()).toEqual(["done", "refused"]);
    for (const { page } of tabs) {
      await page.keyboard.press("Escape");
      await page.locator(".status", { hasText: "completed" }).first().waitFor();
    }
    const { entries } = await server.flotilla.audit.list({ action: "tasks.retry" });
    expect(entries).toHaveLength(before + 1);
    for (const tab of tabs) await leave(tab);
  });
});
