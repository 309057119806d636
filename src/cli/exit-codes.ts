import process from "node:process";
import { CommanderError } from "commander";
import { type ErrorCode, FlotillaError } from "../base/errors.ts";

/** What the command's exit code says. Documented in `flotilla --help`. */
export const exitCodes = { ok: 0, error: 1, usage: 2, store: 3, refused: 4 } as const;

/** The exit code for whatever a command threw. */
export function exitCodeOf(thrown: unknown): number {
  if (thrown instanceof CommanderError) {
    return thrown.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
  }
  return thrown instanceof FlotillaError ? codeOf(thrown.code) : exitCodes.error;
}

const usage: readonly ErrorCode[] = ["invalid_option", "invalid_schedule", "unsupported"];

function codeOf(code: ErrorCode): number {
  if (code.startsWith("store_")) return exitCodes.store;
  if (usage.includes(code)) return exitCodes.usage;
  if (code === "not_found" || code === "conflict" || code === "duplicate_key")
    return exitCodes.refused;
  return exitCodes.error;
}

/** Says what went wrong, on standard error. Errors that aren't ours are bugs, and keep their stack. */
export function explain(thrown: unknown, { json }: { json: boolean }): void {
  // Its message was printed when it was found, in its own form.
  if (thrown instanceof CommanderError) return;
  if (json && thrown instanceof FlotillaError) {
    const { code, message, details = {} } = thrown;
    process.stderr.write(`${JSON.stringify({ error: { code, message, details } })}\n`);
    return;
  }
  const text =
    thrown instanceof FlotillaError
      ? thrown.message
      : thrown instanceof Error
        ? (thrown.stack ?? thrown.message)
        : String(thrown);
  process.stderr.write(`flotilla: ${text}\n`);
}
