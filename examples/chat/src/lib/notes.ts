import type { UIMessage } from "@ai-sdk/react";
import type { EntryNote } from "flotilla/client";

/** What the log says of a message, once it is stored. */
export function noteOf(message: UIMessage): EntryNote | undefined {
  const { metadata } = message;
  if (typeof metadata !== "object" || metadata === null || !("flotilla" in metadata)) return;
  return metadata.flotilla as EntryNote;
}

export function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** A conversation is called by what was said first in it. */
export function titleOf(messages: readonly UIMessage[]): string {
  const first = messages.find(({ role }) => role === "user");
  const words = first ? textOf(first).replaceAll(/\s+/g, " ").trim() : "";
  return words.slice(0, 80) || "New chat";
}

/** "10:24", or the day where it wasn't today. */
export function whenOf(atMs: number, now: Date = new Date()): string {
  const then = new Date(atMs);
  const isToday = then.toDateString() === now.toDateString();
  return isToday
    ? then.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })
    : then.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
