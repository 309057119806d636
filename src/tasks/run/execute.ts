import { FlotillaError, hasCode } from "../../base/errors.ts";
import { storableText } from "../../base/json.ts";
import { check } from "../../base/schema.ts";
import { parseStored } from "../../store/codec/codec.ts";
import { runInThrottleScope } from "../../throttles/scope.ts";
import { createContext, resultText } from "./context.ts";
import { parkedOutcome } from "./steps.ts";
import { runAround } from "./middleware.ts";
import type { Claim, SetAsideTask } from "../rows.ts";
import { outcomeOfThrown } from "./attempt.ts";
import { throttleScopeOf } from "../claim/throttle.ts";
import { inSpan, startAttemptSpan } from "../trace.ts";
import { dependencyFailedOutcome } from "../dependencies.ts";
import type { AttemptParts, TaskAttempt, AttemptOutcome } from "../model.ts";

/**
 * Runs the handler of a claimed task. Never throws or rejects: every result is an outcome. It
 * returns a promise only if there is something to await, because a promise costs more than a short
 * task.
 */
export function executeAttempt(
  attempt: TaskAttempt,
  parts: AttemptParts,
): AttemptOutcome | Promise<AttemptOutcome> {
  const { claim, handler } = attempt;
  if (claim.dependencyFailed) return dependencyFailedOutcome(parts.database, claim.taskId);
  attempt.span = startAttemptSpan(claim, parts.podId);
  try {
    const stored = parsePayload(claim);
    const checked = check(
      handler.input,
      stored,
      `the stored payload of "${claim.name}"`,
      "invalid_input",
    );
    const returned =
      checked instanceof Promise
        ? checked.then((input) => callHandler(attempt, input, parts))
        : callHandler(attempt, checked, parts);
    if (isThenable(returned)) return outcomeLater(attempt, returned, parts);
    const text = resultText(attempt, returned, parts);
    return text instanceof Promise
      ? outcomeLater(attempt, returned, parts, text)
      : afterSteps(attempt, returnedOutcome(text));
  } catch (thrown) {
    return afterSteps(attempt, outcomeOfThrown(attempt, thrown));
  }
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return false;
  return typeof (value as { then?: unknown }).then === "function";
}

async function outcomeLater(
  attempt: TaskAttempt,
  returned: unknown,
  parts: AttemptParts,
  text?: Promise<string>,
): Promise<AttemptOutcome> {
  try {
    const result = await (text ?? resultText(attempt, await returned, parts));
    return await afterSteps(attempt, returnedOutcome(result));
  } catch (thrown) {
    return afterSteps(attempt, outcomeOfThrown(attempt, thrown));
  }
}

/**
 * The outcome once all steps have settled. After a step was refused, the handler's result is based on
 * something that did not happen.
 */
function afterSteps(
  attempt: TaskAttempt,
  outcome: AttemptOutcome,
): AttemptOutcome | Promise<AttemptOutcome> {
  const { steps } = attempt;
  if (steps === undefined) return outcome;
  return steps
    .settle(outcome.type === "returned")
    .then(() => (steps.refused ? refusedOutcome(attempt) : outcome));
}

function refusedOutcome(attempt: TaskAttempt): AttemptOutcome {
  if (attempt.stopReason) return outcomeOfThrown(attempt, undefined);
  const changed = attempt.steps?.changed;
  if (changed) return { type: "set_aside", why: { ...changed.details, ...facts(changed) } };
  const park = attempt.steps?.parked;
  // Without a reason of its own the attempt is left to another pod, because this one stops.
  return park ? parkedOutcome(attempt.claim.taskId, park) : { type: "interrupted" };
}

function facts({ code, message }: FlotillaError): Pick<SetAsideTask, "reason" | "message"> {
  return { reason: code, message: storableText(message) };
}

function returnedOutcome(result: string): AttemptOutcome {
  return { type: "returned", result };
}

function callHandler(attempt: TaskAttempt, input: unknown, parts: AttemptParts): unknown {
  const { handler, span } = attempt;
  const { middleware, throttles } = parts;
  const context = createContext(attempt, input, parts);
  const scope = throttles && throttleScopeOf(attempt, throttles);
  if (middleware.length === 0 && !span && !scope) return handler.run(context);
  const run = () =>
    middleware.length > 0 ? runAround(middleware, context, handler.run) : handler.run(context);
  const traced = span ? () => inSpan(span, run) : run;
  return scope ? runInThrottleScope(scope, traced) : traced();
}

function parsePayload(claim: Claim): unknown {
  try {
    return parseStored(claim.payload);
  } catch (error) {
    if (hasCode(error, "codec_failed")) throw error;
    throw new FlotillaError("invalid_input", `the stored payload of "${claim.name}" isn't JSON`, {
      cause: error,
    });
  }
}
