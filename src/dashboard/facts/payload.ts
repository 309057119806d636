import { inexactInteger } from "../../base/json.ts";

/** Why a text can't be a payload; undefined if it can, as far as can be seen here. */
export function checkPayload(text: string): string | undefined {
  if (text.trim() === "") return "Write a payload as JSON: null is one, and so is {}.";
  try {
    JSON.parse(text);
  } catch (error) {
    return `This isn't JSON: ${messageIn(error)}. Text needs quotes around it, as names of fields do.`;
  }
  const inexact = inexactInteger(text);
  if (inexact === undefined) return undefined;
  return `The number ${inexact.slice(0, 40)} has more digits than numbers of JSON keep: write it as text, in quotes.`;
}

/** A payload that a person has typed: as JSON, or what is wrong with it. */
export type TypedPayload = { readonly json: string } | { readonly trouble: string };

/** The payload of a signal, where nothing at all is null. */
export function typedPayload(text: string): TypedPayload {
  const json = text.trim() === "" ? "null" : text.trim();
  const trouble = checkPayload(json);
  return trouble === undefined ? { json } : { trouble };
}

function messageIn(error: unknown): string {
  return error instanceof Error ? error.message.replace(/\.$/, "") : "it ends too early";
}
