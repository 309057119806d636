// Deeper than anything that can be stored.
const maxDepth = 64;

/**
 * Metadata that comes in pieces: objects are merged field by field, everything else is replaced. Gives
 * undefined where there is nothing to merge into, as in a text. Copies what it changes, because pieces
 * are passed on to others as well.
 */
export function mergeMetadata(base: unknown, more: unknown): unknown {
  const keys = Object.keys(Object(more)).filter((key) => !refused.has(key));
  if (keys.length > 0 && typeof base !== "object") return undefined;
  return merged(base as object, more as object, 0);
}

// Assigning to these changes more than the object at hand.
const refused = new Set(["__proto__", "constructor", "prototype"]);

function merged(base: object, more: object, depth: number): object {
  const result: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(more)) {
    if (refused.has(key) || value === undefined) continue;
    const before = Object.hasOwn(base, key) ? (base as Record<string, unknown>)[key] : undefined;
    result[key] =
      isRecord(value) && isRecord(before) && depth < maxDepth
        ? merged(before, value, depth + 1)
        : value;
  }
  return result;
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
