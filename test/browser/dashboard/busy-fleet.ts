import { task } from "flotilla";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { startDashboard } from "./dashboard-server.ts";

/** A fleet with something to do and something to mend, for pictures. */
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
  const server = await startDashboard({ use: [summarize, invoice, embed] });
  const { flotilla } = server;
  for (let at = 0; at < 40; at++)
    await flotilla.enqueue("summarize", { url: `https://example.org/reports/${at}` } as never);
  await server.put("summarize", { url: "https://example.org/annual" }, "completed");
  for (const customer of ["c17", "c18", "c21", "c40"])
    await server.put("send-invoice", { customer, total: 129.5 }, "failed");
  for (let at = 0; at < 3; at++) await server.put("embed", { chunk: at }, "failed");
  await server.put("send-invoice", { customer: "c99", total: 12 }, "failed");
  await Promise.all([1, 2, 3].map(() => server.put("gated", { minutes: 20 }, "claimed")));
  await flotilla.enqueueMany("reindex", [1, 2, 3, 4, 5] as never);
  await flotilla.enqueueMany("mail", [1, 2, 3] as never, { delayMs: 3_600_000 });
  await flotilla.runs.start("order", null as never);
  await until("the run waits", async () => {
    const { overview } = (await (await fetch(server.url)).json()) as {
      overview: { waiting: unknown[] };
    };
    return overview.waiting.length === 1;
  });
  return {
    url: server.url,
    pages: {
      overview: { path: "/", text: "No pod has a handler for reindex" },
      tasks: { path: "/tasks", text: "no live pod has a handler for it" },
      failures: { path: "/failures", text: "429: the model takes no more requests" },
    },
    async [Symbol.asyncDispose]() {
      server.open();
      await server[Symbol.asyncDispose]();
    },
  };
}
