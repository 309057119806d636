import type { OutcomeKind } from "../../src/throttles/learning/sample.ts";
import type { Ended } from "./downstream.ts";

export const sliceMs = 500;

/** What happened in half a second. */
export type Slice = {
  readonly counts: Record<OutcomeKind, number>;
  workMs: number;
  /** How long those calls took that were answered. */
  latencyMs: number;
  /** Capacity times time. */
  capacityMs: number;
  peak: number;
  /** At the end of it. */
  limit: number;
  inFlight: number;
  capacity: number;
  readonly byPod: Map<string, number>;
};

export type Ledger = {
  readonly slices: readonly Slice[];
  began(): void;
  ended(podId: string, how: Ended): void;
  /** Closes the present slice. */
  turn(now: { readonly limit: number; readonly capacity: number }): void;
  readonly inFlight: number;
};

/** Counts calls as they begin and end. */
export function createLedger(): Ledger {
  const slices: Slice[] = [];
  let inFlight = 0;
  let slice = emptySlice(0);
  return {
    slices,
    get inFlight() {
      return inFlight;
    },
    began() {
      inFlight++;
      if (inFlight > slice.peak) slice.peak = inFlight;
    },
    ended(podId, { kind, workMs, latencyMs }) {
      inFlight--;
      slice.counts[kind]++;
      slice.workMs += workMs;
      if (workMs > 0) slice.latencyMs += latencyMs;
      if (kind === "success") slice.byPod.set(podId, (slice.byPod.get(podId) ?? 0) + 1);
    },
    turn({ limit, capacity }) {
      Object.assign(slice, { limit, capacity, inFlight, capacityMs: capacity * sliceMs });
      slices.push(slice);
      slice = emptySlice(inFlight);
    },
  };
}

function emptySlice(inFlight: number): Slice {
  return {
    counts: { success: 0, throttled: 0, timeout: 0, server_error: 0, ignored: 0 },
    workMs: 0,
    latencyMs: 0,
    capacityMs: 0,
    peak: inFlight,
    limit: 0,
    inFlight,
    capacity: 0,
    byPod: new Map(),
  };
}
