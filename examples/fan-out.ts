// Fan-out and fan-in: one task per page, and one that runs when all of them have ended.
// prints: report: 3 pages, 9 words, 1 page couldn't be read
import { abort, connect, startPod, task } from "flotilla";
import { z } from "zod";

const site: Record<string, string> = {
  "/": "work that survives",
  "/docs": "crashes and deploys",
  "/about": "made of rows",
};

const read = task(
  "read",
  { input: z.object({ path: z.string() }), output: z.object({ words: z.number() }) },
  async ({ input }) => {
    const page = site[input.path];
    if (page === undefined) throw abort(`there is no page ${input.path}`);
    return { words: page.split(" ").length };
  },
);

const report = task("report", { output: z.string() }, async ({ parents }) => {
  const pages = await parents();
  const words = pages.flatMap((page) =>
    page.status === "completed" ? [(page.result as { words: number }).words] : [],
  );
  const total = words.reduce((sum, each) => sum + each, 0);
  const missing = pages.length - words.length;
  return `${words.length} pages, ${total} words, ${missing} page couldn't be read`;
});

await using flotilla = connect("sqlite:fan-out.db");
const paths = [...Object.keys(site), "/gone"];
const pages = await flotilla.enqueueMany(
  read,
  paths.map((path) => ({ path })),
);
// Without `afterFailed: "run"` the report would fail with the first page that does.
const wanted = await flotilla.enqueue(report, null, { after: pages, afterFailed: "run" });

await using _pod = await startPod({ store: "sqlite:fan-out.db", use: [read, report] });
console.log("report:", await flotilla.waitFor(wanted));
