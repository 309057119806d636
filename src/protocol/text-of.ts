import type { Part } from "./message.ts";

/** The text of a message or an entry, without reasoning, tools and files. */
export function textOf({ parts }: { readonly parts: readonly Part[] }): string {
  return parts.map(({ type, text }) => (type === "text" ? String(text) : "")).join("");
}
