import { describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { until } from "../base/contract/movable-clock.ts";
import { systemRandom } from "../base/random.ts";
import { createStoreBus } from "../bus/store-bus.ts";
import { beat } from "../pods/sql.ts";
import { usualKinds } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { createThrottleRegistry } from "../throttles/registry.ts";
import { runInThrottleScope } from "../throttles/scope.ts";
import { throttle } from "../throttles/throttle.ts";
import { createPermitHolders, servePermits } from "./permit-holders.ts";

const api = throttle("api", { initial: 10 });

// A store whose clock the test moves has no time of its own to wait for envelopes.
describe.each(usualKinds)("permits that are asked for over $name", (kind) => {
  test.skipIf(kind.name === "memory")("are answered by the pod that holds them", async () => {
    const store = await kind.open();
    const { database } = store;
    await migrate(database);
    const [clock, random] = [systemClock, systemRandom];
    const [ofPod, ofAsker] = ["pod-1", "asker"].map((address) =>
      createStoreBus({ address, database, clock, random }),
    );
    const throttles = createThrottleRegistry({ clock, random });
    servePermits(ofPod!, { throttles, clock });
    await database.write([beat("pod-1", "{}", 0)]);
    const ended = Promise.withResolvers<void>();
    const call = runInThrottleScope({ throttles }, () => api.run(() => ended.promise));
    const { holders } = createPermitHolders({ database, bus: () => ofAsker! });
    // A slow machine may take longer than one question waits.
    const found = await until("the answer", async () => {
      const asked = await holders("api");
      return asked.unanswered.length === 0 && asked;
    });
    expect(found).toMatchObject({ answered: ["pod-1"], inFlight: 1, permits: [{ key: "" }] });
    ended.resolve();
    await call;
    await Promise.all([ofPod!.close(), ofAsker!.close()]);
    await database.close();
    await store.remove();
  });
});
