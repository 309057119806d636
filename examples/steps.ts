// A task that fails behind its second step: the next attempt doesn't do again what is stored.
// prints: find tides
// prints: read moon
// prints: read sun
// prints: round 1
// prints: attempt 2
// prints: round 2
// prints: moon, sun: improved twice
import { startPod, task } from "flotilla";

let failed = false;

const digest = task("digest", { backoff: { baseMs: 10 } }, async ({ step, attempt, input }) => {
  if (attempt > 1) console.log(`attempt ${attempt}`);
  const urls = await step("find", () => {
    console.log(`find ${input as string}`);
    return ["moon", "sun"];
  });
  const texts = await step.forEach("read", urls, { key: (url) => url, atOnce: 1 }, (url) => {
    console.log(`read ${url}`);
    return url;
  });
  return step.loop("improve", { rounds: 0 }, async ({ rounds }, round) => {
    if (rounds === 1 && !failed) {
      failed = true;
      throw new Error("the pod, the deploy or the network");
    }
    await round.step("model", () => console.log(`round ${rounds + 1}`));
    if (rounds === 1) return round.done(`${texts.join(", ")}: improved twice`);
    return { rounds: rounds + 1 };
  });
});

await using pod = await startPod({ store: "sqlite:steps.db", use: [digest] });
console.log(await pod.waitFor(await pod.enqueue(digest, "tides")));
