/** When a schedule fires: a cron pattern in a zone, or an interval. */
export type Recurrence = {
  readonly pattern: string | null;
  readonly zone: string | null;
  readonly everyMs: number | null;
};

/** When a schedule fires, in words. A pattern that words would only blur is shown as it is written. */
export function patternWords({ pattern, zone, everyMs }: Recurrence): string {
  if (everyMs !== null) return intervalWords(everyMs);
  if (pattern === null) return "never";
  const words = cronWords(pattern.trim());
  if (words === undefined) return zone === null ? pattern : `${pattern}, ${zone}`;
  // What comes all day long is the same in every zone.
  return words.isOfZone && zone !== null ? `${words.text}, ${zone}` : words.text;
}

const units = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1_000],
] as const;

function intervalWords(everyMs: number): string {
  const [unit, size] = units.find(([, each]) => everyMs >= each && everyMs % each === 0) ?? [
    "millisecond",
    1,
  ];
  return everySo(everyMs / size, unit);
}

function everySo(count: number, unit: string): string {
  return count === 1 ? `every ${unit}` : `every ${count.toLocaleString("en-US")} ${unit}s`;
}

const nicknames = new Map([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@monthly", "0 0 1 * *"],
  ["@weekly", "0 0 * * 0"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
]);

const monthNames = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const dayNames = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** The values of a field, in order, and whether these are all that it can have. */
type Field = { readonly values: readonly number[]; readonly isAll: boolean };
type Range = { readonly min: number; readonly max: number; readonly names?: readonly string[] };

const ranges = {
  second: { min: 0, max: 59 },
  minute: { min: 0, max: 59 },
  hour: { min: 0, max: 23 },
  day: { min: 1, max: 31 },
  month: { min: 1, max: 12, names: monthNames },
  // 7 is Sunday as well.
  weekday: { min: 0, max: 7, names: dayNames },
  year: { min: 1, max: 9_999 },
} as const satisfies Readonly<Record<string, Range>>;

const maxPatternChars = 200;
// A list of more is longer than the pattern.
const maxListed = 6;

type Words = { readonly text: string; readonly isOfZone: boolean };

function cronWords(pattern: string): Words | undefined {
  if (pattern.length > maxPatternChars) return undefined;
  const cron = nicknames.get(pattern.toLowerCase()) ?? pattern;
  const given = cron.split(/\s+/);
  if (given.length < 5 || given.length > 7) return undefined;
  const [second, minute, hour, day, month, weekday, year = "*"] =
    given.length === 5 ? ["0", ...given] : given;
  const fields = {
    second: fieldOf(second!, ranges.second),
    minute: fieldOf(minute!, ranges.minute),
    hour: fieldOf(hour!, ranges.hour),
    day: fieldOf(day!, ranges.day),
    month: fieldOf(month!, ranges.month),
    weekday: fieldOf(weekday!, ranges.weekday),
    year: year === "*" ? { values: [], isAll: true } : fieldOf(year, ranges.year),
  };
  if (Object.values(fields).includes(undefined)) return undefined;
  const known = fields as { readonly [Name in keyof typeof fields]: Field };
  const time = timeWords(known);
  const days = dayWords(known);
  const years = known.year.isAll ? "" : listed(known.year.values.map(String));
  if (time === undefined || days === undefined || years === undefined) return undefined;
  const isDaily = days === "";
  const when = time.isRepeated
    ? [time.text, days].filter((part) => part !== "").join(", ")
    : `${isDaily ? "every day" : days} ${time.text}`;
  return {
    text: years === "" ? when : `${when}, in ${years}`,
    isOfZone: !time.isRepeated || time.isOfZone || !isDaily || years !== "",
  };
}

type TimeWords = {
  readonly text: string;
  /** It comes more than once a day, so that the days are said after it. */
  readonly isRepeated: boolean;
  readonly isOfZone: boolean;
};

/** When on a day: `at 03:00`, `every 5 minutes from 09:00 to 17:59`. */
function timeWords(fields: {
  readonly second: Field;
  readonly minute: Field;
  readonly hour: Field;
}): TimeWords | undefined {
  const { second, minute, hour } = fields;
  const repeated = (text: string, isOfZone = false) => ({ text, isRepeated: true, isOfZone });
  if (second.values.length > 1) {
    const step = stepOf(second, 60);
    const isAlways = minute.isAll && hour.isAll;
    return isAlways && step !== undefined ? repeated(everySo(step, "second")) : undefined;
  }
  const atSecond = second.values[0]!;
  const times = minute.values.length * hour.values.length;
  if (!hour.isAll && times <= maxListed) {
    const at = hour.values.flatMap((h) => minute.values.map((m) => clockText(h, m, atSecond)));
    const evenHours = stepOf(hour, 24);
    if (evenHours === undefined || hour.values.length <= 2)
      return { text: `at ${listed(at)!}`, isRepeated: false, isOfZone: true };
  }
  if (atSecond !== 0) return undefined;
  if (minute.values.length > 1) {
    const step = stepOf(minute, 60);
    if (step === undefined) return undefined;
    const text = everySo(step, "minute");
    if (hour.isAll) return repeated(text);
    const span = spanOf(hour.values);
    if (span === undefined) return undefined;
    const until = clockText(span.last, minute.values.at(-1)!, 0);
    return repeated(`${text} from ${clockText(span.first, 0, 0)} to ${until}`, true);
  }
  const atMinute = minute.values[0]!;
  const past = atMinute === 0 ? "" : `, ${counted(atMinute, "minute")} past`;
  const hours = stepOf(hour, 24);
  if (hours !== undefined) return repeated(everySo(hours, "hour") + past, hours > 1);
  const span = spanOf(hour.values);
  if (span === undefined) return undefined;
  const [from, to] = [clockText(span.first, atMinute, 0), clockText(span.last, atMinute, 0)];
  return repeated(`every hour from ${from} to ${to}`, true);
}

/** On which days: empty for every day. */
function dayWords(fields: {
  readonly day: Field;
  readonly month: Field;
  readonly weekday: Field;
}): string | undefined {
  const { day, month, weekday } = fields;
  const months = month.isAll ? "" : listedNames(month.values, (at) => monthNames[at - 1]!);
  const weekdays = weekday.isAll ? "" : weekdayWords(weekday.values);
  const days = day.isAll ? "" : listedNames(day.values, ordinal);
  if (months === undefined || weekdays === undefined || days === undefined) return undefined;
  const onDays = days === "" ? "" : `on the ${days} of ${months === "" ? "every month" : months}`;
  // Cron takes either, where both are given.
  if (onDays !== "" && weekdays !== "") return `${onDays} and ${weekdays}`;
  if (onDays !== "") return onDays;
  if (months === "") return weekdays;
  return `${weekdays === "" ? "every day" : weekdays} in ${months}`;
}

function weekdayWords(values: readonly number[]): string | undefined {
  if (values.length === 1) return `every ${dayNames[values[0]!]!}`;
  const span = spanOf(values);
  if (span && values.length > 2) return `${dayNames[span.first]!} to ${dayNames[span.last]!}`;
  const names = listed(values.map((at) => dayNames[at]!));
  return names && `on ${names}`;
}

function listedNames(
  values: readonly number[],
  nameOf: (value: number) => string,
): string | undefined {
  const span = spanOf(values);
  if (span && values.length > 2) return `${nameOf(span.first)} to ${nameOf(span.last)}`;
  return listed(values.map(nameOf));
}

/** `a, b and c`, unless there are too many. */
function listed(texts: readonly string[]): string | undefined {
  if (texts.length > maxListed) return undefined;
  if (texts.length < 2) return texts[0] ?? "";
  return `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)!}`;
}

/** The first and the last, if none between them is missing. */
function spanOf(
  values: readonly number[],
): { readonly first: number; readonly last: number } | undefined {
  const [first, last] = [values[0]!, values.at(-1)!];
  return last - first === values.length - 1 ? { first, last } : undefined;
}

/** How far apart they are, if they are evenly so from 0 on, also from the last to the next first. */
function stepOf({ values }: Field, size: number): number | undefined {
  const step = size / values.length;
  return Number.isInteger(step) && values.every((value, at) => value === at * step)
    ? step
    : undefined;
}

/** The values of `*`, `5`, `1-5`, `MON-FRI`, `*`/2, `0-30/10` and lists of these; else undefined. */
function fieldOf(text: string, range: Range): Field | undefined {
  const values = new Set<number>();
  for (const part of text.split(",")) {
    const [span = "", step = "1", ...more] = part.split("/");
    const [from = "", to = from, ...others] = span === "*" ? ["*"] : span.split("-");
    const isStepped = part.includes("/");
    const [first, last] =
      span === "*" ? [range.min, range.max] : [valueOf(from, range), valueOf(to, range)];
    const by = /^\d{1,4}$/.test(step) ? Number(step) : 0;
    // One value with a step means different things to different programs.
    const isOdd = more.length > 0 || others.length > 0 || (isStepped && !/[*-]/.test(span));
    if (isOdd || first === undefined || last === undefined || by < 1 || first > last)
      return undefined;
    if (range === ranges.year && last - first > maxListed) return undefined;
    for (let value = first; value <= last; value += by) values.add(value);
  }
  if (range === ranges.weekday && values.delete(7)) values.add(0);
  const size = (range === ranges.weekday ? 6 : range.max) - range.min + 1;
  return { values: [...values].toSorted((a, b) => a - b), isAll: values.size === size };
}

function valueOf(text: string, { min, max, names = [] }: Range): number | undefined {
  const named = names.findIndex((name) => name.slice(0, 3).toLowerCase() === text.toLowerCase());
  if (named >= 0) return named + min;
  if (!/^\d{1,4}$/.test(text)) return undefined;
  const value = Number(text);
  return value >= min && value <= max ? value : undefined;
}

function clockText(hour: number, minute: number, second: number): string {
  const two = (part: number) => String(part).padStart(2, "0");
  return `${two(hour)}:${two(minute)}${second === 0 ? "" : `:${two(second)}`}`;
}

function ordinal(day: number): string {
  const ends: Readonly<Record<number, string>> = { 1: "st", 2: "nd", 3: "rd" };
  const isTeen = day > 10 && day < 14;
  return `${day}${isTeen ? "th" : (ends[day % 10] ?? "th")}`;
}

function counted(count: number, one: string): string {
  return count === 1 ? `${count} ${one}` : `${count} ${one}s`;
}
