import { FlotillaError } from "../../base/errors.ts";
import { check } from "../../base/schema.ts";
import { runHandler as runInScene } from "../../throttles/scope.ts";
import { createContext, resultText, type RunParts } from "./context.ts";
import { runAround } from "./middleware.ts";
import type { Claim } from "../rows.ts";
import { endingOf, type Running } from "./attempt.ts";
import type { Ending } from "../finish/outcome.ts";
import { sceneOf } from "../claim/throttle.ts";
import { inSpan, startRunSpan } from "../trace.ts";
import { endUnmet } from "../dependencies.ts";

/**
 * Runs the handler on a claimed task. Never throws or rejects: whatever happens is an ending. It is a
 * promise only where there is something to wait for, since that costs more than a short task.
 */
export function runHandler(running: Running, parts: RunParts): Ending | Promise<Ending> {
  const { claim, handler } = running;
  if (claim.doomed) return endUnmet(parts.database, claim.taskId);
  running.span = startRunSpan(claim, parts.podId);
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
        ? checked.then((input) => callHandler(running, input, parts))
        : callHandler(running, checked, parts);
    if (isThenable(returned)) return endingLater(running, returned, parts);
    const text = resultText(running, returned, parts.maxResultBytes);
    return text instanceof Promise ? endingLater(running, returned, parts, text) : ended(text);
  } catch (thrown) {
    return endingOf(running, thrown);
  }
}

async function endingLater(
  running: Running,
  returned: unknown,
  { maxResultBytes }: RunParts,
  text?: Promise<string>,
): Promise<Ending> {
  try {
    return ended(await (text ?? resultText(running, await returned, maxResultBytes)));
  } catch (thrown) {
    return endingOf(running, thrown);
  }
}

function ended(result: string): Ending {
  return { type: "returned", result };
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return false;
  return typeof (value as { then?: unknown }).then === "function";
}

function callHandler(running: Running, input: unknown, parts: RunParts): unknown {
  const { handler, span } = running;
  const { middleware, throttles } = parts;
  const context = createContext(running, input, parts);
  const scene = throttles && sceneOf(running, throttles);
  if (middleware.length === 0 && !span && !scene) return handler.run(context);
  const run = () =>
    middleware.length > 0 ? runAround(middleware, context, handler.run) : handler.run(context);
  const traced = span ? () => inSpan(span, run) : run;
  return scene ? runInScene(scene, traced) : traced();
}

function parsePayload(claim: Claim): unknown {
  try {
    return JSON.parse(claim.payload);
  } catch (error) {
    throw new FlotillaError("invalid_input", `the stored payload of "${claim.name}" isn't JSON`, {
      cause: error,
    });
  }
}
