import type { UIMessage } from "@ai-sdk/react";
import { memo, use } from "react";
import { callOf } from "./lib/calls.ts";
import { noteOf, textOf, whenOf } from "./lib/notes.ts";
import { DecidingContext } from "./parts/deciding.ts";
import { Other } from "./parts/other.tsx";
import { Prose } from "./parts/prose.tsx";
import { Reasoning } from "./parts/reasoning.tsx";
import { ToolCall } from "./parts/tool-call.tsx";

type MessageProps = {
  message: UIMessage;
  place: number;
  isLast: boolean;
  user: string;
  isAnswering: boolean;
  /** Who makes it, while it isn't stored. */
  agent: string;
  isUnsent: boolean;
};

/** One message, with whatever it is made of. Everything in it is shown as text. */
export const Message = memo(function Message(props: MessageProps) {
  const { message, place, isLast, user, isAnswering, agent, isUnsent } = props;
  const note = noteOf(message);
  const isUser = message.role === "user";
  const isOwn = isUser && (note === undefined || note.author === user);
  const author = note?.author ?? (isUser ? user : agent || "agent");
  const id = `m-${place}`;
  return (
    <article
      className="message"
      data-role={message.role}
      data-own={isOwn}
      data-last={isLast}
      aria-labelledby={id}
      aria-posinset={place}
      aria-setsize={-1}
    >
      <p className="author" id={id}>
        <span className={isOwn ? "hidden" : undefined}>{isOwn ? "You" : author}</span>
        {isUnsent && <span className="mark">Sending…</span>}
        {note && <time dateTime={new Date(note.atMs).toISOString()}>{whenOf(note.atMs)}</time>}
      </p>
      <div className="parts">
        {message.parts.map((part, at) => {
          const key = `${at}`;
          if (part.type === "text") return <Prose key={key} text={part.text} />;
          if (part.type === "reasoning")
            return <Reasoning key={key} text={part.text} isOpen={part.state === "streaming"} />;
          const call = callOf(part);
          return call ? <ToolCall key={key} call={call} /> : <Other key={key} part={part} />;
        })}
      </div>
      {message.role === "assistant" && !isAnswering && (
        <Ending message={message} isLast={isLast} user={user} />
      )}
    </article>
  );
});

/** How an answer ended, if not well, and what can be done with it. */
function Ending({ message, isLast, user }: Pick<MessageProps, "message" | "isLast" | "user">) {
  const { again } = use(DecidingContext);
  const note = noteOf(message);
  const text = textOf(message);
  const isAsking = message.parts.some((part) => callOf(part)?.state === "approval-requested");
  const wrong = note?.outcome === "cut" || note?.outcome === "failed";
  return (
    <footer>
      {note?.outcome === "stopped" && (
        <span className="mark">
          Stopped
          {note.stopped && ` by ${note.stopped.author === user ? "you" : note.stopped.author}`}
        </span>
      )}
      {wrong && (
        <span className="mark wrong">
          {note.outcome === "cut" ? "Broken off" : "No answer"}
          {note.error && `: ${note.error.message}`}
        </span>
      )}
      {text !== "" && !isAsking && <Copy text={text} />}
      {isLast && note && !isAsking && (
        <button className="quiet" onClick={() => again(message.id)}>
          {wrong ? "Try again" : "Regenerate"}
        </button>
      )}
    </footer>
  );
}

function Copy({ text }: { text: string }) {
  return (
    <button className="quiet" onClick={() => void navigator.clipboard?.writeText(text)}>
      Copy
    </button>
  );
}
