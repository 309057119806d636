import { between, type Random } from "../../../src/base/random.ts";
import type { PostgresServer } from "../../postgres/server.ts";
import type { Fleet, StartOptions } from "../fleet.ts";
import { monotonicMs } from "../ledger.ts";
import type { CommonFaults } from "../nemesis.ts";
import { cutOff, serverFaults } from "../server-faults.ts";
import { startChaosProxy } from "./chaos-proxy.ts";
import { type FakeTime, fakeTime } from "./fake-time.ts";
import { networkFaults, shortTimeouts } from "./network-faults.ts";
import { withTimeouts } from "./harness-store.ts";

export type RoughPlace = {
  /** Everything that can happen to a server, to the way to it, and to a clock. */
  readonly common: CommonFaults;
  /** One pod has a single connection, two a bad network, one a clock that is stepped. */
  readonly placeAt: (at: number) => StartOptions;
  close(): Promise<void>;
};

const hourMs = 3_600_000;

/** Makes a fleet's life on Postgres as hard as it gets. The server must be the test's own. */
export async function openRoughPlace(fleet: Fleet, server: PostgresServer): Promise<RoughPlace> {
  const proxy = await startChaosProxy(fleet.store);
  const far = withTimeouts(proxy.through(fleet.store), shortTimeouts);
  const clock: FakeTime = fakeTime(hourMs);

  const troubled = Object.entries(networkFaults).map(([name, fault]) => {
    const trouble = async (): Promise<void> => {
      const those = cutOff(fleet, ({ store }) => store === far);
      await fault(proxy);
      const toMs = monotonicMs();
      for (const each of those) each.toMs = toMs;
    };
    return [`a network that ${name}`, trouble] as const;
  });
  const stepClock = async (random: Random) => clock.set(between(random, -hourMs, hourMs));

  const stores = [`${fleet.store}?connections=1`, far, far];
  return {
    common: {
      ...serverFaults(fleet, server),
      ...Object.fromEntries(troubled),
      "step a clock": stepClock,
    },
    placeAt(at) {
      if (at === stores.length) return { env: clock.env };
      const store = stores[at];
      return store === undefined ? {} : { store };
    },
    async close() {
      await proxy.close();
      clock.remove();
    },
  };
}
