import type { Clock } from "../base/clock.ts";
import type { PermitWork } from "./limiter/permit.ts";
import type { ThrottleRegistry } from "./registry.ts";

/** A permit in use: by which task, run or turn, since when, and on which pod. */
export type PermitHolder = {
  readonly podId: string;
  /** The key of the throttle, empty where it has none. */
  readonly key: string;
  readonly sinceMs: number;
  /** Null for code outside of handlers and agents. */
  readonly holder: PermitUser | null;
};

export type PermitUser =
  | { readonly what: "task" | "run"; readonly id: string; readonly name: string | null }
  | {
      readonly what: "turn";
      /** The session whose answer is being made. */
      readonly id: string;
      /** The tenant of the session; null of a pod of an earlier release. */
      readonly tenant: string | null;
      /** The agent. */
      readonly name: string | null;
      readonly epoch: number | null;
      readonly attempt: number | null;
    };

/** What one pod answers that is asked for its permits. */
export type PodPermits = {
  readonly permits: readonly Omit<PermitHolder, "podId">[];
  /** How many it has in use, also where fewer are listed. */
  readonly inFlight: number;
};

export type PermitsQuery = {
  readonly name: string;
  /** Undefined for all keys. */
  readonly key?: string | undefined;
  readonly limit: number;
};

// An answer travels as one envelope, which a slow store has to take.
const maxAnswerChars = 256 * 1024;

/** The permits of a throttle that are in use on this pod, the longest held first. */
export function permitsInUse(
  throttles: Pick<ThrottleRegistry, "find" | "allOf">,
  { name, key, limit }: PermitsQuery,
  clock: Pick<Clock, "now" | "monotonic">,
): PodPermits {
  const limiters =
    key === undefined ? throttles.allOf(name) : [throttles.find(name, key) ?? []].flat();
  const used = limiters.flatMap((limiter) =>
    limiter.permitsInUse().map(({ beganMs, work }) => ({ key: limiter.key, beganMs, work })),
  );
  used.sort((one, other) => one.beganMs - other.beganMs);
  const permits: PodPermits["permits"][number][] = [];
  let chars = 0;
  for (const { key: ofKey, beganMs, work } of used.slice(0, limit)) {
    const sinceMs = Math.round(clock.now() - (clock.monotonic() - beganMs));
    const permit = { key: ofKey, sinceMs, holder: work ? userOf(work) : null };
    chars += JSON.stringify(permit).length;
    if (chars > maxAnswerChars && permits.length > 0) break;
    permits.push(permit);
  }
  return { permits, inFlight: used.length };
}

function userOf({ from, fields }: PermitWork): PermitUser {
  const { id, what } = from;
  const name = textOf(fields["name"]) ?? textOf(fields["agent"]);
  if (what !== "session") return { what, id, name };
  return {
    what: "turn",
    id,
    tenant: textOf(fields["tenant"]),
    name,
    epoch: numberOf(fields["epoch"]),
    attempt: numberOf(fields["attempt"]),
  };
}

function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
