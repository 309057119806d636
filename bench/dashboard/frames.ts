import type { Browser, Page } from "playwright-core";
import { untilUseful } from "./pages.ts";

export type Frames = {
  /** The longest time between two frames. */
  readonly longestMs: number;
  /** How often the page kept its thread for more than 50 ms. */
  readonly longTasks: number;
  /** The page's heap after a collection, again and again, in MiB. */
  readonly heapMib: readonly number[];
};

/** What functions use that run in the page. */
declare function requestAnimationFrame(callback: (atMs: number) => void): void;
declare class PerformanceObserver {
  constructor(observed: (list: { getEntries(): readonly unknown[] }) => void);
  observe(options: { readonly entryTypes: readonly string[] }): void;
  disconnect(): void;
}

type Counted = { longestMs: number; longTasks: number };

const sampleEveryMs = 5_000;
// Loading and the first collections aren't what is measured.
const warmMs = 5_000;

/** Looks at a page for some time: how smoothly it goes on, and whether it grows. */
export async function watchFrames(
  browser: Browser,
  url: string,
  { forMs, progress }: { readonly forMs: number; readonly progress: (what: string) => void },
): Promise<Frames> {
  const context = await browser.newContext({ viewport: { width: 1_280, height: 800 } });
  try {
    const page = await context.newPage();
    await page.goto(url, { waitUntil: "commit" });
    await untilUseful(page);
    await page.waitForTimeout(warmMs);
    const heap = await heapOf(page);
    const heapMib = [await heap()];
    const rounds = Math.max(2, Math.round(forMs / sampleEveryMs));
    let longestMs = 0;
    let longTasks = 0;
    for (let round = 1; round <= rounds; round++) {
      await countFrames(page);
      await page.waitForTimeout(sampleEveryMs);
      const counted = await page.evaluate(() =>
        (globalThis as unknown as { stopFrames(): Counted }).stopFrames(),
      );
      longestMs = Math.max(longestMs, counted.longestMs);
      longTasks += counted.longTasks;
      // A collection stops the page, so it comes while no frame is counted.
      heapMib.push(await heap());
      progress(
        `dashboard.frames, ${round} of ${rounds}: longest ${counted.longestMs.toFixed(0)} ms, heap ${heapMib.at(-1)!.toFixed(1)} MiB`,
      );
    }
    return { longestMs, longTasks, heapMib };
  } finally {
    await context.close();
  }
}

async function heapOf(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.enable");
  return async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    return usedSize / 2 ** 20;
  };
}

async function countFrames(page: Page): Promise<void> {
  await page.evaluate(() => {
    const counted: Counted = { longestMs: 0, longTasks: 0 };
    let isOver = false;
    let lastMs = performance.now();
    const frame = (atMs: number) => {
      counted.longestMs = Math.max(counted.longestMs, atMs - lastMs);
      lastMs = atMs;
      if (!isOver) requestAnimationFrame(frame);
    };
    requestAnimationFrame((atMs) => {
      lastMs = atMs;
      requestAnimationFrame(frame);
    });
    const observer = new PerformanceObserver((list) => {
      counted.longTasks += list.getEntries().length;
    });
    observer.observe({ entryTypes: ["longtask"] });
    const stopFrames = () => {
      isOver = true;
      observer.disconnect();
      return counted;
    };
    Object.assign(globalThis, { stopFrames });
  });
}
