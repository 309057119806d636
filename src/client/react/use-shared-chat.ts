import type { UIMessage as ChatMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef } from "react";
import type { ChatLike } from "../ai-sdk/sync.ts";
import type { FlotillaTransport } from "../ai-sdk/transport.ts";
import type { ConnectionState } from "../socket/status.ts";
import { markReadWhileVisible, useConnection } from "./hooks.ts";

/** What this needs of what `useChat` returns. */
type UsedChat<Message extends ChatMessage> = {
  readonly id: string;
  readonly status: ChatLike["status"];
  readonly messages: Message[];
  setMessages(change: (messages: Message[]) => Message[]): void;
  resumeStream(): Promise<void>;
  stop(): Promise<void>;
};

export type Shared = {
  /** Ends the answer that is being made, for everybody who watches it. */
  stop(): Promise<void>;
  readonly connection: ConnectionState;
};

/**
 * Keeps what `useChat` shows like the session behind it: its history, what other tabs and people say,
 * and the answers that they get. What is shown is marked as read. `stop` of the AI SDK only stops
 * watching; this one ends the answer.
 */
export function useSharedChat<Message extends ChatMessage, Chat extends UsedChat<Message>>(
  chat: Chat & UsedChat<Message>,
  transport: FlotillaTransport<Message>,
): Omit<Chat, "stop"> & Shared {
  const { id } = chat;
  const latest = useRef(chat);
  useEffect(() => {
    latest.current = chat;
  });
  useEffect(
    () =>
      transport.follow({
        id,
        get status() {
          return latest.current.status;
        },
        get messages() {
          return latest.current.messages;
        },
        setMessages: (change) => latest.current.setMessages(change),
        resumeStream: () => latest.current.resumeStream(),
      }),
    [id, transport],
  );
  useEffect(() => markReadWhileVisible(transport.session(id)), [id, transport]);
  const connection = useConnection({ client: transport.client });
  const stop = useCallback(async () => {
    const stopped = transport.stop(id);
    if (transport.client.connection.get().status !== "open") {
      // The word goes out when there is a connection again; here it is over at once.
      stopped.catch(() => {});
      return latest.current.stop();
    }
    let wasMade = false;
    try {
      wasMade = await stopped;
    } finally {
      // There was no answer to end, perhaps not yet: then at least nobody waits here.
      if (!wasMade) await latest.current.stop();
    }
  }, [id, transport]);
  return useMemo(() => ({ ...chat, stop, connection }), [chat, stop, connection]);
}
