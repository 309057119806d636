import type { TaskFacts } from "../api.ts";
import { counted, durationText } from "./spans.ts";

/** Why a task waits, or how it ended, in a few words; undefined where its status says all. */
export type Remark = { readonly text: string; readonly isWrong: boolean };

export function remarkOf(task: TaskFacts, nowMs: number): Remark | undefined {
  const plain = (text: string) => ({ text, isWrong: false });
  const wrong = (text: string) => ({ text, isWrong: true });
  switch (task.status) {
    case "pending": {
      if (task.setAside) return wrong(`set aside: ${task.setAside.message}`);
      if (task.paused) return plain("its name is paused");
      if (task.noWorker) return wrong("no live pod has a handler for it");
      if (task.blockedBy !== null) return plain(`at the limit ${task.blockedBy}`);
      if (task.throttledBy) {
        const { name, ahead, aboutMs } = task.throttledBy;
        const about = aboutMs === null ? "" : `, about ${durationText(aboutMs)}`;
        return plain(`throttled by ${name}, ${ahead} ahead${about}`);
      }
      if (task.runAtMs > nowMs) {
        const why = task.failures > 0 ? `retries after ${task.error?.message ?? "a failure"}` : "";
        return plain(`due in ${durationText(task.runAtMs - nowMs)}${why && `, ${why}`}`);
      }
      if (task.error) return wrong(task.error.message);
      const depends = task.waitsFor.length;
      return depends > 0 ? plain(`depends on ${counted(depends, "task")}`) : undefined;
    }
    case "claimed":
      if (task.cancelRequested) return plain("is asked to stop");
      return task.failures > 0 ? plain(`attempt ${task.failures + 1}`) : undefined;
    case "failed":
      return wrong(task.error.message);
    case "cancelled":
      return task.error ? plain(task.error.message) : undefined;
    case "completed":
      return task.failures > 0 ? plain(`at attempt ${task.failures + 1}`) : undefined;
  }
}

/** What a caller may do to a task as it is. */
export type Possible = {
  readonly cancel: boolean;
  readonly retry: boolean;
  readonly resume: boolean;
};

export function possibleActs(task: TaskFacts): Possible {
  const isSetAside = task.status === "pending" && task.setAside !== null;
  return {
    cancel: (task.status === "pending" || task.status === "claimed") && !task.cancelRequested,
    retry: (task.status === "failed" || task.status === "cancelled") && task.flowVersion === null,
    resume: isSetAside && task.flowVersion === null,
  };
}
