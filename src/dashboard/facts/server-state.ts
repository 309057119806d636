import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { HomeFacts } from "../api.ts";

/** Whether what is shown is how it is, as far as the page knows. */
export type ServerState =
  | { readonly type: "online" }
  /** Nothing answers. */
  | { readonly type: "away" }
  | { readonly type: "signed out" }
  /** It answers that it can't, as while its store is away. */
  | { readonly type: "unable"; readonly error: FlotillaError };

/** Decides it from the last answer about the caller, and from how the last reads have failed. */
export function serverStateOf(
  home: HomeFacts | undefined,
  errors: readonly unknown[],
): ServerState {
  const isStranger = home !== undefined && home.caller === undefined;
  if (isStranger || errors.some((error) => hasCode(error, "unauthorized")))
    return { type: "signed out" };
  if (errors.some(isAway)) return { type: "away" };
  const error = errors.find(isUnable);
  return error ? { type: "unable", error } : { type: "online" };
}

/** Nothing has answered, or not the server. */
function isAway(error: unknown): boolean {
  return hasCode(error, "unavailable") && error.details?.["away"] === true;
}

/** It concerns every read, and passes: another id or filter wouldn't help. */
function isUnable(error: unknown): error is FlotillaError {
  if (!(error instanceof FlotillaError)) return false;
  const passing = ["unavailable", "overloaded", "closed", "internal", "quota_exceeded"];
  return error.code.startsWith("store_") || passing.includes(error.code);
}
