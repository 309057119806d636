import type { UIMessage } from "@ai-sdk/react";
import { memo, type RefObject, useEffect, useRef, useState } from "react";
import { useOfSession } from "./lib/use-session.ts";
import { Message } from "./message.tsx";

type MessagesProps = {
  chatId: string;
  messages: UIMessage[];
  user: string;
  isAnswering: boolean;
  /** Who is at work on an answer, as far as that is known. */
  agent: string;
  /** Where its turn stands, while it waits for others. */
  waits: string;
  scrollRef: RefObject<HTMLElement | null>;
};

/** So many messages are drawn, or not, together. */
const groupSize = 20;
/** Groups at the end that are always drawn: that is where things happen. */
const groupsDrawn = 3;
/** How far from what is seen a group is drawn. */
const marginPx = 1_500;
const guessedPx = 110;

/**
 * A conversation of any length. Messages are in groups; one that is far from what is seen is only a space
 * of its height, so that ten thousand messages cost no more than a hundred.
 */
export function Messages(props: MessagesProps) {
  const { chatId, messages, user, isAnswering, agent, waits, scrollRef } = props;
  const unsent = useOfSession(chatId, (snapshot) => snapshot.unsent.map(({ id }) => id).join(" "));
  const count = Math.ceil(messages.length / groupSize);
  const last = messages.at(-1);
  const isWaiting = isAnswering && last?.role === "user";
  return (
    <div role="feed" aria-label="Conversation" aria-busy={isAnswering}>
      {Array.from({ length: count }, (_, at) => (
        <Group
          key={at}
          messages={messages.slice(at * groupSize, (at + 1) * groupSize)}
          first={at * groupSize}
          user={user}
          answeringId={at === count - 1 && isAnswering ? last?.id : undefined}
          agent={at === count - 1 ? agent : ""}
          unsent={at >= count - groupsDrawn ? unsent : ""}
          isEnd={at >= count - groupsDrawn}
          lastId={at >= count - groupsDrawn ? last?.id : undefined}
          scrollRef={scrollRef}
        />
      ))}
      {waits !== "" && (
        <p className="mark" role="status">
          {waits}
        </p>
      )}
      {isWaiting && (
        <p className="waiting" aria-hidden="true">
          <i />
          <i />
          <i />
        </p>
      )}
    </div>
  );
}

type GroupProps = {
  messages: UIMessage[];
  first: number;
  user: string;
  answeringId: string | undefined;
  agent: string;
  unsent: string;
  isEnd: boolean;
  lastId: string | undefined;
  scrollRef: RefObject<HTMLElement | null>;
};

const Group = memo(function Group(props: GroupProps) {
  const { messages, first, user, answeringId, agent, unsent, isEnd, lastId, scrollRef } = props;
  const box = useRef<HTMLDivElement>(null);
  const [isNear, setNear] = useState(isEnd);
  const heightPx = useRef(messages.length * guessedPx);
  const isDrawn = isNear || isEnd;

  useEffect(() => {
    const element = box.current;
    if (!element || isEnd) return;
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (!entry) return;
        if (!entry.isIntersecting && element.childElementCount > 0)
          heightPx.current = entry.boundingClientRect.height;
        setNear(entry.isIntersecting);
      },
      { root: scrollRef.current, rootMargin: `${marginPx}px 0px` },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, [isEnd, scrollRef]);

  return (
    <div ref={box} className="group" style={isDrawn ? undefined : { height: heightPx.current }}>
      {isDrawn &&
        messages.map((message, at) => (
          <Message
            key={message.id}
            message={message}
            place={first + at + 1}
            isLast={message.id === lastId}
            user={user}
            isAnswering={message.id === answeringId}
            agent={message.id === lastId ? agent : ""}
            isUnsent={unsent.includes(message.id)}
          />
        ))}
    </div>
  );
}, areSame);

/** The lists are cut anew each time; what counts is what is in them. */
function areSame(one: GroupProps, other: GroupProps): boolean {
  return (
    one.messages.length === other.messages.length &&
    one.messages.every((message, at) => message === other.messages[at]) &&
    one.answeringId === other.answeringId &&
    one.agent === other.agent &&
    one.unsent === other.unsent &&
    one.isEnd === other.isEnd &&
    one.lastId === other.lastId
  );
}
