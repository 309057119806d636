import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { AxeResults } from "axe-core";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { built } from "../built.ts";
import { launch, leave, openContext } from "./browser.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const limitMs = 180_000;
let browser: Browser;
let server: ChildProcess;
let folder: string;
let url = "";

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-research-"));
  const config = join(built.examples, "research-agent/flotilla.config.ts");
  const store = `sqlite:${join(folder, "research.db")}`;
  const args = ["dev", "--config", config, "--port", "0", "--store", store];
  server = spawn(process.execPath, [built.command, ...args], {
    cwd: folder,
    // Long enough for a page that is late to show that the call waits for it.
    env: { ...process.env, SCAN_MS: "15000" },
  });
  let output = "";
  server.stdout!.on("data", (more) => (output += String(more)));
  await until("it listens", () => /listens on http\S+/.test(output));
  url = /listens on (http\S+)/.exec(output)![1]!;
  browser = await launch();
}, limitMs);
afterAll(async () => {
  await browser?.close();
  server.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

describe("the page of the research agent", { timeout: limitMs }, () => {
  test("shows what a call waits for, goes on when it has come, and asks for the approval", async () => {
    const ada = await openContext(browser);
    const page = await ada.context.newPage();
    await page.goto(`${url}/research/`);
    await page.getByLabel("A topic").fill("the moon");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("scan: waits for scan").waitFor();
    // A reload comes back to the same session, and misses nothing.
    await page.reload();
    await page.getByText('scan: {"pages":312,"of":"A history of the moon"}').waitFor();
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() =>
      (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
    );
    expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByText("That is all there is about the moon.").waitFor();
    expect(await page.getByText("publish: {").innerText()).toContain("About the moon");
    expect(await page.getByRole("button", { name: "Approve" }).count()).toBe(0);
    await leave(ada);
  });
});
