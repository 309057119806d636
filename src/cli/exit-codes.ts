import process from "node:process";
import { CommanderError } from "commander";
import { type ErrorCode, errorCodes, FlotillaError } from "../base/errors.ts";
import { sanitize } from "./output.ts";

/** The exit codes of commands. */
export const exitCodes = { ok: 0, error: 1, usage: 2, store: 3, refused: 4 } as const;

/** For `flotilla --help`. docs/errors.md and docs/operations-reference.md use the same words. */
export const exitCodeMeanings: Readonly<Record<number, string>> = {
  [exitCodes.ok]: "success",
  [exitCodes.error]: "failure",
  [exitCodes.usage]: "wrong usage: an unknown command or option, or an invalid value",
  [exitCodes.store]: "the store is missing, damaged, read-only, full, busy or of another release",
  [exitCodes.refused]:
    "there is no such task, run or session, its state doesn't allow that, or the port is taken",
};

const usage: readonly ErrorCode[] = ["invalid_option", "invalid_schedule", "unsupported"];

/** The exit code for what a command threw. */
export function exitCodeOf(thrown: unknown): number {
  if (thrown instanceof CommanderError) {
    return thrown.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
  }
  return thrown instanceof FlotillaError ? exitCodeFor(knownCode(thrown)) : exitCodes.error;
}

/** Prints an error to standard error. An error that isn't a FlotillaError is a bug, and keeps its stack. */
export function explain(thrown: unknown, { json }: { json: boolean }): void {
  // Commander has printed its message already.
  if (thrown instanceof CommanderError) return;
  if (json && thrown instanceof FlotillaError) {
    const { message, details = {} } = thrown;
    const code = knownCode(thrown);
    process.stderr.write(`${JSON.stringify({ error: { code, message, details } })}\n`);
    return;
  }
  const text =
    thrown instanceof FlotillaError
      ? thrown.message
      : thrown instanceof Error
        ? (thrown.stack ?? thrown.message)
        : String(thrown);
  // It may quote a server, a store or a file.
  process.stderr.write(`flotilla: ${sanitize(text)}\n`);
}

/** A newer server, or another program at its URL, may send a code that this release doesn't know. */
function knownCode({ code }: FlotillaError): ErrorCode {
  return errorCodes.includes(code) ? code : "unavailable";
}

function exitCodeFor(code: ErrorCode): number {
  if (code.startsWith("store_")) return exitCodes.store;
  if (usage.includes(code)) return exitCodes.usage;
  const states = ["not_found", "conflict", "cursor_expired", "duplicate_key"];
  if (states.includes(code)) return exitCodes.refused;
  return exitCodes.error;
}
