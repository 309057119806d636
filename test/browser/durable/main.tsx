import "../../../examples/chat/src/lib/no-eval.ts";
import { createChatTransport } from "flotilla/ai-sdk";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { FollowedChat, PlainChat } from "./chat.tsx";

const transport = createChatTransport({ agent: "clerk" });
const Chat = location.search === "?plain" ? PlainChat : FollowedChat;

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Chat id={location.hash.slice(1)} transport={transport} />
  </StrictMode>,
);
