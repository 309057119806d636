import { FlotillaError } from "../base/errors.ts";
import type { JsonScalar } from "./sql.ts";

/** Values of JSON that users put in, by paths of names such as `order.id`: what lists search it by. */
export type JsonValues = Readonly<Record<string, JsonScalar>>;

const maxPaths = 5;
const maxPathNames = 5;
const maxValueChars = 1_000;
const nameInPath = /^[A-Za-z_][A-Za-z0-9_-]{0,99}$/;

/**
 * Throws if paths or values can't be searched for; `what` is the name of the filter. Returns the values in
 * the order of their paths, so that the same filter is the same text.
 */
export function checkJsonValues(what: string, given: unknown): JsonValues {
  const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
  const entries: [string, JsonScalar][] = isObject ? Object.entries(given) : [];
  if (entries.length === 0 || entries.length > maxPaths) {
    throw invalid(
      `${what} must have 1 to ${maxPaths} paths with their values, such as { "order.id": 7 }`,
    );
  }
  for (const [path, value] of entries) {
    const names = path.split(".", maxPathNames + 1);
    const fits = names.length <= maxPathNames && names.every((name) => nameInPath.test(name));
    if (!fits || names.includes("__proto__")) {
      throw invalid(
        `${what}: ${JSON.stringify(path.slice(0, 80))} must be a path of 1 to ${maxPathNames} names of letters, digits, _ and -, with dots between, such as order.id`,
      );
    }
    if (!isSearched(value)) {
      throw invalid(
        `${what}: the value of ${path} must be true, false, null, text of at most ${maxValueChars} characters, or a number that is exact, within 2^53`,
      );
    }
  }
  return Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

/** The same by their names, as statements take them. */
export function jsonPaths(
  values: JsonValues,
): { readonly path: readonly string[]; readonly value: JsonScalar }[] {
  return Object.entries(values).map(([path, value]) => ({ path: path.split("."), value }));
}

function isSearched(value: unknown): boolean {
  if (value === null || typeof value === "boolean") return true;
  if (typeof value === "string") {
    const fits = value.length <= maxValueChars && value.isWellFormed();
    return fits && !value.includes("\u0000");
  }
  return (
    typeof value === "number" &&
    Number.isFinite(value) &&
    (!Number.isInteger(value) || Number.isSafeInteger(value))
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
