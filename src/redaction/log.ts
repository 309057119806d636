import { type Logger, silentLogger } from "../base/log.ts";
import { type Redactor, sharedRedactor } from "./redactor.ts";

type Level = "debug" | "info" | "warn" | "error";

/** A pino logger says which lines it drops. */
type Leveled = Logger & { isLevelEnabled?: (level: Level) => boolean };

/** Loggers that redact already, so that parts that are given one needn't know. */
const redacting = new WeakSet<Logger>();

/** A logger whose lines have no secrets: neither in their fields nor in their messages. */
export function redactingLogger(
  log: Logger,
  redactor: Pick<Redactor, "value" | "text"> = sharedRedactor,
): Logger {
  if (log === silentLogger || redacting.has(log)) return log;
  const { isLevelEnabled } = log as Leveled;
  const at = (level: Level) => (fields: object, message: string) => {
    if (isLevelEnabled && !isLevelEnabled.call(log, level)) return;
    log[level](fieldsOf(redactor.value(fields, "log")), redactor.text(message));
  };
  const made = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  redacting.add(made);
  return made;
}

/** Fields that couldn't be read leave nothing but that. */
function fieldsOf(left: unknown): object {
  return typeof left === "object" && left !== null ? left : { fields: left };
}
