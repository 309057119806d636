import type { UIMessage } from "@ai-sdk/react";
import { useEffect, useRef, useState } from "react";
import { callOf } from "./lib/calls.ts";
import { textOf } from "./lib/notes.ts";

/** More than this is read where it stands. */
const charsMost = 400;
const keptMs = 4_000;

/**
 * Tells screen readers what came, once it is whole: to hear an answer word by word would be no help, nor
 * would old messages that are drawn because somebody scrolled.
 */
export function Announcer({
  messages,
  isAnswering,
}: {
  messages: UIMessage[];
  isAnswering: boolean;
}) {
  const [said, setSaid] = useState("");
  const wasAnswering = useRef(false);
  const last = messages.at(-1);
  useEffect(() => {
    const ended = wasAnswering.current && !isAnswering;
    wasAnswering.current = isAnswering;
    if (isAnswering) setSaid("Answering…");
    else if (ended && last?.role === "assistant") setSaid(spoken(last));
    else return;
    const timer = setTimeout(() => setSaid(""), keptMs);
    return () => clearTimeout(timer);
  }, [isAnswering, last]);
  return (
    <div className="hidden" role="log" aria-label="News" aria-live="polite">
      {said}
    </div>
  );
}

function spoken(message: UIMessage): string {
  const text = textOf(message);
  const asked = message.parts.map(callOf).find((call) => call?.state === "approval-requested");
  const short = text.length > charsMost ? `${text.slice(0, charsMost)}…` : text;
  return asked
    ? `${short} It asks whether it may call ${asked.name}.`
    : short || "It has answered.";
}
