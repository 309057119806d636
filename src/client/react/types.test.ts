import { useChat } from "@ai-sdk/react";
import { useChat as useChat6 } from "ai-sdk-react-3";
import { expectTypeOf, test } from "vitest";
import { createChatTransport } from "../ai-sdk/index.ts";
import { type Shared, useSharedChat } from "./index.ts";

/** Never called: only its types are looked at. */
function Chats() {
  const transport = createChatTransport({ agent: "guide" });
  const chat = useSharedChat(useChat({ id: "c", transport }), transport);
  const chat6 = useSharedChat(
    useChat6({ id: "c", transport: transport as never }),
    transport as never,
  );
  return { chat, chat6 };
}

test("a shared chat is what useChat gives, with its own stop and the connection", () => {
  type Chat = ReturnType<typeof Chats>["chat"];
  expectTypeOf<Chat["messages"]>().toEqualTypeOf<ReturnType<typeof useChat>["messages"]>();
  expectTypeOf<Chat["sendMessage"]>().toEqualTypeOf<ReturnType<typeof useChat>["sendMessage"]>();
  expectTypeOf<Chat["stop"]>().toEqualTypeOf<Shared["stop"]>();
  expectTypeOf<Chat["connection"]>().toEqualTypeOf<Shared["connection"]>();
});
