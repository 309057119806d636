import { isJsonObject } from "../base/json.ts";

/** What a value is, in place of it: `object, 3 keys, 212 bytes`. Null stays null. */
export function contentShape(value: unknown): string | null | undefined {
  if (value === null || value === undefined) return value;
  if (typeof value === "string") return `text, ${counted(value.length, "character")}`;
  if (typeof value !== "object") return typeof value;
  const size = counted(bytesOf(value), "byte");
  return Array.isArray(value)
    ? `array, ${counted(value.length, "item")}, ${size}`
    : `object, ${counted(Object.keys(value).length, "key")}, ${size}`;
}

/**
 * The same for an object whose fields of these names are ours and stay as they are, such as the `type` of
 * a part of a message. In objects under such a name the same names stay.
 */
export function shapeAround(value: unknown, kept: ReadonlySet<string>): unknown {
  if (!isJsonObject(value)) return contentShape(value);
  const fields = Object.entries(value).map(([name, field]): [string, unknown] => {
    if (!kept.has(name)) return [name, contentShape(field)];
    if (Array.isArray(field)) return [name, contentShape(field)];
    return [name, isJsonObject(field) ? shapeAround(field, kept) : field];
  });
  return Object.fromEntries(fields);
}

const encoder = new TextEncoder();

function bytesOf(value: object): number {
  try {
    return encoder.encode(JSON.stringify(value) ?? "").length;
  } catch {
    // In a circle, or too deep: then it isn't sent as JSON either.
    return 0;
  }
}

function counted(count: number, what: string): string {
  return `${count.toLocaleString("en-US")} ${what}${count === 1 ? "" : "s"}`;
}
