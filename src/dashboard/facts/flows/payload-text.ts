import { ExactNumber, parseExact } from "../exact-json.ts";

/** What a person has typed as JSON: its value, or what is wrong with it. */
export type TypedJson =
  | { readonly value: unknown; readonly trouble?: undefined }
  | { readonly trouble: string };

/**
 * Reads a payload that a person has typed; nothing is `null`. The server keeps numbers as JavaScript has
 * them, so one that would lose digits there is refused here, where it can still be put in quotes.
 */
export function typedJson(text: string): TypedJson {
  if (text.trim() === "") return { value: null };
  let value: unknown;
  try {
    value = parseExact(text);
  } catch {
    return {
      trouble: "The payload is no JSON. Text needs quotes around it, as names of fields do.",
    };
  }
  const lost = lostNumber(value);
  if (lost !== undefined)
    return {
      trouble: `The server would keep ${lost.slice(0, 40)} as ${Number(lost)}. Put it in quotes to keep its digits.`,
    };
  return { value: plain(value) };
}

/** The first number whose value would change. `1.50` is written otherwise, and stays what it is. */
function lostNumber(value: unknown): string | undefined {
  if (value instanceof ExactNumber) return isSameNumber(value.source) ? undefined : value.source;
  if (typeof value !== "object" || value === null) return undefined;
  for (const each of Object.values(value)) {
    const lost = lostNumber(each);
    if (lost !== undefined) return lost;
  }
  return undefined;
}

function isSameNumber(source: string): boolean {
  const kept = Number(source);
  return Number.isFinite(kept) && significant(source) === significant(String(kept));
}

/** The digits of a number and where its point is, however it is written. */
function significant(source: string): string {
  const [mantissa = "", exponent = "0"] = source.toLowerCase().replace("-", "").split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  const digits = (whole + fraction).replace(/^0+/, "");
  const trimmed = digits.replace(/0+$/, "");
  if (trimmed === "") return "0";
  const power = Number(exponent) - fraction.length + (digits.length - trimmed.length);
  return `${trimmed}e${power}`;
}

function plain(value: unknown): unknown {
  if (value instanceof ExactNumber) return Number(value.source);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
}
