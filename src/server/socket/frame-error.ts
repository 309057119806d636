import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FrameError, Ref, ServerFrame } from "../../protocol/frames.ts";
import { statusOf } from "../errors.ts";

/** An error as clients may see it. What wasn't thrown on purpose is logged, and not shown. */
export function frameErrorOf(thrown: unknown, log: Logger): FrameError {
  const isOurs = thrown instanceof FlotillaError;
  const code = isOurs ? thrown.code : "internal";
  // A server that stops refuses what is still coming in, and its clients go elsewhere.
  if (statusOf(code) >= 500 && code !== "closed")
    log.error({ code, error: messageOf(thrown) }, "a socket's frame failed");
  const message = isOurs ? thrown.message : "something went wrong; the server's log says what";
  const retryAfterMs = isOurs ? thrown.retryAfterMs : undefined;
  return {
    code,
    message,
    details: (isOurs && thrown.details) || {},
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

export function errorFrame(ref: Ref | undefined, thrown: unknown, log: Logger): ServerFrame {
  return { type: "error", ...(ref !== undefined && { ref }), ...frameErrorOf(thrown, log) };
}
