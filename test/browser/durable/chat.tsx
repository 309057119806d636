import { useChat } from "@ai-sdk/react";
import type { FlotillaTransport } from "flotilla/ai-sdk";
import { useSharedChat } from "flotilla/react";
import { type SubmitEvent, useRef, useState } from "react";

type ChatProps = { id: string; transport: FlotillaTransport };

/** As the docs of the AI SDK have it, with another transport. */
export function PlainChat({ id, transport }: ChatProps) {
  return <View {...useChat({ id, transport })} />;
}

export function FollowedChat({ id, transport }: ChatProps) {
  return <View {...useSharedChat(useChat({ id, transport }), transport)} />;
}

type Shown = Pick<ReturnType<typeof useChat>, "messages" | "status" | "sendMessage">;

function View({ messages, status, sendMessage }: Shown) {
  const [text, setText] = useState("");
  const picker = useRef<HTMLInputElement>(null);
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    const files = picker.current!.files!;
    void sendMessage(files.length > 0 ? { text, files } : { text });
    picker.current!.value = "";
    setText("");
  };
  return (
    <>
      <p role="status">{status}</p>
      {messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          {message.parts.map((part, at) =>
            part.type === "text" ? (
              <p key={at}>{part.text}</p>
            ) : part.type === "file" ? (
              <img key={at} src={part.url} alt={part.filename} />
            ) : (
              <i key={at} data-part={part.type} data-state={"state" in part ? part.state : ""} />
            ),
          )}
        </article>
      ))}
      <form onSubmit={send}>
        <input
          aria-label="Message"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <input type="file" aria-label="Files" ref={picker} />
      </form>
    </>
  );
}
