import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { task, throttle } from "flotilla";
import { z } from "zod";

const atOnce = 6;
const answerMs = 300;

/** Learns by itself that the model takes six calls at once. Watch it: `flotilla throttles --watch`. */
const model = throttle("model");

/** Calls a model that refuses what is too much; tasks wait in the queue until the throttle lets them. */
export const summary = task(
  "summary",
  {
    input: z.object({ page: z.string() }),
    throttle: model,
    attempts: 20,
    backoff: { baseMs: 200, maxMs: 5_000 },
  },
  async ({ input, signal }) => ({ summary: await askModel(input.page, signal) }),
);

/** One call under the throttle. What the model refuses is an error, and teaches the throttle its limit. */
export async function askModel(page: string, signal: AbortSignal): Promise<string> {
  const body = JSON.stringify({ page });
  const answer = await model.fetch(await modelUrl(), { method: "POST", body, signal });
  if (!answer.ok) throw new Error(`the model answered ${answer.status}`);
  return answer.text();
}

let url: Promise<string> | undefined;
const modelUrl = () => (url ??= startModel());

/** Stands for the API of a model, with a limit of its own: what is too much is answered 429. */
function startModel(): Promise<string> {
  let calls = 0;
  const server = createServer((_request, response) => {
    if (calls >= atOnce) return void response.writeHead(429).end();
    calls++;
    setTimeout(() => {
      calls--;
      response.end("It is about boats.");
    }, answerMs);
  });
  // It ends with the process, and doesn't keep it.
  server.on("connection", (socket) => socket.unref()).unref();
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    });
  });
}
