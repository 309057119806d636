import { FlotillaError } from "../../base/errors.ts";
import { encodeJson } from "../../base/json.ts";
import { check } from "../../base/schema.ts";
import type { Database } from "../../store/database.ts";
import type { Running } from "./attempt.ts";
import { completion } from "../finish/outcome.ts";
import { finishTasks, wakeAfter } from "../sql/finish.ts";

/**
 * Completes a task in a transaction of its handler's. Whether that commits is for the handler, so
 * from here on only the row can say how the attempt ended.
 */
export async function completeWithin<Result>(
  running: Running,
  tx: unknown,
  result: Result,
  { database, maxResultBytes }: { database: Database; maxResultBytes: number },
): Promise<Result> {
  const { claim } = running;
  const transaction = database.within(tx);
  const stored = await resultText(running, result, maxResultBytes);
  if (running.ended) throw claimLost(claim.taskId);
  running.completing = true;
  const finish = completion(claim, stored);
  const [changed] = claim.awaited ? [[]] : await transaction.write([finishTasks([finish])]);
  if (changed!.length > 0) return result;
  // Others wait for it, or it is lost; they are woken when the caller commits.
  const awaited = [{ ...finish, awaited: true }];
  const statements = [finishTasks(awaited), ...wakeAfter(awaited)];
  const [finished] = await transaction.write(statements, { hint: true });
  if (finished!.length === 0) throw claimLost(claim.taskId);
  return result;
}

/** A result as it is stored, once it has been checked. Synchronous unless the schema isn't. */
export function resultText(
  { claim, handler }: Running,
  result: unknown,
  maxBytes: number,
): string | Promise<string> {
  const what = `the result of "${claim.name}"`;
  const encode = (value: unknown) => encodeJson(what, value, { maxBytes });
  const checked = check(handler.output, result, what, "invalid_output");
  return checked instanceof Promise ? checked.then(encode) : encode(checked);
}

export function notCommitted(name: string): FlotillaError {
  const message = `the handler of "${name}" called \`complete\`, but its transaction wasn't committed`;
  return new FlotillaError("not_committed", message);
}

function claimLost(taskId: string): FlotillaError {
  return new FlotillaError("claim_lost", `task ${taskId} isn't this attempt's any more: roll back`);
}
