import { useChat } from "@ai-sdk/react";
import { useChat as useChat6 } from "ai-sdk-react-3";
import { expectTypeOf, test } from "vitest";
import { createChatTransport } from "../ai-sdk/index.ts";
import type { ConnectionState, InboxSnapshot, RunView, Session, TaskView } from "../index.ts";
import {
  FlotillaProvider,
  type Shared,
  useConnection,
  useInbox,
  useRun,
  useSession,
  useSharedChat,
  useTask,
} from "./index.ts";

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

test("hooks give what is followed, and a session its verbs", () => {
  type Used = ReturnType<typeof useSession>;
  expectTypeOf<Used["send"]>().toEqualTypeOf<Session["send"]>();
  expectTypeOf<Used["toolResult"]>().toEqualTypeOf<Session["toolResult"]>();
  expectTypeOf<Used["signal"]>().toEqualTypeOf<Session["signal"]>();
  expectTypeOf<Used["messages"]>().toEqualTypeOf<ReturnType<Session["get"]>["messages"]>();
  expectTypeOf<ReturnType<typeof useInbox>>().toEqualTypeOf<InboxSnapshot>();
  expectTypeOf<ReturnType<typeof useConnection>>().toEqualTypeOf<ConnectionState>();
  expectTypeOf<ReturnType<typeof useTask>["value"]>().toEqualTypeOf<TaskView | undefined>();
  expectTypeOf<ReturnType<typeof useRun>["value"]>().toEqualTypeOf<RunView | undefined>();
});

test("what hooks are given is checked", () => {
  expectTypeOf(useTask).parameter(0).toEqualTypeOf<string | null | undefined>();
  expectTypeOf(useRun).parameter(0).toEqualTypeOf<string | null | undefined>();
  expectTypeOf(useSession).parameter(0).toEqualTypeOf<string>();
  // @ts-expect-error a session has an id
  expectTypeOf(useSession).toBeCallableWith(undefined);
  // @ts-expect-error a client is an object, not where a server is
  expectTypeOf(useInbox).toBeCallableWith({ client: "http://localhost:4000" });
  // @ts-expect-error a provider provides a client
  expectTypeOf(FlotillaProvider).toBeCallableWith({});
});
