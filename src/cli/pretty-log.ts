import { styleText } from "node:util";
import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import { type LogLevel, logLevels } from "./flags.ts";
import { oneLine } from "./output.ts";

export type PrettyLogOptions = {
  level: LogLevel;
  clock: Pick<Clock, "now">;
  stream: NodeJS.WritableStream;
  write: (line: string) => void;
};

const styles = { debug: "gray", info: "blue", warn: "yellow", error: "red" } as const;
// Ids differ in their last characters; the first ones are the time.
const idChars = 8;
const fieldChars = 120;
// The id of the pod and tokens are noise on the terminal of one pod.
const quiet = new Set(["pod", "token"]);

/** Writes one readable line per event, for a terminal. Programs get JSON. */
export function prettyLogger({ level, clock, stream, write }: PrettyLogOptions): Logger {
  const lowest = logLevels.indexOf(level);
  const at = (name: keyof typeof styles) => {
    if (logLevels.indexOf(name) < lowest) return () => {};
    return (fields: object, message: string) => {
      const time = new Date(clock.now()).toTimeString().slice(0, 8);
      const dim = styleText("dim", time, { stream });
      const label = styleText(styles[name], name.padEnd(5), { stream });
      const rest = styleText("dim", describe(fields), { stream });
      write(`${dim} ${label} ${oneLine(message, 500)}${rest}`);
    };
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

/** The fields in their order, ids shortened, without line breaks. */
function describe(fields: object): string {
  const shown = Object.entries(fields)
    .filter(([name, value]) => value !== undefined && !quiet.has(name))
    .map(([name, value]) => `${name}=${shorten(name, value)}`);
  return shown.length > 0 ? `  ${shown.join(" ")}` : "";
}

function shorten(name: string, value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? String(value));
  if (name === "task" || name === "leader") return `…${text.slice(-idChars)}`;
  return oneLine(text, fieldChars);
}
