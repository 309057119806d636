import { cancel, flow, schedule } from "flotilla";
import { z } from "zod";

const config = "examples/demo/flotilla.config.ts";
const patienceMs = 5 * 60_000;

/** Goes on once a person has approved it. Until then it holds no memory and no slot, only its row. */
export const order = flow("order", { version: 1, input: z.object({ item: z.string() }) })
  .to("reserve", ({ input, runId, log }) => {
    const command = `npx flotilla runs signal ${runId} approval --config ${config}`;
    log.info({}, `an order of ${input.item} waits for you; to approve it: ${command}`);
    return { shelf: Math.ceil(Math.random() * 20) };
  })
  .signal("approval", { timeoutMs: patienceMs, onTimeout: { value: "nobody" } })
  .to("ship", ({ state }) => {
    if (state.approval === "nobody") throw cancel("nobody has approved it");
    return { parcel: `from shelf ${state.shelf}` };
  })
  .end();

/** A schedule that orders something three times a minute. */
export const orders = schedule("orders", {
  task: order,
  input: { item: "a book" },
  everyMs: 20_000,
});
