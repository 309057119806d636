import type { Browser, Page } from "playwright-core";
import type { Filled } from "./filler.ts";
import { flowNames } from "./fleet.ts";

/** Every page by its name here, with its address in a store that was filled. */
export const pages = {
  overview: () => "/",
  tasks: () => "/tasks",
  // A list that finds nothing looks as far back as it may.
  tasks_none: () => "/tasks?name=nothing&status=completed",
  task: ({ taskId }) => `/tasks/${taskId}`,
  queues: () => "/queues",
  schedules: () => "/schedules",
  failures: () => "/failures",
  failures_none: () => "/failures?name=nothing",
  flows: () => "/flows",
  flow: () => `/flows/${flowNames[0]}`,
  run: ({ runId }) => `/runs/${runId}`,
  throttles: () => "/throttles",
  sessions: () => "/sessions",
  session: ({ sessionId }) => `/sessions/${sessionId}`,
  approvals: () => "/approvals",
  pods: () => "/pods",
  audit: () => "/audit",
} satisfies Readonly<Record<string, (filled: Filled) => string>>;

export type PageName = keyof typeof pages;
export const pageNames = Object.keys(pages) as PageName[];

/** Lists by filters that match nothing, as the pages or their users may ask for them. */
export const emptyLists = {
  tasks_of_name: () => "/v1/tasks?name=nothing",
  tasks_of_tenant: () => "/v1/tasks?tenant=nothing",
  tasks_of_key: () => "/v1/tasks?key=nothing",
  tasks_failed: () => "/v1/tasks?status=failed&name=nothing",
  tasks_of_session: () => "/v1/tasks?session=nothing",
  runs_at: () => `/v1/runs?flow=${flowNames[0]}&at=nothing`,
  runs_of_tenant: () => "/v1/runs?tenant=nothing",
  sessions_of_user: () => "/v1/sessions?user=nothing",
  sessions_of_agent: () => "/v1/sessions?agent=nothing",
  approvals_of_tenant: () => "/v1/approvals?tenant=nothing",
  failures_of_name: () => "/v1/dlq/groups?name=nothing",
  audit_of_actor: () => "/v1/audit?actor=user/nothing",
  audit_of_actor_and_action: () => "/v1/audit?actor=key/ops&action=keys.create",
  series: () => "/v1/series?subject=task:nothing",
} satisfies Readonly<Record<string, () => string>>;

export const emptyListNames = Object.keys(emptyLists) as (keyof typeof emptyLists)[];

export type Loaded = {
  /** From the beginning of the navigation to a page that waits for nothing more. */
  readonly usefulMs: number;
  /** What it has asked of the server for that, in order, each once. */
  readonly asked: readonly string[];
};

/** What functions use that run in the page. */
declare const document: {
  querySelector(selector: string): { readonly textContent: string } | null;
};
declare function requestAnimationFrame(callback: () => void): void;

// After it is useful a page may still ask for what is out of sight.
const settleMs = 300;
const viewport = { width: 1_280, height: 800 };

/** Opens a page in a browser that has never seen it. */
export async function loadCold(browser: Browser, url: string, path: string): Promise<Loaded> {
  const context = await browser.newContext({ locale: "en-GB", viewport });
  try {
    const page = await context.newPage();
    const asked = new Set<string>();
    page.on("request", (request) => {
      const { pathname, search, origin } = new URL(request.url());
      const isAnswer = ["fetch", "xhr", "eventsource"].includes(request.resourceType());
      if (origin === url && request.method() === "GET" && isAnswer) asked.add(pathname + search);
    });
    await page.goto(url + path, { waitUntil: "commit" });
    const usefulMs = await untilUseful(page);
    await page.waitForTimeout(settleMs);
    return { usefulMs, asked: [...asked] };
  } finally {
    await context.close();
  }
}

/** When a page has its heading and nothing in it says that it loads, by the clock of the page. */
export async function untilUseful(page: Page): Promise<number> {
  const found = await page.evaluate(
    () =>
      new Promise<{ usefulMs: number } | { wrong: string }>((resolve) => {
        const steady = 3;
        let frames = 0;
        let sinceMs = 0;
        const look = () => {
          const failed = document.querySelector(".failed");
          if (failed) return resolve({ wrong: failed.textContent });
          const isThere = document.querySelector("h1") && !document.querySelector(".loading");
          if (!isThere) frames = 0;
          else if (frames++ === 0) sinceMs = performance.now();
          if (frames > steady) return resolve({ usefulMs: sinceMs });
          requestAnimationFrame(look);
        };
        look();
      }),
  );
  if ("wrong" in found) throw new Error(`${page.url()} says: ${found.wrong}`);
  return found.usefulMs;
}
