import { FlotillaError } from "../../base/errors.ts";
import type { FrameMessage } from "../../protocol/frames.ts";
import type { SendMessage, StopTurn } from "../../sessions/service.ts";
import { type Caller, localUser } from "../auth/caller.ts";

/** A message as its writer may write it: users only as themselves, programs as whom they say. */
export function asWritten(caller: Caller, message: FrameMessage): SendMessage {
  const { role = "user", author, tokens, ...rest } = message;
  if (caller.kind !== "user") {
    const counted = tokens === undefined ? {} : { tokens };
    return { ...rest, ...counted, role, author: author ?? authorOf(caller) };
  }
  if (role !== "user")
    throw new FlotillaError("forbidden", "a user's token writes messages of the role `user` only");
  if (author !== undefined && author !== caller.user)
    throw new FlotillaError("forbidden", "a user's token writes as that user only");
  return { ...rest, role, author: authorOf(caller) };
}

/**
 * The trace that what is asked belongs to, where a program says so. A user's token says nothing of it: it
 * would put answers below any span, and choose which of them are sampled.
 */
export function tracedBy<Trace>({ kind }: Caller, trace: Trace | undefined): { trace?: Trace } {
  return kind === "user" || trace === undefined ? {} : { trace };
}

/** Who stops an answer, as far as the server knows: a key needn't speak for a user. */
export function stopperOf({ kind, user, keyName }: Caller): Pick<StopTurn, "author" | "by"> {
  if (user !== undefined) return { author: user, by: "user" };
  if (kind === "local") return { author: localUser, by: "user" };
  return { author: keyName ?? "key", by: "key" };
}

export function authorOf({ kind, user }: Caller): string {
  if (user !== undefined) return user;
  if (kind === "local") return localUser;
  throw new FlotillaError(
    "invalid_input",
    "say who writes: `author`, `Flotilla-User` as a header, or `user` of a client",
  );
}
