// An API that takes eight calls at once and refuses the rest, and tasks that call it. Nobody tells the
// throttle about the eight: it finds out, and tasks wait unclaimed until there is a permit for them.
// prints: 600 tasks are done
// prints: fewer than one call in ten was refused
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { startPod, task, throttle } from "flotilla";

let inFlight = 0;
let refused = 0;
const server = createServer((_request, response) => {
  if (inFlight >= 8) {
    refused++;
    response.writeHead(429).end();
    return;
  }
  inFlight++;
  setTimeout(() => {
    inFlight--;
    response.end("a summary");
  }, 20);
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

const api = throttle("summaries");

const summarize = task(
  "summarize",
  { throttle: api, attempts: 20, backoff: { baseMs: 50, maxMs: 500 } },
  async ({ signal }) => {
    const answer = await api.fetch(url, { signal });
    if (!answer.ok) throw new Error(`the API said ${answer.status}`);
    return answer.text();
  },
);

await using pod = await startPod({ store: "sqlite:throttle.db", use: [summarize] });
const tasks = await pod.enqueueMany(
  summarize,
  Array.from({ length: 600 }, () => null),
);
await Promise.all(tasks.map((each) => pod.waitFor(each)));
console.log(`${tasks.length} tasks are done`);
const share = refused / (refused + tasks.length);
console.log(share < 0.1 ? "fewer than one call in ten was refused" : `${refused} were refused`);
server.close();
