import type { UIMessage as ChatMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef } from "react";
import type { ChatLike } from "../ai-sdk/sync.ts";
import type { FlotillaTransport } from "../ai-sdk/transport.ts";
import type { ConnectionState } from "../socket/status.ts";
import { markReadWhileVisible, useConnection } from "./hooks.ts";

/** The part of `useChat`'s result that this needs. */
type UsedChat<Message extends ChatMessage> = {
  readonly id: string;
  readonly status: ChatLike["status"];
  readonly messages: Message[];
  setMessages(change: (messages: Message[]) => Message[]): void;
  resumeStream(): Promise<void>;
  stop(): Promise<void>;
};

export type Shared = {
  /** Ends the answer that is being made, for all its readers. */
  stop(): Promise<void>;
  readonly connection: ConnectionState;
};

/**
 * Keeps the messages of `useChat` in sync with the session: its history, messages of other tabs and
 * users, and their answers. Marks what is shown as read. The `stop` of the AI SDK only stops reading;
 * this one ends the answer.
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
      // The stop is sent once there is a connection again; locally it takes effect at once.
      stopped.catch(() => {});
      return latest.current.stop();
    }
    let wasMade = false;
    try {
      wasMade = await stopped;
    } finally {
      // There was no answer to stop, perhaps not yet: at least end the local wait.
      if (!wasMade) await latest.current.stop();
    }
  }, [id, transport]);
  return useMemo(() => ({ ...chat, stop, connection }), [chat, stop, connection]);
}
