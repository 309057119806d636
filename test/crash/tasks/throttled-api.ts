import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { monotonicMs } from "../ledger.ts";

/**
 * A downstream that takes so many calls at once and answers the rest with 429. It counts for itself, so
 * that what is judged isn't what the throttle believes. A call counts until its work is done, also where
 * the caller is gone.
 */
export async function startApi({ capacity, callMs }: { capacity: number; callMs: number }) {
  const inFlight = new Map<string, number>();
  const answered = new Map<string, number>();
  let now = 0;
  let peak = 0;
  let calls = 0;
  let refused = 0;
  let refusedMs = monotonicMs();

  const add = (pod: string, count: number) => {
    now += count;
    inFlight.set(pod, (inFlight.get(pod) ?? 0) + count);
    peak = Math.max(peak, now);
  };

  const server = createServer((request, response) => {
    const pod = String(request.headers["x-pod"]);
    calls++;
    add(pod, 1);
    const isRefused = now > capacity;
    if (isRefused) {
      refused++;
      refusedMs = monotonicMs();
    }
    setTimeout(
      () => {
        add(pod, -1);
        if (!isRefused) answered.set(pod, (answered.get(pod) ?? 0) + 1);
        response.writeHead(isRefused ? 429 : 200).end(isRefused ? "too many" : "done");
      },
      isRefused ? 5 : callMs,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    /** Since it began, or since it was last asked to begin anew. */
    seen: () => ({ peak, calls, refused }),
    inFlightOf: (pod: string) => inFlight.get(pod) ?? 0,
    answersTo: (pod: string) => answered.get(pod) ?? 0,
    /** For how long it has refused no call. */
    calmMs: () => monotonicMs() - refusedMs,
    beginAnew(): void {
      peak = now;
      calls = 0;
      refused = 0;
    },
    close(): Promise<void> {
      server.closeAllConnections();
      return new Promise((resolve) => void server.close(() => resolve()));
    },
  };
}
