/** A pod whose task calls an API under a throttle that all pods share. The test holds it by signals. */
import process from "node:process";
import { startPod, task, throttle } from "flotilla";
import { silentLogger } from "../../../src/base/log.ts";

export type ThrottledPodSpec = {
  readonly store: string;
  readonly url: string;
  readonly leaseMs: number;
  readonly callTimeoutMs: number;
};

const { store, url, leaseMs, callTimeoutMs } = JSON.parse(process.argv[2]!) as ThrottledPodSpec;
// The machine's other work makes calls slower too, which says nothing of the API.
const api = throttle("api", { leaseMs, callTimeoutMs, graceMs: 500, latency: false });
let podId = "";

const call = task(
  "call",
  { throttle: api, attempts: 100, backoff: { baseMs: 50, maxMs: 500 } },
  async ({ signal }) => {
    const answer = await api.fetch(url, { signal, headers: { "x-pod": podId } });
    await answer.text();
    if (!answer.ok) throw new Error(`the API said ${answer.status}`);
  },
);

const pod = await startPod(
  {
    store,
    use: [call],
    slots: 50,
    target: 1,
    heartbeatMs: 500,
    deadAfterMs: 3_000,
    log: silentLogger,
  },
  {
    onEvent(event) {
      if (event.type === "bound") process.send?.({ bound: event.bound });
    },
  },
);
podId = pod.podId;
process.send?.({ ready: podId });
process.once("SIGTERM", () => {
  void pod.stop().then(() => process.exit(0));
});
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));
