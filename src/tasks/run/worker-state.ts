import type { Reason } from "./pod-status.ts";

/** What a pod is doing, in a word or two. */
export type WorkerState =
  | "alone"
  | "claiming"
  | "draining for one"
  | "full"
  | "idle"
  | "paused"
  | "outbox full"
  | "stopping"
  | "waiting for the store";

/** What is said of a pod in a word or two, by the first reason why it claims no more. */
const states = {
  stopping: "stopping",
  outbox_full: "outbox full",
  store_away: "waiting for the store",
  paused: "paused",
  alone: "alone",
  draining: "draining for one",
  full: "full",
} as const;

/** What the first reason says why a pod claims no more; undefined where it could. */
export function stateOf([first]: readonly Reason[]): WorkerState | undefined {
  return first && first.code in states ? states[first.code as keyof typeof states] : undefined;
}
