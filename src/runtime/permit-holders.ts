import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import { checkNumber, checkOptions, isStorable } from "../base/options.ts";
import type { Bus } from "../bus/bus.ts";
import { livePodAges } from "../pods/pods.ts";
import type { Database } from "../store/database.ts";
import { type PermitHolder, permitsInUse, type PodPermits } from "../throttles/holders.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";

export type PermitHoldersOptions = {
  /** Only permits of this key. Default: of all keys. */
  key?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
};

export type PermitHolders = {
  /** The permits in use, the longest held first. */
  readonly permits: readonly PermitHolder[];
  /** How many are in use on the pods that answered, also where fewer are listed. */
  readonly inFlight: number;
  /** The live pods that have answered. */
  readonly answered: readonly string[];
  /** Those that have not, each with the reason: their permits aren't known. */
  readonly unanswered: readonly { readonly podId: string; readonly reason: string }[];
};

export type PermitHoldersClient = {
  /**
   * Which tasks, runs and turns hold permits of a throttle now. Every live pod is asked over the bus, which
   * may lose envelopes, so the answer says which pods it is of.
   */
  holders(name: string, options?: PermitHoldersOptions): Promise<PermitHolders>;
};

const topic = "throttles.permits";
const maxPermits = 1_000;
// A pod whose bus is idle reads its envelopes after its next heartbeat.
const answerMs = 1_500;
const tries = 2;
// More than this at once would only fill the bus.
const maxPods = 500;

/** Lets others ask this pod which of its permits are in use. */
export function servePermits(
  bus: Pick<Bus, "serve">,
  { throttles, clock }: { throttles: ThrottleRegistry; clock: Clock },
): () => void {
  return bus.serve(topic, (body) => {
    const query: Readonly<Record<string, unknown>> = isJsonObject(body) ? body : {};
    const { name, key, limit } = query;
    if (typeof name !== "string" || typeof limit !== "number") {
      throw new FlotillaError("invalid_input", "permits are asked for by name and limit");
    }
    const ofKey = typeof key === "string" ? key : undefined;
    const most = { name, key: ofKey, limit: Math.min(limit, maxPermits) };
    return permitsInUse(throttles, most, clock) as unknown as Json;
  });
}

/** Asks all live pods for their permits, at the time of the call. */
export function createPermitHolders({
  database,
  bus,
}: {
  database: Database;
  /** Starts the bus of this process with the first call. */
  bus: () => Pick<Bus, "request">;
}): PermitHoldersClient {
  const ask = async (podId: string, body: Json): Promise<PodPermits> => {
    for (let sent = 1; ; sent++) {
      try {
        const answer = await bus().request(podId, topic, body, { timeoutMs: answerMs });
        return answer as unknown as PodPermits;
      } catch (error) {
        // The request changes nothing, so it may be sent again.
        const isLost = error instanceof FlotillaError && error.code === "timeout";
        if (!isLost || sent >= tries) throw error;
      }
    }
  };

  return {
    async holders(name, options = {}) {
      checkOptions("throttles.holders", options, ["key", "limit"]);
      const { key, limit = 100 } = options;
      checkNumber("limit", limit, { min: 1, max: maxPermits });
      checkTexts(name, key);
      const pods = (await livePodAges(database)).map(({ podId }) => podId).slice(0, maxPods);
      const body = { name, limit, ...(key !== undefined && { key }) };
      const asked = await Promise.allSettled(pods.map((podId) => ask(podId, body)));
      const permits: PermitHolder[] = [];
      const unanswered: { podId: string; reason: string }[] = [];
      let inFlight = 0;
      for (const [at, podId] of pods.entries()) {
        const answer = asked[at]!;
        if (answer.status === "rejected") {
          unanswered.push({ podId, reason: reasonOf(answer.reason) });
          continue;
        }
        inFlight += answer.value.inFlight;
        for (const permit of answer.value.permits) permits.push({ podId, ...permit });
      }
      permits.sort((one, other) => one.sinceMs - other.sinceMs);
      const silent = new Set(unanswered.map(({ podId }) => podId));
      return {
        permits: permits.slice(0, limit),
        inFlight,
        answered: pods.filter((podId) => !silent.has(podId)),
        unanswered,
      };
    },
  };
}

function reasonOf(error: unknown): string {
  if (!(error instanceof FlotillaError)) return messageOf(error);
  if (error.code === "timeout") return `no answer within ${tries * answerMs} ms`;
  if (error.code === "unsupported") return "its release doesn't answer this";
  return messageOf(error);
}

function checkTexts(...texts: readonly unknown[]): void {
  const isText = (each: unknown) => typeof each === "string" && isStorable(each);
  if (texts.every((each) => each === undefined || isText(each)) && isText(texts[0])) return;
  throw new FlotillaError(
    "invalid_option",
    "the name and the key of a throttle must be strings that a database can store (no NUL, no lone surrogates)",
  );
}
