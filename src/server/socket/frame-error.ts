import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FrameError, Ref, ServerFrame } from "../../protocol/frames.ts";
import { isTooMuch, shownOf, statusOf } from "../errors.ts";

/** An error as clients may see it. What wasn't thrown on purpose is logged, and not shown. */
export function frameErrorOf(thrown: unknown, log: Logger): FrameError {
  const isOurs = thrown instanceof FlotillaError;
  const code = isOurs ? thrown.code : "internal";
  // A server that stops refuses what is still coming in, and its clients go elsewhere.
  if (isTooMuch(code)) log.debug({ code }, "a socket's frame was refused for too much");
  else if (statusOf(code) >= 500 && code !== "closed")
    log.error({ code, error: messageOf(thrown) }, "a socket's frame failed");
  const error = isOurs ? thrown : new FlotillaError("internal", messageOf(thrown));
  const { details, retryAfterMs } = error;
  return {
    code,
    ...shownOf(error, details),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

export function errorFrame(ref: Ref | undefined, thrown: unknown, log: Logger): ServerFrame {
  return { type: "error", ...(ref !== undefined && { ref }), ...frameErrorOf(thrown, log) };
}
