import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { natsName } from "../../bus/nats/config.ts";
import type { Nats } from "../../bus/nats/nats.ts";
import { type LivePodAge, livePodAges } from "../../pods/pods.ts";
import type { Database } from "../../store/database.ts";

export type SharePlaceParts = {
  readonly podId: string;
  readonly database: Pick<Database, "read">;
  readonly nats: Pick<Nats, "settings"> | undefined;
  /** The beat of a pod that is up moves within that time. */
  readonly deadAfterMs: number;
  readonly isGone: (host: string) => boolean;
  readonly clock: Clock;
  readonly log: Logger;
};

const lookMs = 250;
const maxPodsNamed = 10;

/**
 * Refuses a pod whose shares of throttles would be in another place than those of pods that are up: each
 * place would give out the whole limit. It is called twice: before the pod changes anything, and once its
 * own row is stored, behind which of two that start at once each sees the other. A pod that was killed has a
 * row like one that is up, so that its beat is watched, by this process's clock.
 */
export function createSharePlaceCheck(parts: SharePlaceParts): () => Promise<void> {
  const { podId, database, nats, deadAfterMs, isGone, clock, log } = parts;
  const own = placeOf(nats && natsName(nats.settings));
  /** The last beats of pods that were found silent. */
  const silent = new Map<string, number>();

  const look = async (): Promise<LivePodAge[]> =>
    (await livePodAges(database)).filter(
      (pod) =>
        pod.podId !== podId &&
        silent.get(pod.podId) !== pod.beat &&
        placeOf(natsOf(pod)) !== own &&
        !(pod.host !== null && isGone(pod.host)),
    );

  return async () => {
    const sinceMs = clock.monotonic();
    const before = new Map((await look()).map((pod) => [pod.podId, pod.beat]));
    if (before.size === 0) return;
    const waits = "pods have their shares of throttles elsewhere: this pod waits for their beats";
    log.warn({ pods: [...before.keys()].slice(0, maxPodsNamed) }, waits);
    for (;;) {
      await sleep(clock, lookMs);
      const others = await look();
      const up = others.filter((pod) => before.get(pod.podId) !== pod.beat);
      if (up.length > 0) throw differs(up, own);
      if (clock.monotonic() - sinceMs < deadAfterMs && others.length > 0) continue;
      for (const pod of others) silent.set(pod.podId, pod.beat);
      return;
    }
  };
}

/** Where a pod has its shares, by the name of its NATS: in rows of the store unless it has all there. */
function placeOf(name: string | undefined): string {
  return name?.endsWith(" for all") === true ? `on NATS (${name})` : "in the store";
}

function natsOf({ metadata }: LivePodAge): string | undefined {
  const { nats } = JSON.parse(metadata) as { readonly nats?: unknown };
  return typeof nats === "string" ? nats : undefined;
}

function differs(pods: readonly LivePodAge[], own: string): FlotillaError {
  const more = pods.length > maxPodsNamed ? ", …" : "";
  const named =
    pods
      .map(({ podId }) => podId)
      .slice(0, maxPodsNamed)
      .join(", ") + more;
  const there = placeOf(natsOf(pods[0]!));
  return new FlotillaError(
    "conflict",
    `pods that are up (${named}) have their shares of throttles ${there}, and this pod would have them ${own}, so that each would give out the whole limit: stop those pods first, or give this one the same \`nats.use\` and \`nats.namespace\``,
    { details: { pods: pods.length } },
  );
}
