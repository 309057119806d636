import process from "node:process";
import { pino } from "pino";
import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

const levels = [...Object.keys(pino.levels.values), "silent"];

/** JSON lines on standard error, so that standard output stays the program's own. */
export function defaultLogger(level = process.env["FLOTILLA_LOG_LEVEL"] ?? "info"): Logger {
  if (!levels.includes(level)) {
    throw new FlotillaError(
      "invalid_option",
      `FLOTILLA_LOG_LEVEL must be one of ${levels.join(", ")}, not ${JSON.stringify(level)}`,
    );
  }
  return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
}
