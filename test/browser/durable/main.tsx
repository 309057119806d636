import "../../../examples/chat/src/lib/no-eval.ts";
import { createChatTransport } from "flotilla/ai-sdk";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { FollowedChat, PlainChat } from "./chat.tsx";

const query = new URLSearchParams(location.search);
const transport = createChatTransport({ agent: query.get("agent") ?? "clerk" });
const Chat = query.has("plain") ? PlainChat : FollowedChat;

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Chat id={location.hash.slice(1)} transport={transport} />
  </StrictMode>,
);
