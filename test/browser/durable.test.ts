import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, BrowserContext } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createClient } from "../../src/client/index.ts";
import { textOf } from "../../src/protocol/message.ts";
import { built } from "../built.ts";
import { type Running, start } from "../command.ts";
import { launch, leave, openContext, patienceMs } from "./browser.ts";
import { firstWords, lastCount, type Order, secondWords, wordMs } from "./durable-order.ts";
import { expectSoon } from "./expect-soon.ts";
import { builtPage } from "./page-build.ts";

const limitMs = 300_000;
const startMs = 120_000;
/** A lost pod is noticed after seconds, and the rest of the answer takes as long as the machine is busy. */
const goesOnMs = 150_000;
/** Words of a call are kept each second, and a write takes its time: what is said in two seconds. */
const maxLostWords = Math.ceil(2_000 / wordMs);
const finished = firstWords + secondWords;
const config = built.program(join(import.meta.dirname, "durable-process.ts"));

let browser: Browser;
let folder: string;
let url: string;
const processes = new Set<Running>();

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-durable-"));
  const [seven, six] = [await builtPage("durable"), await builtPage("durable-6")];
  browser = await launch();
  url = (await serve("pages", { "/7": seven, "/6": six })).url;
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await Promise.all([...processes].map((each) => end(each, "SIGKILL")));
  rmSync(folder, { recursive: true, force: true });
});

/** A process on the one store: it serves pages, or makes answers. */
async function serve(role: "pages" | "agent", pages: Record<string, string> = {}) {
  const env = { ROLE: role, PAGES: JSON.stringify(pages), GATES: folder };
  const flags = ["--config", config, "--store", `sqlite:${join(folder, "chat.db")}`];
  const args = ["serve", "--log-level", "warn", "--port", "0", ...flags];
  const running = start(args, { cwd: folder, env });
  processes.add(running);
  const said = await Promise.race([
    until("it listens", () => / on (http\S+)/.exec(running.output.stdout)?.[1], startMs),
    running.ended,
  ]);
  if (typeof said !== "string") throw new Error(`the ${role} process ended: ${said.stderr}`);
  return { running, url: said };
}

async function end(running: Running, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
  running.child.kill(signal);
  await running.ended;
  processes.delete(running);
}

/** Something that a page has shown and then no longer. */
type Loss = {
  /** Whether it was gone at the end of a task, when a page may be painted, or only within one. */
  readonly level: "task" | "change";
  readonly from: number;
  readonly lost: string;
  readonly words: number;
};

type Watched = { readonly losses: Loss[]; readonly mostAnswers: number };

/** Looks at the answer with every change of the page. */
function watchAnswer(): void {
  const watched = { losses: [] as Loss[], mostAnswers: 0 };
  const last = { change: "", task: "" };
  const answers = () => [...document.querySelectorAll('article[data-role="assistant"]')];
  const look = (level: Loss["level"]): void => {
    watched.mostAnswers = Math.max(watched.mostAnswers, answers().length);
    const texts = [...(answers().at(-1)?.querySelectorAll("p") ?? [])];
    const text = texts.map((each) => each.textContent).join("");
    const before = last[level];
    last[level] = text;
    let from = 0;
    while (from < before.length && before[from] === text[from]) from++;
    if (from < before.length) {
      const lost = before.slice(from);
      const words = lost.trim().split(/\s+/).length;
      watched.losses.push({ level, from, lost: lost.slice(0, 60), words });
    }
  };
  const nextTask = new MessageChannel();
  nextTask.port1.addEventListener("message", () => look("task"));
  nextTask.port1.start();
  new MutationObserver(() => {
    look("change");
    nextTask.port2.postMessage(null);
  }).observe(document, { subtree: true, childList: true, characterData: true });
  Object.assign(window, { watched });
}

type Tab = Awaited<ReturnType<typeof openTab>>;

async function openTab(context: BrowserContext, sdk: "6" | "7", query: string, chat: string) {
  const page = await context.newPage();
  await page.addInitScript(watchAnswer);
  await page.goto(`${url}/${sdk}/${query}#${chat}`);
  const answer = page.locator('article[data-role="assistant"]');
  const box = page.getByRole("textbox", { name: "Message" });
  return {
    sdk,
    page,
    async say(order: Order) {
      await box.fill(JSON.stringify(order));
      await box.press("Enter");
    },
    texts: () => answer.allTextContents(),
    /** What it shows of each part. */
    parts: () =>
      answer.locator("> *").evaluateAll((all) =>
        all.map((each) => {
          const { part, state } = (each as HTMLElement).dataset;
          return part === undefined ? ["text", each.textContent] : [part, state];
        }),
      ),
    shows: (text: string) => answer.getByText(text).first().waitFor(),
    status: () => page.getByRole("status").innerText(),
    watched: () => page.evaluate(() => (window as unknown as { watched: Watched }).watched),
  };
}

