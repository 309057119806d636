/** What a model's result, or the last part of its stream, says it has used. */
export function tokensOf(result: unknown): number | undefined {
  const usage = field(result, "usage");
  const tokens = count(field(usage, "tokens"));
  if (tokens !== undefined) return tokens;
  const input = count(field(usage, "inputTokens"));
  const output = count(field(usage, "outputTokens"));
  if (input === undefined && output === undefined) return undefined;
  return (input ?? 0) + (output ?? 0);
}

/** Either a number, or an object that splits it up and gives the total. */
function count(value: unknown): number | undefined {
  const found = typeof value === "object" ? field(value, "total") : value;
  return typeof found === "number" && Number.isFinite(found) ? found : undefined;
}

// For English; other languages need more, which the real use then makes up for.
const charsPerToken = 4;

/** A guess: the length of all text that goes in, and what may come out, or `usual` if that isn't said. */
export function estimateTokens(params: unknown, usual: number): number {
  const values = field(params, "values");
  if (Array.isArray(values)) return Math.ceil(textChars(values) / charsPerToken);
  const most = field(params, "maxOutputTokens");
  const output = typeof most === "number" ? most : usual;
  return Math.ceil(textChars(field(params, "prompt")) / charsPerToken) + output;
}

/** Counts text, and not what files and images are encoded as. */
function textChars(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + textChars(each), 0);
  return textChars(field(value, "text") ?? field(value, "content") ?? []);
}

function field(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return (value as Record<string, unknown>)[name];
}
