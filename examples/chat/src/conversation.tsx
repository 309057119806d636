import { useChat } from "@ai-sdk/react";
import type { FlotillaTransport } from "flotilla/ai-sdk";
import { useClient, usePresence, useSharedChat } from "flotilla/react";
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef } from "react";
import { Announcer } from "./announcer.tsx";
import { Archived } from "./archived.tsx";
import { Composer } from "./composer.tsx";
import { ConnectionLine } from "./connection-line.tsx";
import { BranchesContext, useBranches } from "./lib/branches.ts";
import { isDecided } from "./lib/calls.ts";
import { noteOf, titleOf, waitText } from "./lib/notes.ts";
import { useAtEnd } from "./lib/use-at-end.ts";
import { sayDuring } from "./lib/say-during.ts";
import { useOfSession, useSessionOf } from "./lib/use-session.ts";
import { Messages } from "./messages.tsx";
import { type Deciding, DecidingContext } from "./parts/deciding.ts";
import { AlsoHere, Typing } from "./present.tsx";
import { Reminders } from "./reminders.tsx";
import { Trouble } from "./trouble.tsx";
import { Welcome } from "./welcome.tsx";

type ConversationProps = {
  chatId: string;
  transport: FlotillaTransport;
  user: string;
  /** Hidden behind the drawer: nothing in it can be reached. */
  isBehind: boolean;
  menu: ReactNode;
};

// Words come faster than anybody reads: drawn so often at most.
const drawMs = 40;

export function Conversation({ chatId, transport, user, isBehind, menu }: ConversationProps) {
  const chat = useSharedChat(
    useChat({ id: chatId, transport, throttle: drawMs, sendAutomaticallyWhen: isDecided }),
    transport,
  );
  const { messages, status, error, connection } = chat;
  const { people, typing } = usePresence(chatId);
  const client = useClient();
  const session = useSessionOf(chatId);
  const branches = useBranches(chatId);
  const { scrollRef, contentRef, isAtEnd, toEnd } = useAtEnd();
  const followed = useOfSession(chatId, (session) => session.status);
  const hasEntries = useOfSession(chatId, ({ lastSeq }) => lastSeq > 0);
  const agent = useOfSession(chatId, ({ state }) => ("agent" in state ? state.agent : ""));
  const waits = useOfSession(chatId, ({ waiting }) => (waiting ? waitText(waiting) : ""));

  const isAnswering = status === "submitted" || status === "streaming" || agent !== "";
  const isNew = followed === "gone" || (followed === "live" && !hasEntries);
  const title = titleOf(messages);
  useEffect(() => {
    document.title = `${title} · Flotilla chat`;
  }, [title]);

  const latest = useRef(chat);
  useLayoutEffect(() => {
    latest.current = chat;
  });
  const deciding = useMemo<Deciding>(
    () => ({
      approve: (id, approved) =>
        void latest.current.addToolApprovalResponse({
          id,
          approved,
          ...(!approved && { reason: "The user said no." }),
        }),
      answer: (tool, toolCallId, output) =>
        void latest.current.addToolOutput({
          tool: tool as never,
          toolCallId,
          output: output as never,
        }),
      again: (messageId) => {
        latest.current.clearError();
        void latest.current.regenerate({ messageId });
      },
      edit: ({ id: messageId, parts }, text) => {
        latest.current.clearError();
        const files = parts.filter((part) => part.type === "file");
        void latest.current.sendMessage({ text, files, messageId });
      },
    }),
    [],
  );
  const send = async (text: string, files?: FileList) => {
    // `useChat` makes one answer at a time, and this message is for the one that is being made.
    if (isAnswering) return sayDuring({ client, session, text, files });
    // A photo alone has no text beside it.
    void chat.sendMessage(text === "" && files ? { files } : { text, ...(files && { files }) });
    toEnd();
    return undefined;
  };
  /** What wasn't stored is sent once more; what was, is answered anew. */
  const again = () => {
    const last = messages.at(-1);
    chat.clearError();
    if (last?.role === "user" && !noteOf(last)) void chat.sendMessage();
    else void chat.regenerate();
  };

  const lastNote = messages.length > 0 ? noteOf(messages.at(-1)!) : undefined;
  const isSaid = lastNote?.error !== undefined;
  return (
    <main className="conversation" inert={isBehind}>
      <header className="bar">
        {menu}
        <h1>{title}</h1>
        <AlsoHere people={people} user={user} />
        {hasEntries && followed !== "gone" && <Reminders chatId={chatId} />}
        <ConnectionLine connection={connection} />
      </header>
      <div className="scroll" ref={scrollRef} tabIndex={0} role="region" aria-label="Messages">
        <div className="content" ref={contentRef}>
          {messages.length > 0 ? (
            <BranchesContext value={branches}>
              <DecidingContext value={deciding}>
                <Messages
                  chatId={chatId}
                  messages={messages}
                  user={user}
                  isAnswering={isAnswering}
                  agent={agent}
                  waits={waits}
                  scrollRef={scrollRef}
                />
              </DecidingContext>
            </BranchesContext>
          ) : isNew ? (
            <Welcome onAsk={(text) => void send(text)} />
          ) : (
            <p className="loading">
              {followed === "away" ? "Waiting for a connection…" : "Loading…"}
            </p>
          )}
          {followed === "gone" && hasEntries && (
            <p className="loading">This chat isn’t there any more.</p>
          )}
          {error && !isAnswering && !isSaid && <Trouble error={error} onAgain={again} />}
        </div>
      </div>
      <div className="foot">
        {!isAtEnd && (
          <button className="jump" onClick={toEnd}>
            Jump to newest
          </button>
        )}
        <Typing people={people} user={user} />
        <Archived chatId={chatId}>
          <Composer
            isAnswering={isAnswering}
            isRefused={connection.status === "refused" || connection.status === "closed"}
            onType={typing}
            onSend={send}
            onStop={() => void chat.stop()}
          />
        </Archived>
      </div>
      <Announcer messages={messages} isAnswering={isAnswering} />
    </main>
  );
}
