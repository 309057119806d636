import { agent, type Config, flow, schedule, task, throttle } from "../../src/index.ts";

/** What the pods of this bench run: a little of everything that a page shows. */

/** The names of the flows whose runs fill the store. */
export const flowNames = ["order", "refund", "import", "report", "renewal"] as const;

/** A task that ends at once, of which hundreds a second make a page busy. */
export const tickName = "tick";

const model = throttle("model");
const monthMs = 30 * 86_400_000;

export function benchFleet(): Pick<Config, "use" | "schedules" | "retentionMs" | "dataDir"> {
  const mail = task("mail", {}, async ({ input, step }) => {
    const greeting = await step("greet", () => `Dear ${JSON.stringify(input)}`);
    return { greeting, sent: true };
  });
  const broken = task("broken", { attempts: 3, backoff: { baseMs: 1 } }, () => {
    throw new Error("the recipient is unknown");
  });
  const summary = task("summary", { throttle: model }, () => "short");
  const tick = task(tickName, {}, () => {});
  const flows = flowNames.map((name) =>
    flow(name, { version: 1 })
      .to("reserve", () => ({ shelf: 7 }))
      .signal("approval", {})
      .to("ship", () => ({ parcel: "from shelf 7" }))
      .end(),
  );
  const echo = agent("echo", async function* () {
    yield "The answer to what was asked, in one sentence.";
  });
  return {
    use: [mail, broken, summary, tick, ...flows, echo],
    schedules: [schedule("nightly", { name: "mail", input: { to: "ada" }, pattern: "0 3 * * *" })],
    // What fills the store is as old as it says, and must stay.
    retentionMs: monthMs,
    dataDir: false,
  };
}
