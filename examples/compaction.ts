// A conversation that gets long is summed up, and what was said goes on being there.
// prints: 1: heard 1 message
// prints: 2: heard 3 messages
// prints: 3: heard 2 messages, and knows: 4 messages about tea
// prints: the log has 7 entries, of which the summary stands for the first 4
import { agent, startPod, textOf } from "flotilla";

const helper = agent(
  "helper",
  {
    history: "entire",
    compaction: {
      // Small, so that it is soon reached. The default is 50,000.
      tokenBudget: 1_000,
      triggerRatio: 0.7,
      fn: ({ messages }) => `${messages.length} messages about tea`,
    },
  },
  ({ messages, summary }) => {
    const heard = `heard ${messages.length} message${messages.length === 1 ? "" : "s"}`;
    return summary === undefined ? heard : `${heard}, and knows: ${summary}`;
  },
);

await using pod = await startPod({ store: "sqlite:compaction.db", use: [helper] });
const chat = await pod.sessions.create(helper, { user: "ada" });
for (const question of ["1", "2", "3"]) {
  // What it takes of a model's context is estimated, unless the caller knows better.
  const answer = await chat.ask(question, { tokens: 300 });
  console.log(`${question}: ${textOf(answer)}`);
}
const { entries } = await chat.entries();
const summary = entries.find(({ kind }) => kind === "summary");
console.log(
  `the log has ${entries.length} entries, of which the summary stands for the first ${summary?.throughSeq}`,
);
