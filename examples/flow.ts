// An order that waits for somebody's approval, survives what happens meanwhile, and cleans up after itself.
// prints: book is reserved
// prints: the run waits for approval
// prints: charged 1999 cents, approved by ada
// prints: it ended as completed
// prints: parcel for book
import { flow, startPod } from "flotilla";
import { z } from "zod";

const order = flow("order", {
  version: 1,
  input: z.object({ item: z.string(), cents: z.number() }),
  output: z.object({ parcel: z.string() }),
})
  .to("reserve", ({ input }) => {
    console.log(`${input.item} is reserved`);
    return { reserved: true };
  })
  .signal("approval", { schema: z.object({ by: z.string() }), timeoutMs: 86_400_000 })
  .to("charge", { attempts: 5 }, ({ input, state }) => {
    console.log(`charged ${input.cents} cents, approved by ${state.approval.by}`);
  })
  .to("ship", ({ input }) => ({ parcel: `parcel for ${input.item}` }))
  .finally(({ outcome }) => {
    console.log(`it ended as ${outcome.type}`);
  })
  .end();

const config = { store: "sqlite:flow.db", use: [order] };
let runId: string;
{
  await using first = await startPod(config);
  ({ runId } = await first.runs.start(order, { item: "book", cents: 1_999 }, { key: "order-17" }));
  while ((await first.runs.get(runId))?.doing?.type !== "waiting_for_signal") {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  console.log("the run waits for approval");
}
// Another pod, maybe days and deploys later. The same key gives the same run.
await using second = await startPod(config);
const run = await second.runs.start(order, { item: "book", cents: 1_999 }, { key: "order-17" });
await second.runs.signal(run.runId, "approval", { by: "ada" });
const { parcel } = await second.runs.wait(run);
console.log(parcel);
