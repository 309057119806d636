const months = [
  "Jan",
  "Feb",
  "Mar",
  "Apr",
  "May",
  "Jun",
  "Jul",
  "Aug",
  "Sep",
  "Oct",
  "Nov",
  "Dec",
] as const;

/** A time on the axis of a plot: the hour and minute, or the day where that begins. */
export function tickText(atMs: number): string {
  const date = new Date(atMs);
  const isDay = date.getHours() === 0 && date.getMinutes() === 0;
  return isDay ? dayText(date) : clockText(date);
}

/** A time of a plot in full, to the minute: `18 Nov 14:03`. */
export function momentText(atMs: number): string {
  const date = new Date(atMs);
  return Number.isNaN(date.getTime()) ? "no time" : `${dayText(date)} ${clockText(date)}`;
}

function dayText(date: Date): string {
  return `${date.getDate()} ${months[date.getMonth()]}`;
}

function clockText(date: Date): string {
  const two = (part: number) => String(part).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}
