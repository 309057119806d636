import process from "node:process";
import { pino } from "pino";
import type { Logger } from "../base/log.ts";

/** JSON lines on standard error, so that standard output stays the program's own. */
export function defaultLogger(level = process.env["FLOTILLA_LOG_LEVEL"] ?? "info"): Logger {
  return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
}
