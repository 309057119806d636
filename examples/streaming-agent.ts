// An agent that thinks, wants to call a tool, and waits until somebody allows it; and one that is stopped.
// prints: it thinks: The user wants coffee.
// prints: it says: Let me order that.
// prints: it asks whether it may call order with {"item":"coffee"}
// prints: nobody waits: the session is idle
// prints: after the approval: Let me order that. (ordered) Your coffee is on its way.
// prints: stopped after: counting
import { setTimeout as sleep } from "node:timers/promises";
import { agent, type Chunk, type Part, startPod, textOf } from "flotilla";

const barista = agent("barista", async function* ({ messages }): AsyncGenerator<Chunk | string> {
  const call = messages.at(-1)?.parts.find((part) => part.type === "tool-order");
  if (call?.["state"] === "approval-responded") {
    // What is yielded now goes on where the message ended.
    yield { type: "tool-output-available", toolCallId: "c1", output: "(ordered)" };
    yield "Your coffee is on its way.";
    return;
  }
  yield { type: "reasoning-start", id: "r1" };
  yield { type: "reasoning-delta", id: "r1", delta: "The user wants coffee." };
  yield { type: "reasoning-end", id: "r1" };
  yield "Let me order that.";
  const input = { item: "coffee" };
  yield { type: "tool-input-available", toolCallId: "c1", toolName: "order", input };
  yield { type: "tool-approval-request", toolCallId: "c1", approvalId: "a1" };
});

const counter = agent("counter", async function* ({ signal }) {
  yield "counting";
  await sleep(60_000, undefined, { signal });
});

await using pod = await startPod({ store: "sqlite:streaming.db", use: [barista, counter] });
const chat = await pod.sessions.create(barista, { user: "ada" });
const asked = await chat.ask("Coffee, please!");
for (const part of asked.parts) {
  if (part.type === "reasoning") console.log("it thinks:", part["text"]);
  if (part.type === "text") console.log("it says:", part["text"]);
  if (part["state"] !== "approval-requested") continue;
  console.log("it asks whether it may call order with", JSON.stringify(part["input"]));
}
// No function waits for the answer: it may come tomorrow, and on another pod.
console.log(`nobody waits: the session is ${(await chat.view()).state.state}`);

await chat.toolResult(asked.messageId, [{ toolCallId: "c1", approvalId: "a1", approved: true }]);
for await (const event of chat.events({ after: asked.seq })) {
  if (event.type === "entry" && event.entry.role === "assistant") break;
}
const [, whole] = await chat.messages();
console.log("after the approval:", ...whole!.parts.flatMap(shown));

const long = await pod.sessions.create(counter, { user: "ada" });
const { seq } = await long.send("Count to a million.");
for await (const event of long.events({ after: seq })) {
  if (event.type === "chunk" && event.chunk.type === "text-delta") await long.stop();
  if (event.type !== "entry" || event.entry.role !== "assistant") continue;
  console.log(`${event.entry.outcome} after: ${textOf(event.entry)}`);
  break;
}

function shown(part: Part): unknown[] {
  return part.type === "text" ? [part["text"]] : part.type === "tool-order" ? [part["output"]] : [];
}
