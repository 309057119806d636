import { FlotillaError } from "./errors.ts";

const isoTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;

/** JSON has no dates, so a time is a number of milliseconds since 1970, or text as in RFC 3339. */
export function asTime(value: unknown, name = "runAt"): number {
  if (typeof value === "number") return value;
  const ms = typeof value === "string" && isoTime.test(value) ? Date.parse(value) : Number.NaN;
  if (!Number.isNaN(ms)) return ms;
  throw new FlotillaError(
    "invalid_option",
    `${name} must be a time such as 2026-01-31T08:00:00Z, or milliseconds since 1970`,
  );
}
