import { DatabaseSync } from "node:sqlite";
import { flow, task, throttle } from "flotilla";
import { guide } from "../../../examples/demo/agents.ts";
import { summary } from "../../../examples/demo/model.ts";
import { librarian, prices } from "../../../examples/demo/visitors.ts";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { countDurationOf, countOf, encodeCounts, type Tally } from "../../../src/series/counts.ts";
import { createRecorder } from "../../../src/series/recorder.ts";
import { startDashboard } from "./dashboard-server.ts";

const minuteMs = 60_000;
const shownMinutes = 90;

/** A fleet with something to do and something to mend on every page, for pictures. */
export async function busyFleet() {
  const summarize = task("summarize", {}, async ({ input, progress, step }) => {
    progress({ pages: 12, of: 12 });
    const text = await step("fetch", () => "12 pages");
    const summary = await step("model", () => `A summary of ${text}`);
    return { summary, input };
  });
  const invoice = task("send-invoice", { attempts: 3, backoff: { baseMs: 5 } }, ({ input }) => {
    const { customer } = input as { customer: string };
    throw new Error(`the address of customer ${customer} is unknown`);
  });
  const embed = task("embed", { attempts: 1 }, () => {
    throw new Error("429: the model takes no more requests");
  });
  const api = throttle("payments");
  const pay = task("pay", { throttle: api }, async () => ({ paid: true }));
  let press = () => {};
  const pressed = new Promise<void>((resolve) => (press = resolve));
  const publish = flow("publish", { version: 2 })
    .to("draft", () => ({ words: 1_200 }))
    .to("illustrate", { attempts: 4, backoff: { baseMs: 5 } }, ({ attempt }) => {
      if (attempt === 1) throw new Error("the illustrator takes no more requests");
      return { pictures: 3 };
    })
    .signal("review", { timeoutMs: 2 * 24 * 3_600_000 })
    .to("print", () => pressed)
    .to("ship", () => ({ parcel: "on its way" }))
    .end();
  const server = await startDashboard({
    use: [summarize, invoice, embed, summary, pay, publish, librarian, guide],
    prices,
  });
  const { flotilla, pod } = server;
  writeSeries(server.path, pod.podId);

  const pages = Array.from({ length: 60 }, (_, page) => ({ page: `page ${page}` }));
  await flotilla.enqueueMany(summary, pages);
  for (let at = 0; at < 40; at++)
    await flotilla.enqueue("summarize", { url: `https://example.org/reports/${at}` } as never);
  const shown = await server.put("summarize", { url: "https://example.org/annual" }, "completed");
  await server.put("pay", { order: 17 }, "completed");
  for (const customer of ["c17", "c18", "c21", "c40"])
    await server.put("send-invoice", { customer, total: 129.5 }, "failed");
  for (let at = 0; at < 3; at++) await server.put("embed", { chunk: at }, "failed");
  await server.put("send-invoice", { customer: "c99", total: 12 }, "failed");
  await Promise.all([1, 2, 3].map(() => server.put("gated", { minutes: 20 }, "claimed")));
  await flotilla.enqueueMany("reindex", [1, 2, 3, 4, 5] as never);
  await flotilla.enqueueMany("mail", [1, 2, 3] as never, { delayMs: 3_600_000 });
  await flotilla.tasks.limits.set("tenant/acme", 5);
  await flotilla.tasks.pause("reindex");
  for (const name of ["gated", "reindex"])
    await flotilla.enqueue(name, { tenant: "acme" } as never, { tenant: "acme" });

  const runs = await Promise.all(
    ["Tides", "Knots", "Sails", "Winds", "Charts"].map((title) =>
      flotilla.runs.start("publish", { title }, { key: `book ${title}` }),
    ),
  );
  await flotilla.runs.start("order", null as never);
  await until("all runs wait", async () => (await flotilla.approvals()).approvals.length >= 6);
  const [first, second] = runs;
  for (const { runId } of [first!, second!])
    await flotilla.runs.signal(runId, "review", { approved: true });

  await flotilla.schedules.put("nightly-report", {
    name: "summarize",
    input: { url: "https://example.org/today" },
    pattern: "0 3 * * *",
    zone: "Europe/Berlin",
  });
  await flotilla.schedules.put("every-minute", { name: "pay", everyMs: minuteMs });
  for (let at = 0; at < 3; at++) await flotilla.schedules.fire("nightly-report");
  await flotilla.schedules.pause("every-minute");
  await flotilla.throttles.pin("payments", 4);

  const chat = await pod.sessions.create([librarian, guide], {
    sessionId: "visit-of-ada",
    user: "ada",
    metadata: { from: "the shop" },
  });
  await chat.ask("What is a sloop?");
  await chat.ask("Why do boats float?");
  await chat.ask("Order a coffee", { to: guide.name });
  for (const user of ["grace", "edsger", "barbara"]) {
    const other = await pod.sessions.create(guide, { user });
    await other.ask("Show me some code");
  }
  await until("the throttle has learned", async () => {
    const { throttles } = await flotilla.throttles.list();
    return throttles.some(({ name }) => name === "model");
  });

  return {
    url: server.url,
    /** The address of every page of the dashboard, by the name of its picture. */
    pages: {
      overview: "/",
      tasks: "/tasks",
      task: `/tasks/${shown}`,
      queues: "/queues",
      schedules: "/schedules",
      schedule: "/schedules/nightly-report",
      failures: "/failures",
      flows: "/flows",
      flow: "/flows/publish",
      run: `/runs/${first!.runId}`,
      throttles: "/throttles",
      throttle: "/throttles/model",
      sessions: "/sessions",
      session: `/sessions/${chat.sessionId}`,
      approvals: "/approvals",
      pods: "/pods",
      audit: "/audit",
    },
    async [Symbol.asyncDispose]() {
      press();
      server.open();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** What pods would have counted in the last hour and a half, as a morning with a rush has it. */
function writeSeries(path: string, podId: string): void {
  const recorder = createRecorder();
  const store = new DatabaseSync(path, { timeout: 30_000 });
  const insert = store.prepare(
    "insert or ignore into flotilla_series (span, at, subject, pod, counts) values (?, ?, ?, '', ?)",
  );
  const now = Math.floor(Date.now() / minuteMs) * minuteMs;
  store.exec("begin immediate");
  for (let minute = 1; minute <= shownMinutes; minute++) {
    const wave = 1 + Math.sin(minute / 9) * 0.4 + Math.sin(minute / 2.3) * 0.15;
    const isRush = minute > 30 && minute < 45;
    const busy = Math.round(wave * (isRush ? 180 : 90));
    const counted = (
      tally: Tally,
      outcome: string,
      count: number,
      waitMs: number,
      ranMs: number,
    ) => {
      countOf(tally, outcome, count);
      for (let each = 0; each < count; each++) {
        countDurationOf(tally.wait, waitMs * (0.5 + (each % 7) / 4));
        countDurationOf(tally.run, ranMs * (0.5 + (each % 5) / 3));
      }
    };
    const waitMs = isRush ? 2_400 : 130;
    counted(recorder.tally("task", "summarize"), "completed", busy, waitMs, 340);
    counted(recorder.tally("task", "summary"), "completed", Math.round(busy / 2), waitMs * 2, 320);
    counted(recorder.tally("task", "send-invoice"), "completed", Math.round(busy / 5), 40, 90);
    countOf(
      recorder.tally("task", "send-invoice"),
      "failed",
      isRush ? 9 : minute % 4 === 0 ? 1 : 0,
    );
    counted(recorder.tally("flow", "publish"), "completed", Math.round(busy / 20), 0, 42_000);
    counted(recorder.tally("agent", "librarian"), "completed", Math.round(busy / 15), 180, 2_600);
    const model = recorder.tally("throttle", "model", "");
    counted(model, "success", Math.round(busy / 2), waitMs, 310);
    countOf(model, "throttled", isRush ? 14 : minute % 6 === 0 ? 2 : 0);
    model.gauges["bound"] = isRush ? 4 : 6;
    model.gauges["inFlight"] = isRush ? 4 : Math.min(6, Math.round(wave * 4));
    model.gauges["waiting"] = isRush ? 38 : Math.round(wave * 3);
    const pod = recorder.tally("pod", podId);
    countOf(pod, "claimed", busy);
    countOf(pod, "ended", busy);
    pod.gauges["held"] = Math.round(wave * 8);
    pod.gauges["memoryBytes"] = 180 * 1024 ** 2 + minute * 100_000;
    for (const [subject, counts] of recorder.take())
      insert.run(minuteMs, now - minute * minuteMs, subject, encodeCounts(counts));
  }
  store.exec("commit");
  store.close();
}
