import type { Clock } from "../../base/clock.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { Conclusion } from "../finish/finish.ts";
import type { RunParts } from "./context.ts";
import type { Finishing } from "../finish/finish-writer.ts";
import type { WorkerEvent } from "./events.ts";
import type { Progress } from "./progress.ts";
import type { Running } from "./attempt.ts";

/** What a pod gives whoever drives the runs of a flow. */
export type DriveParts = RunParts & {
  clock: Clock;
  random: Random;
  ids: Ids;
  finishing: Pick<Finishing, "put">;
  progress: Pick<Progress, "forget" | "isUnsaved" | "leave">;
  /** Fires when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** Whether the pod stops, so that what has been stored is given back instead of going on. */
  stopping: () => boolean;
  /** The run's `actAtMs` is another now. */
  watch: (atMs: number) => void;
  onEvent: (event: WorkerEvent) => void;
};

/** A run was driven as far as it went, and what it is now is stored; or that couldn't be. */
export type Driven =
  | ({ readonly type: "driven" } & Conclusion)
  | { readonly type: "not_stored"; readonly error: unknown };

/** Runs a claimed run from transition to transition. Never rejects. */
export type Drive = (running: Running, parts: DriveParts) => Promise<Driven>;
