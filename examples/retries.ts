// A task that fails twice and then succeeds, and one that asks not to be tried again.
// prints: the third attempt worked
// prints: failed: this will never work
import { abort, startPod, task } from "flotilla";

const flaky = task("flaky", { attempts: 5, backoff: { baseMs: 10 } }, async ({ attempt }) => {
  if (attempt < 3) throw new Error("not yet");
  return "the third attempt worked";
});

const hopeless = task("hopeless", {}, async () => {
  throw abort("this will never work");
});

await using pod = await startPod({ store: "sqlite:retries.db", use: [flaky, hopeless] });
console.log(await pod.waitFor(await pod.enqueue(flaky, null)));

const { taskId } = await pod.enqueue(hopeless, null);
const ended = await pod.tasks.settled(taskId);
if (ended.status === "failed") console.log(`failed: ${ended.error.message}`);
