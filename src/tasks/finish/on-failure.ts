import type { Ids } from "../../base/ids.ts";
import { followUpName } from "../failure.ts";
import type { Claim } from "../rows.ts";
import type { Finish } from "../sql/finish.ts";
import type { FollowUp } from "../sql/follow-up.ts";
import type { TaskHandler } from "../task.ts";

/**
 * The handlers by name, with those that `onFailure` brings. What follows a failure is a task like any
 * other: it is stored, claimed, tried again, and can be looked at.
 */
export function withFollowUps(handlers: Iterable<TaskHandler>): TaskHandler[] {
  return [...handlers].flatMap((handler) => [
    handler,
    ...(handler.onFailure ? [handler.onFailure] : []),
  ]);
}

/** A failed task, as far as what follows it needs to know. */
export type Failed = Pick<Claim, "taskId" | "name" | "payload" | "token"> & {
  readonly attempts: number;
  /** The error as it is stored. */
  readonly error: string;
};

/** One per claim that fails: a task that is started over and fails again has another token. */
export function followUpOf(failed: Failed, ids: Ids): FollowUp {
  const { taskId, name, token, attempts, error } = failed;
  const facts = JSON.stringify({ taskId, name, attempts });
  return {
    taskId: ids.next(),
    failedId: taskId,
    token,
    name: followUpName(name),
    payload: `${facts.slice(0, -1)},"input":${asJson(failed.payload)},"error":${error}}`,
  };
}

/** A row that was inserted by hand may hold anything; it is passed on as text then. */
function asJson(payload: string): string {
  try {
    JSON.parse(payload);
    return payload;
  } catch {
    return JSON.stringify(payload);
  }
}

/** Adds what follows, where an attempt has failed its task for good and its handler wants to know. */
export function withFollowUp(finish: Finish, claim: Claim, handler: TaskHandler, ids: Ids): Finish {
  const { status, error, event, counted } = finish;
  if (status !== "failed" || error === null || !handler.onFailure) return finish;
  const followUp = followUpOf({ ...claim, attempts: claim.failures + counted, error }, ids);
  const detail = `${error.slice(0, -1)},"followUp":${JSON.stringify(followUp.taskId)}}`;
  return { ...finish, followUp, event: event && { ...event, detail } };
}
