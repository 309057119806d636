import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createClient } from "../../src/client/index.ts";
import { launch, leave, openContext } from "./browser.ts";
import { type ChatServer, startChatServer } from "./chat-server.ts";
import { expectSoon } from "./expect-soon.ts";
import { builtPage } from "./page-build.ts";
import { Panel, type PanelProps } from "./hooks/panel.ts";

const limitMs = 180_000;
let server: ChatServer;
let browser: Browser;
let props: PanelProps;
let folder: string;

beforeAll(async () => {
  folder = await renderedPage();
  browser = await launch();
  server = await startChatServer({ "/hooks": folder });
  const { sessions, tasks, runs } = server.program;
  const { sessionId } = await sessions.create({ agent: "script", users: ["ada"] });
  await server.program.session(sessionId).send("hello");
  const { taskId } = await tasks.enqueue("gated", { gate: "task" });
  const { runId } = await runs.start("asking", {});
  props = { sessionId, taskId, runId };
  server.program.close();
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

/** The page as a server sends it that renders React: built, and filled with what it shows at first. */
async function renderedPage(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-hooks-"));
  cpSync(await builtPage("hooks"), folder, { recursive: true });
  const client = createClient({ url: "http://127.0.0.1:9", user: "ada" });
  const ids = { sessionId: "s", taskId: "t", runId: "r" };
  const markup = renderToString(createElement(Panel, { client, ...ids }));
  expect(markup).toContain("session: idle 0");
  expect(client.connection.get()).toEqual({ status: "idle" });
  const index = join(folder, "index.html");
  const empty = '<div id="root"></div>';
  writeFileSync(
    index,
    readFileSync(index, "utf8").replace(empty, empty.replace("><", `>${markup}<`)),
  );
  return folder;
}

const lines = (page: Page): Promise<string[]> => page.getByRole("listitem").allInnerTexts();
const twice = (...each: string[]): string[] => [...each, ...each];

describe(
  "hooks in a page that was rendered on a server, under StrictMode",
  { timeout: limitMs },
  () => {
    test("take it over without a warning, follow everything once, and let go of it", async () => {
      const ada = await openContext(browser);
      const { context } = ada;
      const page = await context.newPage();
      const sent: string[] = [];
      page.on("websocket", (socket) =>
        socket.on("framesent", ({ payload }) => {
          const frames = [JSON.parse(String(payload))].flat() as { type: string }[];
          sent.push(...frames.map(({ type }) => type));
        }),
      );
      const looks: { path: string; atMs: number }[] = [];
      page.on("requestfinished", (request) => {
        const { pathname: path } = new URL(request.url());
        looks.push({ path, atMs: request.timing().startTime });
      });

      const query = new URLSearchParams({
        session: props.sessionId,
        task: props.taskId,
        run: props.runId,
      });
      await page.goto(`${server.url}/hooks/?${query}`);
      await expectSoon(
        () => lines(page),
        twice(
          "connection: open",
          "session: live 2",
          "inbox: live 1",
          "task: live claimed",
          "run: live open",
        ),
      );
      // The program that was there before may be leaving.
      await expectSoon(() => server.metric("flotilla_sockets"), 1);
      await expectSoon(() => server.metric("flotilla_session_subscribers"), 1);
      expect(sent.filter((type) => type !== "ping").toSorted()).toEqual(["inbox", "join"]);

      const looksAt = (path: string) => looks.filter((each) => each.path === path);
      for (const path of [`/v1/tasks/${props.taskId}`, `/v1/runs/${props.runId}`]) {
        await expectSoon(
          async () => looksAt(path).length,
          (count) => expect(count).toBeGreaterThan(3),
        );
        // By the browser's clock: two who look would come twice in a second.
        const gapsMs = looksAt(path).map(({ atMs }, at, all) => atMs - (all[at - 1]?.atMs ?? 0));
        expect(Math.min(...gapsMs.slice(1))).toBeGreaterThan(900);
      }

      server.open("task");
      await createClient({ url: server.url }).runs.signal(props.runId, "word", { by: "ada" });
      await expectSoon(
        () => lines(page),
        twice(
          "connection: open",
          "session: live 2",
          "inbox: live 1",
          "task: ended completed",
          "run: ended completed",
        ),
      );
      await page.getByRole("button", { name: "Hide" }).click();
      await expectSoon(() => server.metric("flotilla_session_subscribers"), 0);
      await expectSoon(() => server.metric("flotilla_sockets"), 0);
      await page.getByRole("button", { name: "Show" }).click();
      await expectSoon(() => server.metric("flotilla_session_subscribers"), 1);
      await expectSoon(
        async () => (await lines(page)).slice(0, 3),
        ["connection: open", "session: live 2", "inbox: live 1"],
      );
      await leave(ada);
    });
  },
);
