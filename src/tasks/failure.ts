import type { Jsonify } from "../base/json.ts";
import type { TaskError } from "./rows.ts";

/** What the function of `onFailure` gets as its input: which task has failed, and why. */
export type TaskFailure<Input = unknown> = {
  readonly taskId: string;
  readonly name: string;
  /** What was enqueued, as it is stored. */
  readonly input: Jsonify<Input>;
  readonly error: TaskError;
  /** Attempts that failed. Deaths of pods aren't among them. */
  readonly attempts: number;
};

/** The task that runs after one of this name has failed. */
export function followUpName(name: string): string {
  return `${name}:failed`;
}
