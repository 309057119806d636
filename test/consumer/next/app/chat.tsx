"use client";

import { useChat } from "@ai-sdk/react";
import { createChatTransport } from "flotilla/ai-sdk";
import { useInbox, useSharedChat } from "flotilla/react";
import { client } from "./providers";

const transport = createChatTransport({ client, agent: "helper" });

export function Chat({ id }: { id: string }) {
  const chat = useSharedChat(useChat({ id, transport }), transport);
  const { status, sessions } = useInbox();
  return (
    <main>
      <p>
        {chat.connection.status}, {chat.messages.length} messages, inbox {status} with{" "}
        {sessions.length}
      </p>
      <button onClick={() => void chat.sendMessage({ text: "hello" })}>Send</button>
    </main>
  );
}
