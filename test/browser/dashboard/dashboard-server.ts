import { readFileSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import type { AxeResults, RunOptions } from "axe-core";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { connect, type ConnectOptions, flow, task } from "flotilla";
import { systemClock } from "../../../src/base/clock.ts";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import type { Prices } from "../../../src/base/usage.ts";
import { startTestServer, type TestServer } from "../../../src/server/contract/test-server.ts";
import { createMetrics } from "../../../src/server/metrics/metrics.ts";
import { serve } from "../../../src/server/serve.ts";
import type { Usable } from "../../../src/runtime/handlers.ts";
import type { ServerConfig } from "../../../src/runtime/server-config.ts";
import { freePort } from "../../free-ports.ts";
import { openContext, type Watched } from "../browser.ts";
import { builtPage } from "../page-build.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** A pod and a server with the dashboard, on a store of their own. */
export type DashboardServer = TestServer & {
  /** Lets tasks of the name `gated` end. */
  open(): void;
  /** Makes tasks of the name `broken` succeed. */
  mend(): void;
  /** Stores a task and waits until it has this status. */
  put(name: string, input: unknown, status: string): Promise<string>;
};

export async function startDashboard({
  server = {},
  use = [],
  prices,
}: {
  server?: ServerConfig;
  use?: readonly Usable[];
  prices?: Prices;
} = {}): Promise<DashboardServer> {
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  let isMended = false;
  const mail = task("mail", {}, async ({ input, progress, step }) => {
    progress({ step: 1, of: 2 });
    const greeting = await step("greet", () => `Dear ${JSON.stringify(input)}`);
    return { greeting, sent: true };
  });
  const broken = task("broken", { attempts: 1 }, ({ input }) => {
    if (isMended) return "mended";
    throw new Error((input as { message?: string }).message ?? "the recipient is unknown");
  });
  const flaky = task("flaky", { attempts: 2, backoff: { baseMs: 0 } }, ({ attempt }) => {
    if (attempt === 1) throw new Error("not at once");
    return "at last";
  });
  const gated = task("gated", {}, async ({ signal }) => {
    await Promise.race([
      gate,
      new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason as Error)),
      ),
    ]);
  });
  const order = flow("order", { version: 1 }).signal("approval", {}).end();
  const found = await startTestServer({
    use: [mail, broken, flaky, gated, order, ...use],
    server,
    ...(prices && { prices }),
    maxPayloadBytes: 4 * 1024 ** 2,
    dashboardFolder: await builtPage("dashboard"),
  });
  return {
    ...found,
    open,
    mend: () => (isMended = true),
    async put(name, input, status) {
      const { taskId } = await found.flotilla.enqueue(name, input as never);
      await until(`${name} is ${status}`, async () => {
        const stored = await found.flotilla.tasks.get(taskId);
        return stored?.status === status;
      });
      return taskId;
    },
  };
}

/**
 * A server without a pod: tasks wait. On the same port it takes the place of one before: the system gives
 * that to no connection meanwhile.
 */
export async function serveWithoutPod(store: string, options: ConnectOptions = {}, at?: number) {
  const port = at ?? (await freePort());
  const flotilla = connect(store, { log: silentLogger, ...options });
  const server = await serve({
    flotilla,
    metrics: createMetrics(),
    isStopping: () => false,
    clock: systemClock,
    log: silentLogger,
    dashboardFolder: await builtPage("dashboard"),
    server: { host: "127.0.0.1", port },
  });
  const stop = async () => {
    await server.close();
    await flotilla.close();
  };
  return { ...server, flotilla, stop };
}

/** A proxy that takes a prefix off the path, as one in front of several servers does. */
export async function startStripping(
  prefix: string,
  target: string,
): Promise<{ readonly url: string; close(): void }> {
  const { hostname, port } = new URL(target);
  const server: Server = createServer((incoming, outgoing) => {
    const { method, headers, url = "/" } = incoming;
    if (!url.startsWith(`${prefix}/`)) return void outgoing.writeHead(404).end("not of the mount");
    const path = url.slice(prefix.length);
    const passed = request({ hostname, port, method, headers, path }, (answer) => {
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
    });
    passed.on("error", () => outgoing.destroy());
    incoming.pipe(passed);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const at = (server.address() as AddressInfo).port;
  return { url: `http://127.0.0.1:${at}${prefix}`, close: () => server.close() };
}

export type Tab = Watched & { readonly page: Page; readonly outside: string[] };

/** A tab on a page of the dashboard. Requests that leave the server are kept. */
export async function openTab(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Tab> {
  const watched = await openContext(browser, { locale: "en-GB", ...options });
  const page = await watched.context.newPage();
  const outside: string[] = [];
  const { origin } = new URL(url);
  page.on("request", (each) => {
    if (new URL(each.url()).origin !== origin) outside.push(each.url());
  });
  await page.goto(url);
  return { ...watched, page, outside };
}

/** What axe finds wrong with the page as it is. */
export async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(options: RunOptions): Promise<AxeResults> } }).axe.run({
      // What is right with thousands of nodes isn't told.
      resultTypes: ["violations"],
    }),
  );
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

/** Expects of the page that it shows this, sooner or later. */
export async function expectShown(found: Locator): Promise<void> {
  await found.waitFor();
}

/** Whether the page is wider than its window. */
export function isTooWide(page: Page): Promise<boolean> {
  return page.evaluate(
    () => document.documentElement.scrollWidth > document.documentElement.clientWidth,
  );
}
