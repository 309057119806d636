import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { TaskError } from "../rows.ts";

const stackChars = 4_000;
const retryAfterLimitMs = 7 * 24 * 60 * 60_000;

/** Errors for which another attempt could only end the same way. */
export const finalCodes: readonly string[] = [
  "aborted",
  "invalid_input",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
];

/** What is stored of something that was thrown. */
export function thrownError(thrown: unknown): TaskError {
  const code = thrown instanceof FlotillaError ? thrown.code : "handler_failed";
  const stack = thrown instanceof Error ? fieldOf(thrown, "stack") : undefined;
  return {
    code,
    message: thrownText(thrown),
    ...(typeof stack === "string" && stack && { stack: storable(stack.slice(0, stackChars)) }),
  };
}

export function thrownText(thrown: unknown): string {
  return storable(messageOf(thrown));
}

/** How long it asks to wait before another attempt; 0 where it says nothing of that. */
export function retryAfterOf(thrown: unknown): number {
  const asked = fieldOf(thrown, "retryAfterMs");
  return typeof asked === "number" && asked > 0
    ? Math.min(Math.round(asked), retryAfterLimitMs)
    : 0;
}

/** Handlers throw everything, also objects that throw when they are looked at. */
function fieldOf(thrown: unknown, field: string): unknown {
  try {
    return (thrown as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

/** A lone surrogate or U+0000 in a message would make the whole batch of finishes unstorable. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\u0000", "\uFFFD");
}
