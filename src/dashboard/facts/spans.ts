/** How times, spans and counts are written, in as few characters as are enough. */
const units: readonly (readonly [string, number])[] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** A span with its two largest units at most: `850 ms`, `4.2 s`, `3 min 20 s`, `2 d 4 h`. */
export function durationText(ms: number): string {
  const total = Math.max(0, Math.round(ms));
  if (total < 1_000) return `${total} ms`;
  if (total < 10_000) return `${(total / 1_000).toFixed(1)} s`;
  const at = units.findIndex(([, size]) => total >= size);
  const [unit, size] = units[at]!;
  const [smaller, smallerSize] = units[at + 1] ?? ["", 1];
  const rest = Math.floor((total % size) / smallerSize);
  const whole = `${Math.floor(total / size)} ${unit}`;
  return rest === 0 || smaller === "" ? whole : `${whole} ${rest} ${smaller}`;
}

/** How far a time is from now: `just now`, `4 min ago`, `in 2 h`. */
export function relativeText(atMs: number, nowMs: number): string {
  const distance = Math.abs(nowMs - atMs);
  if (distance < 2_000) return "just now";
  const [unit, size] = units.find(([, each]) => distance >= each)!;
  const text = `${Math.floor(distance / size)} ${unit}`;
  return atMs > nowMs ? `in ${text}` : `${text} ago`;
}

/** The exact time, in the zone of the browser and to the millisecond. */
export function exactText(atMs: number): string {
  const date = new Date(atMs);
  if (Number.isNaN(date.getTime())) return "no time";
  const two = (part: number) => String(part).padStart(2, "0");
  const offset = -date.getTimezoneOffset();
  const zone = `${offset < 0 ? "-" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${time}.${String(date.getMilliseconds()).padStart(3, "0")} ${zone}`;
}

// The store counts no further than this.
const countBound = 10_000;

/** A count of the store, with a sign that there may be more where it has stopped counting. */
export function countText(count: number): string {
  return count >= countBound ? `${exactCount(count)}+` : exactCount(count);
}

/** The same with what is counted. */
export function boundedText(count: number, one: string): string {
  return `${countText(count)} ${count === 1 ? one : `${one}s`}`;
}

/** A count that is exact, with what is counted. */
export function counted(count: number, one: string): string {
  return `${exactCount(count)} ${count === 1 ? one : `${one}s`}`;
}

export function exactCount(count: number): string {
  return count.toLocaleString("en-US");
}

export function bytesText(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  if (bytes < 1_024 ** 2) return `${(bytes / 1_024).toFixed(1)} KiB`;
  return `${(bytes / 1_024 ** 2).toFixed(1)} MiB`;
}
