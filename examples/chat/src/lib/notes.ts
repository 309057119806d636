import type { UIMessage } from "@ai-sdk/react";
import type { EntryNote, Waiting } from "flotilla/client";

/** What the log says of a message, once it is stored. */
export function noteOf(message: UIMessage): EntryNote | undefined {
  const { metadata } = message;
  if (typeof metadata !== "object" || metadata === null || !("flotilla" in metadata)) return;
  return metadata.flotilla as EntryNote;
}

export function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Where a turn stands in line, for people. */
export function waitText({ ahead, aboutMs }: Waiting): string {
  const before = ahead === 0 ? "next in line" : `${ahead} before it`;
  const about =
    aboutMs === undefined ? "" : `, about ${Math.max(1, Math.round(aboutMs / 1_000))} s`;
  return `Waiting for its turn: ${before}${about}`;
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
