// A contract that both sides import: the producer enqueues, a pod elsewhere does the work.
// prints: enqueued once: true, false
// prints: { words: 3 }
import { connect, startPod, task } from "flotilla";
import { z } from "zod";

// contracts.ts: no handler, so a web process can import it without the code of the work.
const summarize = task("summarize", {
  input: z.object({ text: z.string() }),
  output: z.object({ words: z.number() }),
});

// The web process. It neither claims nor runs anything.
await using flotilla = connect("sqlite:producer.db");
const first = await flotilla.enqueue(summarize, { text: "a b c" }, { key: "page-1" });
const again = await flotilla.enqueue(summarize, { text: "a b c" }, { key: "page-1" });
console.log(`enqueued once: ${first.created}, ${again.created}`);

// The worker, usually another process.
const summarizer = summarize.handle({ attempts: 5 }, async ({ input }) => ({
  words: input.text.split(" ").length,
}));
await using _pod = await startPod({ store: "sqlite:producer.db", use: [summarizer] });

console.log(await flotilla.waitFor(first));
