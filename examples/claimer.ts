// Your own loop: claim tasks, and say how each ended. Fenced like everything else.
// prints: hello ada (attempt 1): fails, stored
// prints: hello ada (attempt 2): done, stored
// prints: in the end: { greeted: 'ada' }
import { connect, startClaimer } from "flotilla";

const store = "sqlite:claimer.db";
await using claimer = await startClaimer({ store, names: ["greet"], backoff: { baseMs: 10 } });
await using flotilla = connect(store);
const { taskId } = await flotilla.enqueue("greet", { name: "ada" });

while ((await flotilla.tasks.get(taskId))?.status !== "completed") {
  for (const claim of await claimer.claim(10)) {
    const { name } = claim.input as { name: string };
    const said =
      claim.attempt === 1
        ? await claimer.fail(claim, new Error("the line was busy"))
        : await claimer.complete(claim, { greeted: name });
    const how = claim.attempt === 1 ? "fails" : "done";
    console.log(`hello ${name} (attempt ${claim.attempt}): ${how}, ${said}`);
  }
  await new Promise((resolve) => setTimeout(resolve, 10));
}
console.log("in the end:", await flotilla.waitFor(taskId));
