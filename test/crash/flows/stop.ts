import type { TaskHandler } from "flotilla";
import { isRunFinish } from "../../../src/tasks/sql/runs.ts";
import type { NewReport } from "./reports.ts";
import type { FlowDriver } from "../../../src/tasks/model.ts";

/** Where a run goes no further in a process, as if that had been killed then. It is killed when all have. */
export type Stop =
  /** It has been claimed, and nothing was done with it yet. */
  | { readonly at: "claim" }
  /** Its n-th function has been called. */
  | { readonly at: "call"; readonly nth: number }
  /** What it did is done, and its n-th write hasn't been sent. */
  | { readonly at: "before write"; readonly nth: number }
  /** Its n-th write is committed, and the answer is on the way. */
  | { readonly at: "after write"; readonly nth: number };

export type Stopping = {
  /** The same handler, whose runs stop where they are to. */
  handler(handler: TaskHandler): TaskHandler;
  /** To be awaited when a function of a run is called. */
  called(runId: string): Promise<void>;
  /** The key of a run that this process drives. */
  keyOf(runId: string): string;
};

type Claim = Parameters<FlowDriver>[0]["claim"];

/** Lets each run of this process come as far as it is to come. */
export function createStopping(parts: {
  keyOf: (claim: Claim) => string | Promise<string>;
  stopOf: (key: string) => Stop | undefined;
  say: (report: NewReport) => void;
  /** Told when a run has been given back, or has gone on. */
  onStored: (run: {
    runId: string;
    flow: string;
    payload: string;
    events: readonly string[];
  }) => void;
}): Stopping {
  const { keyOf, stopOf, say, onStored } = parts;
  const keys = new Map<string, string>();
  const writes = new Map<string, number>();
  const calls = new Map<string, number>();
  const parked = new Set<string>();
  const halted = new Set<string>();

  const halt = (key: string, runId: string): Promise<never> => {
    if (!halted.has(runId)) say({ event: "halted", key, runId });
    halted.add(runId);
    return new Promise(() => {});
  };

  const drive = (inner: FlowDriver): FlowDriver =>
    async function driven(running, given) {
      const { claim } = running;
      const { taskId: runId } = claim;
      const key = await keyOf(claim);
      keys.set(runId, key);
      const stop = stopOf(key);
      // A claim of what its last write left due shows that this is committed, before its answer is here.
      const isWritten = stop?.at === "after write" && (writes.get(runId) ?? 0) >= stop.nth;
      // What was given back before it was to stop may come back to this process.
      if (halted.has(runId) || stop?.at === "claim" || isWritten) return halt(key, runId);
      const put: typeof given.finishWriter.put = (finish, onFinished, onError) => {
        const events = isRunFinish(finish) ? finish.run.events.map(({ type }) => type) : [];
        // Some writes depend on which pod comes first: one that was woken too early waits again, and one that
        // another pod has to begin is released unchanged. They store nothing new.
        const isNew = events.length > 0 && !(events.join() === "park" && parked.has(runId));
        if (!isNew) {
          if (events.length === 0)
            say({ event: "released", key, runId, why: running.stopReason ?? "" });
          return given.finishWriter.put(finish, onFinished, onError);
        }
        const nth = (writes.get(runId) ?? 0) + 1;
        if (stop?.at === "before write" && stop.nth === nth) return void halt(key, runId);
        if (stop?.at === "after write" && stop.nth < nth) return void halt(key, runId);
        // Counted when it is sent: a run that is due at once may be claimed again before its answer is here.
        writes.set(runId, nth);
        const wasParked = parked.has(runId);
        if (events.join() === "park") parked.add(runId);
        else parked.delete(runId);
        const uncount = () => {
          writes.set(runId, nth - 1);
          if (wasParked) parked.add(runId);
          else parked.delete(runId);
        };
        const finished: typeof onFinished = (answer) => {
          if (answer.type === "stored") {
            say({ event: "stored", key, runId, events });
            if (stop?.at === "after write" && stop.nth === nth) return void halt(key, runId);
            onStored({ runId, flow: claim.name, payload: claim.payload, events });
          } else uncount();
          if (answer.type === "lost") say({ event: "lost", key, runId });
          onFinished(answer);
        };
        const failed: typeof onError = (error) => {
          uncount();
          onError(error);
        };
        given.finishWriter.put(finish, finished, failed);
      };
      return inner(running, { ...given, finishWriter: { ...given.finishWriter, put } });
    };

  return {
    handler(handler) {
      const { flow } = handler;
      return flow ? { ...handler, flow: { ...flow, drive: drive(flow.drive) } } : handler;
    },
    keyOf: (runId) => keys.get(runId)!,
    async called(runId) {
      const key = keys.get(runId)!;
      const nth = (calls.get(runId) ?? 0) + 1;
      calls.set(runId, nth);
      const stop = stopOf(key);
      if (stop?.at === "call" && stop.nth === nth) await halt(key, runId);
    },
  };
}
