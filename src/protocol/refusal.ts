import type { EntryError } from "./message.ts";

/** Why a chunk wasn't taken. Undefined where it was. */
export type Refusal = EntryError | undefined;

export const tooMuch: EntryError = {
  code: "payload_too_large",
  message: "the answer is longer than a message may be: send large things by reference",
};

export function invalid(message: string): EntryError {
  return { code: "invalid_output", message };
}

/** A chunk about something that hasn't begun. */
export function orphan(chunk: { readonly type: string }, id: string, before: string): EntryError {
  return invalid(`${chunk.type} for ${JSON.stringify(id)}, which had no ${before} before`);
}
