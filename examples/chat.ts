// A conversation with an agent in this process: asked, watched as it streams, and gone on with later.
// prints: echo: you said hello
// prints: live: you said again
// prints: a program that had up to seq 2 gets 3: ada, 4: echo
import { agent, connect, startPod, textOf } from "flotilla";

const echo = agent("echo", async function* ({ messages }) {
  yield "you said ";
  yield textOf(messages.at(-1)!);
});

await using pod = await startPod({ store: "sqlite:chat.db", use: [echo] });
const chat = await pod.sessions.create(echo, { sessionId: "first", user: "ada" });

const answer = await chat.ask("hello");
console.log(`${answer.author}: ${textOf(answer)}`);

let live = "";
for await (const event of chat.events({ after: answer.seq })) {
  // With an id, a message is stored once, however often it is sent.
  if (event.type === "state") await chat.send("again", { id: "question-2" });
  if (event.type === "chunk" && event.chunk.type === "text-delta") live += event.chunk["delta"];
  if (event.type === "entry" && event.entry.role === "assistant") break;
}
console.log(`live: ${live}`);

// Any process, any time later: it says what it has, and gets everything since.
await using web = connect("sqlite:chat.db");
const missed: string[] = [];
for await (const event of web.sessions.open("first").events({ after: 2 })) {
  if (event.type === "entry") missed.push(`${event.entry.seq}: ${event.entry.author}`);
  if (missed.length === 2) break;
}
console.log(`a program that had up to seq 2 gets ${missed.join(", ")}`);
