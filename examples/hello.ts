// One file, one task, one result.
// prints: { words: 4 }
import { startPod, task } from "flotilla";

const count = task("count", {}, async ({ input }: { input: { text: string } }) => ({
  words: input.text.split(" ").length,
}));

await using pod = await startPod({ store: "sqlite:hello.db", use: [count] });
const enqueued = await pod.enqueue(count, { text: "work that survives crashes" });
console.log(await pod.waitFor(enqueued));
