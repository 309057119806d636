import { pauseFor } from "../until.ts";
import type { ChaosProxy } from "./chaos-proxy.ts";

/** Long enough for the pods that suffer from it to notice. */
export const shortTimeouts = { connectTimeoutMs: 700, answerTimeoutMs: 700 };

/** Long enough for pods that are out of reach to be taken for dead. */
const longMs = 1_500;

/** What a network does to pods that need it. Each is over, and undone, when its promise resolves. */
export const networkFaults: Readonly<Record<string, (proxy: ChaosProxy) => Promise<void>>> = {
  "stalls both ways": async (proxy) => {
    proxy.flow({ toServer: "stall", toClient: "stall" });
    await pauseFor(longMs);
    proxy.flow({ toServer: "pass", toClient: "pass" });
  },
  "lets nothing back": async (proxy) => {
    proxy.flow({ toClient: "stall" });
    await pauseFor(longMs);
    proxy.flow({ toClient: "pass" });
  },
  "cuts in the middle of what is asked": (proxy) =>
    often(async () => proxy.cut({ midFrame: "toServer" })),
  "cuts in the middle of what is answered": (proxy) =>
    often(async () => proxy.cut({ midFrame: "toClient" })),
  "forgets its connections without closing them": async (proxy) => {
    proxy.halfOpen();
    await pauseFor(longMs);
  },
  "loses the answers to what was done": (proxy) =>
    often(() => Promise.race([proxy.loseAnswer(() => true), pauseFor(300)])),
  "refuses everybody": async (proxy) => {
    await proxy.refuse();
    await pauseFor(longMs);
    await proxy.accept();
  },
};

/** Does it again and again while there is traffic. */
async function often(fault: () => Promise<void>): Promise<void> {
  for (let time = 0; time < 12; time++) {
    await fault();
    await pauseFor(100);
  }
}
