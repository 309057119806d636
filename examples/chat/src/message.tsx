import type { UIMessage } from "@ai-sdk/react";
import { memo, use, useState } from "react";
import { BranchesContext } from "./lib/branches.ts";
import { callOf } from "./lib/calls.ts";
import { noteOf, textOf, whenOf } from "./lib/notes.ts";
import { goTo } from "./lib/place.ts";
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
  const [isEditing, setEditing] = useState(false);
  if (isEditing) return <Editing message={message} onEnd={() => setEditing(false)} />;
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
      {note && isOwn && (
        <footer>
          <button className="quiet" onClick={() => setEditing(true)}>
            Edit
          </button>
        </footer>
      )}
      {note && <Versions seq={note.seq} />}
    </article>
  );
});

/** A message as its author says it anew. Nothing is changed: it goes into a branch. */
function Editing({ message, onEnd }: { message: UIMessage; onEnd: () => void }) {
  const { edit } = use(DecidingContext);
  const [text, setText] = useState(() => textOf(message));
  return (
    <form
      className="editing"
      onSubmit={(event) => {
        event.preventDefault();
        onEnd();
        edit(message, text.trim());
      }}
    >
      <textarea
        aria-label="Say it anew"
        value={text}
        maxLength={20_000}
        autoFocus
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && onEnd()}
      />
      <button className="small" disabled={text.trim() === ""}>
        Say this instead
      </button>
      <button type="button" className="small" onClick={onEnd}>
        Cancel
      </button>
    </form>
  );
}

/** Where one goes from one branch of the conversation to another, at the message that they begin with. */
function Versions({ seq }: { seq: number }) {
  const branch = use(BranchesContext).get(seq);
  if (!branch) return null;
  const { all, at } = branch;
  const step = (to: number, name: string, sign: string) => (
    <button
      className="quiet"
      aria-label={name}
      disabled={all[to] === undefined}
      onClick={() => goTo(all[to]!)}
    >
      {sign}
    </button>
  );
  return (
    <nav className="versions" aria-label="Versions">
      {step(at - 1, "Version before", "‹")}
      <span className="mark">
        {at + 1} of {all.length}
      </span>
      {step(at + 1, "Next version", "›")}
    </nav>
  );
}

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
