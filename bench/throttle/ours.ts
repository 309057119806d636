import { silentLogger as log } from "../../src/base/log.ts";
import { migrate } from "../../src/store/migrate.ts";
import { memoryDatabase } from "../../src/store/sqlite/inline.ts";
import { declareThrottle } from "../../src/throttles/declaration.ts";
import type { Limiter } from "../../src/throttles/limiter/limiter.ts";
import type { Preset } from "../../src/throttles/settings.ts";
import { createFleetLearning } from "../../src/throttles/shares/fleet-learning.ts";
import { createShares } from "../../src/throttles/shares/shares.ts";
import { getThrottles } from "../../src/throttles/shares/sql.ts";
import { createThrottleRegistry } from "../../src/throttles/registry.ts";
import { callTimeoutMs, type Ended } from "./downstream.ts";
import type { Contender, Fleet, Surroundings } from "./fleet.ts";
import { distant } from "./store.ts";

/** Ours, all of it: limiters, shares, the leader's learning and the store's statements, in virtual time. */
export function flotilla(name: string, preset: Preset, about: string): Contender {
  return { name, about, settles: true, open: (surroundings) => openFleet(preset, surroundings) };
}

type Pod = { heard: boolean; readonly limiter: Limiter; readonly leave: () => void };

/** The leader looks with its beats. */
const beatMs = 1_000;
const place = { name: "api", key: "" };

async function openFleet(preset: Preset, surroundings: Surroundings): Promise<Fleet> {
  const { time, random, call } = surroundings;
  const store = memoryDatabase(time);
  await migrate(store);
  const declared = declareThrottle(place.name, { preset, callTimeoutMs });
  const pods = new Map<string, Pod>();
  let bound = declared.settings.controller.initial;

  // Pods may go by a bound from when it is committed, not from when its leader hears of that.
  const lookAtBound = async () => {
    const [row] = await store.read(getThrottles([place]));
    if (row) bound = Number(row["bound"]);
  };
  const learning = createFleetLearning({
    database: distant(store, { time, random, onCommitted: () => void lookAtBound() }),
    clock: time,
    log,
  });
  const beat = () => {
    void learning.pass();
    time.in(beatMs, beat);
  };
  time.in(beatMs, beat);

  /** One call after the other, for as long as the pod gives permits. */
  async function keepCalling(podId: string, pod: Pod): Promise<void> {
    for (;;) {
      const permit = await pod.limiter.acquire().catch(() => undefined);
      if (!permit) return;
      const how = await new Promise<Ended>((resolve) => call(podId, resolve));
      if (!pod.heard) return;
      const { kind, headers } = how;
      permit.release(headers ? pod.limiter.outcomeOf(permit, responseOf(kind, headers)) : kind);
    }
  }

  return {
    join(podId, demand) {
      const limiter = createThrottleRegistry({ clock: time, random, shared: true }).of(declared);
      let heard = true;
      const dead = new Promise<never>(() => {});
      const way = distant(store, { time, random, onCommitted: () => void lookAtBound() });
      const shares = createShares({
        podId,
        database: {
          ...way,
          read: (statement) => (heard ? way.read(statement) : dead),
          write: (statements) => (heard ? way.write(statements) : dead),
        },
        clock: time,
        random,
        log,
      });
      shares.add(limiter);
      const pod: Pod = {
        get heard() {
          return heard;
        },
        set heard(now) {
          heard = now;
        },
        limiter,
        leave() {
          limiter.close();
          // A pod that stops lets its calls end first.
          const stop = () => {
            if (limiter.demand().inFlight === 0) void shares.stop();
            else time.in(10, stop);
          };
          stop();
        },
      };
      pods.set(podId, pod);
      for (let at = 0; at < demand; at++) void keepCalling(podId, pod);
    },
    leave(podId) {
      pods.get(podId)!.leave();
      pods.delete(podId);
    },
    die(podId) {
      const pod = pods.get(podId)!;
      pod.heard = false;
      pod.limiter.close();
      pods.delete(podId);
    },
    limit: () => bound,
    bound: () => bound,
  };
}

/** As much of a response as the limiter looks at. */
function responseOf(kind: Ended["kind"], headers: NonNullable<Ended["headers"]>) {
  const get = (name: string): string | null => headers[name] ?? null;
  return { status: kind === "throttled" ? 429 : kind === "success" ? 200 : 500, headers: { get } };
}
