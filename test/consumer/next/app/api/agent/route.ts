import { createAgentHandler } from "flotilla/agent";

export const POST = createAgentHandler({
  secret: process.env["AGENT_SECRET"]!,
  answer: async function* ({ messages }) {
    yield `you have said ${messages.length} things`;
  },
});
