// A support desk: a turn starts work that outlives it, and the work says in the session what came of it.
// prints: desk: I look it up, and have asked somebody about the refund.
// prints: lookup: order 17 was sent on Monday
// prints: the refund waits for approval
// prints: unread: ada 0, bob 2
import { agent, type Entry, flow, startPod, task, textOf } from "flotilla";
import { z } from "zod";

const lookup = task("lookup", {
  input: z.object({ sessionId: z.string(), order: z.number() }),
});
const refund = flow("refund", { version: 1, input: z.object({ order: z.number() }) })
  .signal("approval", { schema: z.object({ by: z.string() }) })
  .to("pay", ({ input, state }) => ({ paid: `${input.order}, approved by ${state.approval.by}` }))
  .end();

let runId = "";
const desk = agent("desk", async function* ({ sessionId, enqueue, start }) {
  // However often this turn is started over, there is one task and one run.
  await enqueue(lookup, { sessionId, order: 17 });
  ({ runId } = await start(refund, { order: 17 }));
  yield "I look it up, and have asked somebody about the refund.";
});

const looker = lookup.handle(async ({ input, taskId }) => {
  const found = `order ${input.order} was sent on Monday`;
  // The task's id as the message's: if it runs again, nothing is said twice.
  const chat = pod.sessions.open(input.sessionId);
  await chat.send(found, { id: taskId, role: "assistant", author: "lookup" });
});

const config = { store: "sqlite:support.db", use: [desk, looker, refund] };
await using pod = await startPod(config);
const chat = await pod.sessions.create(desk, { user: "ada", users: ["bob"] });
const { seq } = await chat.send("Where is my order? I want my money back.");

const answers = new Map<string, Entry>();
for await (const event of chat.events({ after: seq })) {
  if (event.type === "entry") answers.set(event.entry.author, event.entry);
  if (answers.size === 2) break;
}
for (const author of ["desk", "lookup"]) {
  console.log(`${author}: ${textOf(answers.get(author)!)}`);
}
while ((await pod.runs.get(runId))?.doing?.type !== "waiting_for_signal") {
  await new Promise((resolve) => setTimeout(resolve, 10));
}
console.log("the refund waits for approval");

// Ada has seen all of it, Bob only her question.
await chat.read(3, { user: "ada" });
await chat.read(1, { user: "bob" });
const unread = await Promise.all(
  ["ada", "bob"].map(async (user) => {
    for await (const event of pod.sessions.inbox(user)) {
      if (event.type === "snapshot") return `${user} ${event.sessions[0]?.unread}`;
    }
    return "";
  }),
);
console.log(`unread: ${unread.join(", ")}`);
