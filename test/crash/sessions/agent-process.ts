/** An agent behind a URL, in a process of its own: it speaks what the AI SDK's chat servers speak. */
import { createServer } from "node:http";
import process from "node:process";
import type { AgentRequest } from "../../../src/protocol/agent-http.ts";
import type { FromPod, PodSpec, ToPod } from "../pod-process.ts";
import { createScript } from "./script.ts";

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: { host: string; port: number } };
const script = createScript(spec.ledgerPath.replace(/ledger$/, "calls"), () => "agent");

const server = createServer((request, response) => {
  const leaving = new AbortController();
  response.once("close", () => leaving.abort());
  const pieces: Buffer[] = [];
  request.on("data", (piece: Buffer) => void pieces.push(piece));
  request.on("end", () => {
    const asked = JSON.parse(Buffer.concat(pieces).toString()) as AgentRequest;
    const { agent, sessionId: session, epoch, attempt } = asked.flotilla;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (chunk: object) => void response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    const stream = async () => {
      const { signal } = leaving;
      send({ type: "start" });
      send({ type: "text-start", id: "t" });
      const { messages } = asked;
      for await (const delta of script.answer({
        agent,
        session,
        epoch,
        attempt,
        messages,
        signal,
      })) {
        send({ type: "text-delta", id: "t", delta });
      }
      send({ type: "text-end", id: "t" });
      send({ type: "finish" });
      response.end("data: [DONE]\n\n");
    };
    void stream();
  });
});

process.on("message", (message: ToPod) => {
  if ("open" in message) script.open(message.open);
});
process.once("disconnect", () => process.exit(1));
server.listen(spec.given.port, spec.given.host, () => {
  process.send?.({ ready: "agent" } satisfies FromPod);
});
