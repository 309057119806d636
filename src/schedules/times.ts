import { Cron } from "croner";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { type Times, everyRange } from "./plan.ts";

const maxPatternChars = 200;
const maxZoneChars = 100;
const everyPattern = /^@every (\d{1,15})$/;
const nicknames = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const fieldNames = ["second", "minute", "hour", "day of month", "month", "day of week", "year"];

export function everyPatternOf(everyMs: number): string {
  return `@every ${everyMs}`;
}

/** The first time of a pattern after a moment; null if there is none. */
export function nextTime(pattern: string, zone: string, afterMs: number): number | null {
  return timesOf(pattern, zone).next(afterMs);
}

/** Parses a pattern in a zone; throws what is wrong and in which field. */
export function timesOf(pattern: string, zone: string): Times {
  checkZone(zone);
  if (typeof pattern !== "string" || pattern.length > maxPatternChars) {
    throw invalid(`a pattern is text of ${maxPatternChars} characters at most`, { pattern });
  }
  const text = pattern.trim();
  if (text.startsWith("@every")) return everySo(text);
  if (text.startsWith("@") && !nicknames.includes(text.toLowerCase())) {
    throw invalid(`there is no ${text}: use ${nicknames.join(", ")} or \`everyMs\``, { pattern });
  }
  return cronTimes(text, zone);
}

/** The interval of an `@every` pattern; null for other patterns. */
export function everyMsOf(pattern: string): number | null {
  const everyMs = Number(everyPattern.exec(pattern.trim())?.[1] ?? Number.NaN);
  return everyMs >= everyRange.min && everyMs <= everyRange.max ? everyMs : null;
}

function everySo(text: string): Times {
  const everyMs = everyMsOf(text);
  if (everyMs === null) {
    const { min, max } = everyRange;
    throw invalid(`${text}: an interval is ${min} to ${max} milliseconds`, { pattern: text });
  }
  const last = (untilMs: number) => Math.floor(untilMs / everyMs) * everyMs;
  return { last, next: (afterMs) => last(afterMs) + everyMs };
}

function cronTimes(text: string, zone: string): Times {
  const cron = parse(text, zone);
  return {
    next(afterMs) {
      const found = cron.nextRun(new Date(afterMs))?.getTime() ?? null;
      // Each next time must be later. Otherwise a caller's loop over times would never end.
      if (found === null || found > afterMs) return found;
      throw new FlotillaError("internal", `${text} in ${zone}: ${found} isn't after ${afterMs}`);
    },
    // `previousRuns` returns times strictly before a moment, and times are whole seconds.
    last: (untilMs) => {
      const secondMs = Math.floor(untilMs / 1_000) * 1_000;
      return cron.previousRuns(1, new Date(secondMs + 1_000))[0]?.getTime() ?? null;
    },
  };
}

function parse(text: string, zone: string): Cron {
  const fields = text.startsWith("@") ? [] : text.split(/\s+/);
  if (!text.startsWith("@") && (fields.length < 5 || fields.length > 7)) {
    throw invalid(
      `"${text}" has ${text === "" ? 0 : fields.length} fields; cron has 5 (minute, hour, day of month, month, day of week), with seconds before them 6, with years after them 7`,
      { pattern: text },
    );
  }
  try {
    return cronOf(text, zone);
  } catch (error) {
    throw invalidField(fields, zone) ?? invalid(`"${text}": ${reasonOf(error)}`, { pattern: text });
  }
}

/** Without a function, croner sets no timer: it only computes times. */
function cronOf(text: string, zone: string): Cron {
  return new Cron(text, { paused: true, timezone: zone });
}

/** The first field that is refused if all others are `*`. */
function invalidField(fields: readonly string[], zone: string): FlotillaError | undefined {
  const names = fields.length === 5 ? fieldNames.slice(1, 6) : fieldNames.slice(0, fields.length);
  for (const [at, value] of fields.entries()) {
    try {
      cronOf(fields.map((_, each) => (each === at ? value : "*")).join(" "), zone);
    } catch (error) {
      const field = names[at]!;
      const pattern = fields.join(" ");
      return invalid(
        `"${pattern}": field ${at + 1}, ${field}, can't be ${value}: ${reasonOf(error)}`,
        {
          pattern,
          field,
          value,
        },
      );
    }
  }
  return undefined;
}

function checkZone(zone: string): void {
  try {
    if (zone.length > maxZoneChars) throw new RangeError("too long");
    new Intl.DateTimeFormat("en", { timeZone: zone });
  } catch (error) {
    throw invalid(
      `there is no time zone ${JSON.stringify(zone)?.slice(0, maxZoneChars)}: give a name as in Europe/Berlin`,
      { zone },
      error,
    );
  }
}

function reasonOf(error: unknown): string {
  return messageOf(error, 200).replace(/^CronPattern: /, "");
}

function invalid(
  message: string,
  details: Readonly<Record<string, unknown>>,
  cause?: unknown,
): FlotillaError {
  return new FlotillaError("invalid_schedule", message, { details, cause });
}
