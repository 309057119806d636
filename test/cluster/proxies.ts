import { fraction } from "../../src/base/random.ts";
import { type ChaosProxy, startChaosProxy } from "../crash/postgres/chaos-proxy.ts";
import type { Flow } from "../crash/postgres/chaos-link.ts";
import type { Network, NetworkOptions } from "./network.ts";

type Way = { readonly from: string; readonly to: string; readonly proxy: ChaosProxy };

const tickMs = 100;
/** What TCP waits at least before it sends again what was lost. */
const resendMs = 200;

/**
 * All nodes are on the loopback, and a proxy is on each way between two. Where a packet would be dropped,
 * its connection waits, because TCP would send it again. It shows less than namespaces do: a connection that
 * is new is always made, and what is lost is late.
 */
export async function openProxies({ random }: Pick<NetworkOptions, "random">): Promise<Network> {
  const ways: Way[] = [];
  const cuts = new Set<string>();
  const cutName = (from: string, to: string) => `${from}>${to}`;
  /** Connections that wait until TCP would have sent again. */
  const resending = new Map<Way, NodeJS.Timeout>();
  let losing: NodeJS.Timeout | undefined;

  const flowOf = (from: string, to: string): Flow =>
    cuts.has(cutName(from, to)) ? "stall" : "pass";
  const flow = ({ from, to, proxy }: Way) =>
    proxy.flow({ toServer: flowOf(from, to), toClient: flowOf(to, from) });
  const late = (way: Way) => {
    clearTimeout(resending.get(way));
    way.proxy.flow({ toServer: "stall", toClient: "stall" });
    resending.set(
      way,
      setTimeout(() => flow(way), resendMs),
    );
  };
  const stopLosing = () => {
    clearInterval(losing);
    for (const timer of resending.values()) clearTimeout(timer);
  };

  return {
    kind: "proxies",
    addressOf: () => "127.0.0.1",
    under: () => [],
    async way(from, to, url) {
      const proxy = await startChaosProxy(url);
      ways.push({ from, to, proxy });
      return proxy.through(url);
    },
    async cut(from, to) {
      cuts.add(cutName(from, to));
      for (const way of ways) flow(way);
    },
    async lose(percent) {
      clearInterval(losing);
      losing = setInterval(() => {
        for (const way of ways) if (fraction(random) * 100 < percent) late(way);
      }, tickMs);
    },
    async heal() {
      stopLosing();
      cuts.clear();
      for (const way of ways) flow(way);
    },
    async close() {
      stopLosing();
      await Promise.all(ways.map(({ proxy }) => proxy.close()));
    },
  };
}
