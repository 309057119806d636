import crypto from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { DemandRow } from "./holder.ts";
import { type HeldThrottle, mapKey } from "./share-store.ts";
import type { ThrottleId } from "./sql.ts";

/** What pods tell each other of their demands, once a second while they have one. It may be lost. */
export type Demands = {
  hear(text: string): void;
  of(id: ThrottleId): readonly DemandRow[];
};

type Heard = DemandRow & { readonly atMs: number };

const maxTextChars = 512 * 1_024;
const perMessage = 1_000;
/** A demand that was told for the last time this long ago is one of a pod that is gone or idle. */
const keptMs = 60_000;
/** Throttles that are remembered; of each so many pods. */
const maxThrottles = 20_000;
const maxPods = 1_000;
const maxPodIdChars = 200;
const hashForm = /^[0-9a-f]{32}$/;

/** Names a throttle and key in subjects and messages, without what a user chose. */
export function throttleHash(id: ThrottleId): string {
  return crypto.hash("sha256", mapKey(id), "hex").slice(0, 32);
}

export function encodeDemands(podId: string, held: readonly HeldThrottle[]): string[] {
  const all = held.map(({ id, report }) => [throttleHash(id), report.seq, report.demand]);
  const texts: string[] = [];
  for (let from = 0; from < all.length; from += perMessage) {
    texts.push(JSON.stringify({ v: 1, pod: podId, demands: all.slice(from, from + perMessage) }));
  }
  return texts;
}

export function createDemands({ clock }: { clock: Pick<Clock, "monotonic"> }): Demands {
  const heard = new Map<string, Map<string, Heard>>();

  const put = (hash: string, demand: Heard): void => {
    const pods = heard.get(hash) ?? new Map<string, Heard>();
    const before = pods.get(demand.podId);
    if (before && before.seq >= demand.seq) return;
    // The throttle that was told of last is the last in the map.
    heard.delete(hash);
    heard.set(hash, pods);
    if (!before && pods.size >= maxPods) return;
    pods.set(demand.podId, demand);
    if (heard.size > maxThrottles) heard.delete(heard.keys().next().value!);
  };

  return {
    hear(text) {
      const told = decode(text);
      if (!told) return;
      const atMs = clock.monotonic();
      for (const [hash, seq, demand] of told.demands) {
        put(hash, { podId: told.podId, seq, demand, atMs });
      }
    },
    of(id) {
      const pods = heard.get(throttleHash(id));
      if (!pods) return [];
      const oldestMs = clock.monotonic() - keptMs;
      for (const { podId, atMs } of pods.values()) if (atMs < oldestMs) pods.delete(podId);
      return [...pods.values()].map(({ podId, seq, demand }) => ({ podId, seq, demand }));
    },
  };
}

type Told = {
  readonly podId: string;
  readonly demands: readonly (readonly [hash: string, seq: number, demand: number])[];
};

/** Undefined if the text isn't what a pod tells. Any process with credentials of the servers can send one. */
function decode(text: string): Told | undefined {
  if (text.length > maxTextChars) return undefined;
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof found !== "object" || found === null) return undefined;
  const { v, pod, demands } = found as Record<string, unknown>;
  if (v !== 1 || typeof pod !== "string" || pod.length > maxPodIdChars) return undefined;
  if (!Array.isArray(demands) || demands.length > perMessage || !demands.every(isDemand)) {
    return undefined;
  }
  return { podId: pod, demands };
}

function isDemand(found: unknown): found is Told["demands"][number] {
  if (!Array.isArray(found) || found.length !== 3) return false;
  const [hash, seq, demand] = found as unknown[];
  const isHash = typeof hash === "string" && hashForm.test(hash);
  return isHash && isCount(seq) && isCount(demand);
}

function isCount(found: unknown): found is number {
  return Number.isSafeInteger(found) && (found as number) >= 0;
}
