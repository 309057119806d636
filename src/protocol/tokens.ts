import type { Part } from "./message.ts";

/** About what an image or a page of a document takes. Its address or content says nothing of that. */
export const fileTokens = 1_000;

/**
 * About what parts take of a model's context, four characters to a token. Only what agents pass on to
 * models counts: sources, steps and data parts aren't.
 */
export function estimateTokens(parts: readonly Part[]): number {
  let characters = 0;
  let files = 0;
  for (const part of parts) {
    if (part.type === "file" || part.type === "reasoning-file") files++;
    else if (part.type === "text" || part.type === "reasoning") {
      characters += lengthOf(part["text"]);
    } else if (part.type === "dynamic-tool" || part.type.startsWith("tool-")) {
      characters += part.type.length + lengthOf(part["input"]);
      characters += lengthOf(part["output"]) + lengthOf(part["errorText"]);
    } else if (part.type === "steering-message" && Array.isArray(part["parts"])) {
      files += estimateTokens(part["parts"] as Part[]) / fileTokens;
    }
  }
  return Math.ceil(characters / 4 + files * fileTokens);
}

/** The characters of a value as JSON, or nearly. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  let length = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === "string") length += next.length + 2;
    else if (typeof next === "number" || typeof next === "boolean") length += String(next).length;
    else if (typeof next === "object" && next !== null) {
      length += 2;
      if (Array.isArray(next)) for (const item of next) left.push(item);
      else {
        for (const [key, field] of Object.entries(next)) {
          length += key.length + 4;
          left.push(field);
        }
      }
    }
  }
  return length;
}
