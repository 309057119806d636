import { Cron } from "croner";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";

/**
 * When a pattern's times are. Pure: a pattern and a zone give the same times to whoever asks, so that
 * any leader goes on where another has stopped.
 *
 * A pattern is cron (five fields; a sixth before them for seconds, a seventh after them for years), a
 * nickname such as `@daily`, or `@every 300000`: that many milliseconds, counted from 1970.
 */
type Times = {
  /** The first time after this one; null where there is none. */
  next(afterMs: number): number | null;
  /** The last time up to this one; null where there is none. */
  last(untilMs: number): number | null;
};

const patternChars = 200;
const zoneChars = 100;
const everyPattern = /^@every (\d{1,15})$/;
const nicknames = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const fieldNames = ["second", "minute", "hour", "day of month", "month", "day of week", "year"];

export function everyPatternOf(everyMs: number): string {
  return `@every ${everyMs}`;
}

/** The first time of a pattern after a moment; null where there is none. */
export function nextTime(pattern: string, zone: string, afterMs: number): number | null {
  return timesOf(pattern, zone).next(afterMs);
}

/** The times of a pattern in a zone, or an error that says what is wrong with them and where. */
export function timesOf(pattern: string, zone: string): Times {
  checkZone(zone);
  if (typeof pattern !== "string" || pattern.length > patternChars) {
    throw invalid(`a pattern is text of ${patternChars} characters at most`, { pattern });
  }
  const text = pattern.trim();
  if (text.startsWith("@every")) return everySo(text);
  if (text.startsWith("@") && !nicknames.includes(text.toLowerCase())) {
    throw invalid(`there is no ${text}: use ${nicknames.join(", ")} or \`everyMs\``, { pattern });
  }
  return cronTimes(text, zone);
}

/** The interval that a pattern stands for; null where it stands for none. */
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
      // Whoever asks for the next time again and again must get on, or he would never come to an end.
      if (found === null || found > afterMs) return found;
      throw new FlotillaError("internal", `${text} in ${zone}: ${found} isn't after ${afterMs}`);
    },
    // It gives what comes before a moment, and times are whole seconds.
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
    throw guilty(fields, zone) ?? invalid(`"${text}": ${reasonOf(error)}`, { pattern: text });
  }
}

/** No function is given to it, so it sets no timer: it only knows times. */
function cronOf(text: string, zone: string): Cron {
  return new Cron(text, { paused: true, timezone: zone });
}

/** The first field that is refused though all others are `*`. */
function guilty(fields: readonly string[], zone: string): FlotillaError | undefined {
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
    if (zone.length > zoneChars) throw new RangeError("too long");
    new Intl.DateTimeFormat("en", { timeZone: zone });
  } catch (error) {
    throw invalid(
      `there is no time zone ${JSON.stringify(zone)?.slice(0, zoneChars)}: give a name as in Europe/Berlin`,
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

/** What becomes of times that came while nobody fired. */
export type Missed = "skip" | "once" | "all";

export const missedPolicies: readonly Missed[] = ["skip", "once", "all"];

/** An interval shorter than the leader's passes couldn't be kept. */
export const everyRange = { min: 1_000, max: yearMs };

/** What to do about a schedule now. */
type Plan = {
  /** The times that get a task, oldest first. */
  readonly fire: readonly number[];
  /** How many times get none, counted up to a hundred. */
  readonly skipped: number;
  readonly nextAtMs: number | null;
};

type Due = {
  /** The next time as the row says it; 0 where it isn't worked out, null where there is none. */
  readonly nextAtMs: number | null;
  readonly afterMs: number;
  readonly missed: Missed;
  /** No more than so many tasks, though more times were missed. */
  readonly most?: number;
};

/** So many times are fired, and counted, for one schedule at once. */
export const timesMost = 100;
// Somebody has to take over from a leader that dies, and no time should be lost by that.
const graceMs = 60_000;

/**
 * Decides; never does. A time is missed if another one has come since, or if it is a minute late and
 * so not merely waiting for its leader. `skip` fires the last time unless it was missed too, `once`
 * fires the last time however late, and `all` fires them one by one, the oldest hundred at most.
 */
export function planOf(times: Times, row: Due, nowMs: number): Plan {
  const first = row.nextAtMs === 0 ? times.next(row.afterMs) : row.nextAtMs;
  const due: number[] = [];
  let next = first;
  while (next !== null && next <= nowMs && due.length < 2 * timesMost) {
    due.push(next);
    next = times.next(next);
  }
  if (due.length === 0) return { fire: [], skipped: 0, nextAtMs: next };
  const more = next !== null && next <= nowMs;
  const last = (more ? times.last(nowMs) : null) ?? due.at(-1)!;
  const fire = chosen(row, due, last, nowMs);
  return {
    fire,
    skipped: Math.min(due.length - fire.length, timesMost),
    nextAtMs: more ? times.next(nowMs) : next,
  };
}

function chosen(
  { missed, most = timesMost }: Due,
  due: readonly number[],
  last: number,
  nowMs: number,
): readonly number[] {
  switch (missed) {
    case "all":
      return due.slice(0, Math.min(most, timesMost));
    case "once":
      return [last];
    case "skip":
      return nowMs - last <= graceMs ? [last] : [];
  }
}