/** A chat in three tabs whose answer is under way, in a process that can be ended. */
async function answering(sender: "6" | "7", order: Omit<Order, "chat">) {
  const chat = `chat-${Math.random().toString(36).slice(2)}`;
  const ada = await openContext(browser);
  const { context } = ada;
  const first = await serve("agent");
  const own = await openTab(context, sender, sender === "7" ? "?plain" : "", chat);
  await own.say({ chat, ...order });
  await own.shows(firstWords.trim());
  const tabs = [own, await openTab(context, "7", "", chat), await openTab(context, "6", "", chat)];
  for (const tab of tabs) await tab.shows(firstWords.trim());
  const places = () => {
    const path = join(folder, `${chat}.places`);
    return existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
  };
  const open = () => writeFileSync(join(folder, `${chat}.open`), "");
  const second = await serve("agent");
  return {
    own,
    /** Waits until the answer is at this place, and the pages show what is before it. */
    async reaches(place: string): Promise<void> {
      await until(`the answer is at ${place}`, () => places().includes(place), patienceMs);
      for (const tab of tabs) await expectSoon(tab.texts, [finished]);
    },
    open,
    /** Ends the process, lets the answer go on, and waits until all pages show it as it is stored. */
    async goesOn(signal: "SIGKILL" | "SIGTERM") {
      await end(first.running, signal);
      open();
      const late = await openTab(context, "7", "", chat);
      const all = [...tabs, late];
      for (const tab of all) {
        await until("it has ended", async () => (await tab.status()) === "ready", goesOnMs);
      }
      const { entries } = await createClient({ url }).sessions.entries(chat, { limit: 100 });
      expect(entries.map(({ role, outcome }) => [role, outcome])).toEqual([
        ["user", undefined],
        ["assistant", "completed"],
      ]);
      const text = textOf(entries[1]!);
      const parts = entries[1]!.parts.map((part) => [
        part.type,
        part[part.type === "text" ? "text" : "state"] ?? "",
      ]);
      for (const tab of all) await expectSoon(tab.parts, parts as string[][]);
      const seen = await Promise.all(tabs.map(async (tab) => ({ tab, ...(await tab.watched()) })));
      for (const { mostAnswers } of seen) expect(mostAnswers).toBe(1);
      await end(second.running, "SIGKILL");
      return { text, seen, close: () => leave(ada) };
    },
  };
}

/** With the AI SDK 6 an answer that has to go back is shown anew, within one task of the page. */
const lossesOf = ({ tab, losses }: { tab: Tab; losses: readonly Loss[] }) =>
  losses.filter(({ level }) => tab.sdk === "7" || level === "task");

const attemptsIn = (text: string) => [...text.matchAll(/(\d)-\d+ /g)].map(([, each]) => each);
const numbersIn = (text: string) =>
  [...text.matchAll(/\d-(\d+) /g)].map(([, each]) => Number(each));
const allNumbers = Array.from({ length: lastCount }, (_, at) => at + 1);

// Tabs of both releases of the AI SDK look at every answer, and one of them asks for it: a plain `useChat`
// of 7, or a followed one of 6.
describe("the page of a durable agent", { timeout: limitMs }, () => {
  test.each([
    ["between two steps", "call 3", "6"],
    ["in a tool", "book", "7"],
  ] as const)("loses nothing where the agent's process is killed %s", async (_, place, sender) => {
    const answer = await answering(sender, { holds: place });
    await answer.reaches(place);
    const { text, seen, close } = await answer.goesOn("SIGKILL");
    expect(text.startsWith(finished)).toBe(true);
    expect(numbersIn(text)).toEqual(allNumbers);
    expect(new Set(attemptsIn(text))).toEqual(new Set(["2"]));
    for (const each of seen) expect(lossesOf(each)).toEqual([]);
    await close();
  });

  test("loses the last words alone where the process is killed after 300 of the last call", async () => {
    const answer = await answering("7", { holds: "call 3", pausesAt: 400 });
    await answer.reaches("call 3");
    answer.open();
    await answer.own.shows("1-300 ");
    const { text, seen, close } = await answer.goesOn("SIGKILL");
    expect(text.startsWith(finished)).toBe(true);
    expect(numbersIn(text)).toEqual(allNumbers);
    // Both attempts have said a part of it.
    expect([...new Set(attemptsIn(text))]).toEqual(["1", "2"]);
    for (const each of seen) {
      const losses = lossesOf(each);
      expect(losses.filter(({ from }) => from < finished.length)).toEqual([]);
      const large = losses.filter(({ level, words }) => level === "task" && words > maxLostWords);
      expect(large).toEqual([]);
    }
    await close();
  });

  test("shows other words in the place of a call that is made again, and keeps finished steps", async () => {
    const order = { holds: "call 3", pausesAt: 200, interrupted: "again" };
    const answer = await answering("6", order);
    await answer.reaches("call 3");
    answer.open();
    await answer.own.shows("1-100 ");
    const { text, seen, close } = await answer.goesOn("SIGKILL");
    expect(text.startsWith(finished)).toBe(true);
    expect(numbersIn(text)).toEqual(allNumbers);
    expect(new Set(attemptsIn(text))).toEqual(new Set(["2"]));
    for (const each of seen) {
      const losses = lossesOf(each);
      expect(losses.length).toBeGreaterThan(0);
      expect(losses.filter(({ from }) => from < finished.length)).toEqual([]);
    }
    await close();
  });

  test("loses no word in a deploy, though the process may not wait for the call to end", async () => {
    const answer = await answering("7", { holds: "call 3", pausesAt: 440 });
    await answer.reaches("call 3");
    answer.open();
    await answer.own.shows("1-100 ");
    const { text, seen, close } = await answer.goesOn("SIGTERM");
    expect(text.startsWith(finished)).toBe(true);
    expect(numbersIn(text)).toEqual(allNumbers);
    expect([...new Set(attemptsIn(text))]).toEqual(["1", "2"]);
    for (const { losses } of seen) {
      expect(losses.filter(({ level }) => level === "task")).toEqual([]);
    }
    await close();
  });
});
