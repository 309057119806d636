import type { Row } from "../../store/database.ts";
import type { LearnedAllowance } from "../learning/controller.ts";
import type { Entry } from "./lease.ts";

/** What pods obey besides the bound. */
export type Gate = {
  readonly holdMs: number;
  readonly breaker: LearnedAllowance["breaker"];
  /** Of all pods together. */
  readonly refillPerS?: number;
};

export type Shares = Readonly<Record<string, Entry>>;

/** What pods need of a throttle's row. */
export type SharedRow = {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly gate: Gate;
  /** Rises whenever the gate was said anew. */
  readonly pass: number;
  readonly shares: Shares;
  /** The store's time when it was read. */
  readonly nowMs: number;
};

export function toSharedRow(row: Row): SharedRow {
  return {
    rev: Number(row["rev"]),
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    gate: toGate(row["gate"] as string),
    pass: Number(row["pass"]),
    shares: JSON.parse(row["shares"] as string) as Shares,
    nowMs: Number(row["now_at"]),
  };
}

export function toGate(text: string): Gate {
  return { holdMs: 0, breaker: "closed", ...(JSON.parse(text) as Partial<Gate>) };
}

/** By which a throttle is known in maps. */
export function placeKey(name: string, key: string): string {
  return JSON.stringify([name, key]);
}
