// Cancel from anywhere: the handler's signal fires on whichever pod runs it.
// prints: progress: {"step":1}
// prints: cancelling
// prints: cancelled
import { setTimeout as delay } from "node:timers/promises";
import { connect, startPod, task } from "flotilla";

const long = task("long", {}, async ({ signal, progress }) => {
  progress({ step: 1 });
  await delay(60_000, undefined, { signal });
});

await using _pod = await startPod({ store: "sqlite:cancel.db", use: [long] });

// Another process would do the same through its own connection.
await using flotilla = connect("sqlite:cancel.db");
const { taskId } = await flotilla.enqueue(long, null);
let latest = await flotilla.tasks.get(taskId);
while (latest?.progress == null) {
  await delay(50);
  latest = await flotilla.tasks.get(taskId);
}
console.log(`progress: ${JSON.stringify(latest.progress)}`);
console.log(await flotilla.tasks.cancel(taskId));
console.log((await flotilla.tasks.settled(taskId)).status);
