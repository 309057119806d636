import type { UIMessage as ChatMessage } from "ai";
import type { Clock } from "../../base/clock.ts";
import { isTurn, type UIMessage } from "../../protocol/message.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import { guarded } from "../observable.ts";
import type { AnswerEnd } from "./answer.ts";
import { knowsMore } from "./tool-decisions.ts";

/** What `useChat` returns, or a `Chat` of the AI SDK. */
export type ChatLike<Message extends ChatMessage = ChatMessage> = {
  readonly id: string;
  readonly status: "submitted" | "streaming" | "ready" | "error";
  messages: Message[];
  setMessages?(change: (messages: Message[]) => Message[]): void;
  resumeStream(): Promise<void>;
};

type Ended = { readonly epoch: number; readonly attempt: number };

type Follower = {
  /** The turn that was shown to its end here, or that somebody here wants to see no more of. */
  ended: Ended | undefined;
  look(): void;
};

/** How soon a chat is looked at again that is busy with something that we don't see. */
const busyMs = 250;
const failedMs = 1_000;

/** The chats that are kept like their sessions. */
export function createFollowers<Message extends ChatMessage>(
  sessionOf: (chatId: string) => Session,
  clock: Clock,
) {
  const all = new Map<string, Set<Follower>>();
  const of = (chatId: string) => all.get(chatId) ?? new Set<Follower>();

  return {
    has: (chatId: string): boolean => of(chatId).size > 0,
    ended(chatId: string, { type, turn }: AnswerEnd): void {
      for (const follower of of(chatId)) {
        if (turn && type !== "restarted") follower.ended = turn;
        // The chat learns of the end of its stream only after us.
        clock.after(0, () => follower.look());
      }
    },
    follow(chat: ChatLike<Message>): () => void {
      const session = sessionOf(chat.id);
      const follower = createFollower(chat, session, clock);
      const set = of(chat.id).add(follower);
      all.set(chat.id, set);
      follower.begin();
      return () => {
        set.delete(follower);
        if (set.size === 0) all.delete(chat.id);
        follower.leave();
      };
    },
  };
}

function createFollower<Message extends ChatMessage>(
  chat: ChatLike<Message>,
  session: Session,
  clock: Clock,
) {
  let cancelLook: (() => void) | undefined;
  let leave: (() => void) | undefined;
  let isResuming = false;
  let isOver = false;

  const follower = {
    ended: undefined as Ended | undefined,
    look(): void {
      cancelLook?.();
      if (isOver || isResuming) return;
      if (chat.status === "submitted" || chat.status === "streaming") {
        cancelLook = clock.after(busyMs, follower.look);
        return;
      }
      const snapshot = session.get();
      if (snapshot.status !== "live" && snapshot.status !== "away") return;
      const isToCome = isToBeSeen(snapshot, follower.ended);
      const shown = chat.messages as unknown as readonly UIMessage[];
      if (reconcile(shown, snapshot, { isWatched: isToCome })) {
        // What is shown may be older than what the chat has: something was just typed, perhaps.
        show(chat, (current) => reconcile(current, snapshot, { isWatched: isToCome }) ?? current);
      }
      if (isToCome && snapshot.status === "live") void resume();
    },
    begin(): void {
      leave = session.subscribe(follower.look);
      follower.look();
    },
    leave(): void {
      isOver = true;
      cancelLook?.();
      leave?.();
    },
  };

  const resume = async (): Promise<void> => {
    isResuming = true;
    let waitMs = 0;
    try {
      await chat.resumeStream();
    } catch (error) {
      // What the chat's own callbacks throw, at every try perhaps.
      waitMs = failedMs;
      guarded(() => {
        throw error;
      });
    }
    isResuming = false;
    cancelLook = clock.after(waitMs, follower.look);
  };

  return follower;
}

function show<Message extends ChatMessage>(
  chat: ChatLike<Message>,
  change: (messages: readonly UIMessage[]) => readonly UIMessage[],
): void {
  const changed = change as unknown as (messages: Message[]) => Message[];
  if (chat.setMessages) chat.setMessages(changed);
  else chat.messages = changed(chat.messages);
}

function isToBeSeen({ state }: SessionSnapshot, ended: Ended | undefined): boolean {
  if (!isTurn(state) || state.attempt === 0 || state.stopping) return false;
  return ended?.epoch !== state.epoch || ended.attempt !== state.attempt;
}

/**
 * What an idle chat should show, undefined where it does already. What the log has goes first and is the
 * same for everybody; the chat's own that was never stored stays where it is: what the page began
 * with in front, what couldn't be sent behind, and decisions on calls that weren't sent yet.
 */
export function reconcile(
  shown: readonly UIMessage[],
  { messages, answer, unsent }: Pick<SessionSnapshot, "messages" | "answer" | "unsent">,
  { isWatched }: { isWatched: boolean },
): UIMessage[] | undefined {
  const local = new Map(shown.map((message) => [message.id, message]));
  const pending = new Set(unsent.map(({ id }) => id));
  // Of an answer that nobody here wants to watch, what was seen of it stays until it is stored.
  const seen = isWatched ? undefined : answer?.messageId;
  const stored = messages
    .filter(({ id }) => !pending.has(id) && (id !== seen || local.has(id)))
    .map((message) => (message.id === seen ? local.get(message.id)! : message));
  const known = new Map(stored.map((message) => [message.id, message]));
  const first = shown.findIndex(({ id }) => known.has(id));
  const isOwn = (message: UIMessage) => !known.has(message.id) && !isStored(message);
  const before = shown.slice(0, first === -1 ? undefined : first).filter(isOwn);
  const behind = first === -1 ? [] : shown.slice(first).filter(isOwn);
  const front = before.filter(({ role }) => role !== "user");
  const back = [...before, ...behind].filter(({ role }) => role === "user");
  const wanted = stored.map((message) => {
    const mine = local.get(message.id);
    return mine && knowsMore(mine, message) ? mine : message;
  });
  const all = [...front, ...wanted, ...back];
  const isSame = all.length === shown.length && all.every((each, at) => each === shown[at]);
  return isSame ? undefined : all;
}

/** Messages of a log say where they stand in it. */
function isStored({ metadata }: UIMessage): boolean {
  return typeof metadata === "object" && metadata !== null && "flotilla" in metadata;
}
