import type { UIMessage as ChatMessage } from "ai";
import type { Clock } from "../../base/clock.ts";
import { isTurn, type UIMessage } from "../../protocol/message.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import type { ChatFiles } from "./files.ts";
import { guarded } from "../observable.ts";
import type { AnswerEnd } from "./answer.ts";
import { hasDecisions } from "./tool-decisions.ts";

/** The result of `useChat`, or a `Chat` of the AI SDK. */
export type ChatLike<Message extends ChatMessage = ChatMessage> = {
  readonly id: string;
  readonly status: "submitted" | "streaming" | "ready" | "error";
  messages: Message[];
  setMessages?(change: (messages: Message[]) => Message[]): void;
  resumeStream(): Promise<void>;
};

type EndedAnswer = { readonly epoch: number; readonly attempt: number };

type ChatSync = {
  /** The turn whose answer was shown to its end, or whose stream the page has left. */
  ended: EndedAnswer | undefined;
  update(): void;
};

/** How soon a chat is checked again that is busy with something outside this sync. */
const busyRetryMs = 250;
const failedRetryMs = 1_000;

/** Keeps chats in sync with their sessions. */
export function createChatSyncs<Message extends ChatMessage>(
  sessionOf: (chatId: string) => Session,
  files: Pick<ChatFiles, "shown">,
  clock: Clock,
) {
  const all = new Map<string, Set<ChatSync>>();
  const of = (chatId: string) => all.get(chatId) ?? new Set<ChatSync>();

  return {
    has: (chatId: string): boolean => of(chatId).size > 0,
    answerEnded(chatId: string, { type, turn }: AnswerEnd): void {
      for (const sync of of(chatId)) {
        if (turn && type !== "restarted") sync.ended = turn;
        // The chat sees the end of its stream only after this callback.
        clock.after(0, () => sync.update());
      }
    },
    follow(chat: ChatLike<Message>): () => void {
      const session = sessionOf(chat.id);
      const sync = createChatSync(chat, session, files, clock);
      const set = of(chat.id).add(sync);
      all.set(chat.id, set);
      sync.begin();
      return () => {
        set.delete(sync);
        if (set.size === 0) all.delete(chat.id);
        sync.leave();
      };
    },
  };
}

/**
 * The messages that an idle chat should show; undefined where it does already. Stored messages come
 * first, the same for all readers. The chat's own unstored ones stay: initial messages of the page in
 * front, unsent messages behind, and decisions on tool calls that weren't sent yet.
 */
export function reconcile(
  current: readonly UIMessage[],
  { messages, answer, unsent }: Pick<SessionSnapshot, "messages" | "answer" | "unsent">,
  { isWatched }: { isWatched: boolean },
): UIMessage[] | undefined {
  const local = new Map(current.map((message) => [message.id, message]));
  const pending = new Set(unsent.map(({ id }) => id));
  // Of an answer that the page has left, what it has seen stays until the answer is stored.
  const seenId = isWatched ? undefined : answer?.messageId;
  const stored = messages
    .filter(({ id }) => !pending.has(id) && (id !== seenId || local.has(id)))
    .map((message) => (message.id === seenId ? local.get(message.id)! : message));
  const known = new Map(stored.map((message) => [message.id, message]));
  const first = current.findIndex(({ id }) => known.has(id));
  const isOwn = (message: UIMessage) => !known.has(message.id) && !isStored(message);
  const before = current.slice(0, first === -1 ? undefined : first).filter(isOwn);
  const after = first === -1 ? [] : current.slice(first).filter(isOwn);
  const front = before.filter(({ role }) => role !== "user");
  const back = [...before, ...after].filter(({ role }) => role === "user");
  const wanted = stored.map((message) => {
    const localMessage = local.get(message.id);
    return localMessage && hasDecisions(localMessage, message) ? localMessage : message;
  });
  const all = [...front, ...wanted, ...back];
  const isSame = all.length === current.length && all.every((each, at) => each === current[at]);
  return isSame ? undefined : all;
}

function createChatSync<Message extends ChatMessage>(
  chat: ChatLike<Message>,
  session: Session,
  files: Pick<ChatFiles, "shown">,
  clock: Clock,
) {
  let cancelUpdate: (() => void) | undefined;
  let leave: (() => void) | undefined;
  let isResuming = false;
  let isOver = false;

  const shownOf = (snapshot: SessionSnapshot): SessionSnapshot => {
    const messages = files.shown(chat.id, snapshot.messages, () => sync.update());
    return messages === snapshot.messages ? snapshot : { ...snapshot, messages };
  };

  const sync = {
    ended: undefined as EndedAnswer | undefined,
    update(): void {
      cancelUpdate?.();
      if (isOver || isResuming) return;
      if (chat.status === "submitted" || chat.status === "streaming") {
        cancelUpdate = clock.after(busyRetryMs, sync.update);
        return;
      }
      const snapshot = shownOf(session.get());
      if (snapshot.status !== "live" && snapshot.status !== "away") return;
      const hasUnseen = hasUnseenAnswer(snapshot, sync.ended);
      const current = chat.messages as unknown as readonly UIMessage[];
      if (reconcile(current, snapshot, { isWatched: hasUnseen })) {
        // Reconcile with the current messages again: the user may just have typed one.
        setMessages(
          chat,
          (current) => reconcile(current, snapshot, { isWatched: hasUnseen }) ?? current,
        );
      }
      if (hasUnseen && snapshot.status === "live") void resume();
    },
    begin(): void {
      leave = session.subscribe(sync.update);
      sync.update();
    },
    leave(): void {
      isOver = true;
      cancelUpdate?.();
      leave?.();
    },
  };

  const resume = async (): Promise<void> => {
    isResuming = true;
    let waitMs = 0;
    try {
      await chat.resumeStream();
    } catch (error) {
      // The chat's own callbacks threw, and may throw at every try.
      waitMs = failedRetryMs;
      guarded(() => {
        throw error;
      });
    }
    isResuming = false;
    cancelUpdate = clock.after(waitMs, sync.update);
  };

  return sync;
}

function setMessages<Message extends ChatMessage>(
  chat: ChatLike<Message>,
  change: (messages: readonly UIMessage[]) => readonly UIMessage[],
): void {
  const changed = change as unknown as (messages: Message[]) => Message[];
  if (chat.setMessages) chat.setMessages(changed);
  else chat.messages = changed(chat.messages);
}

function hasUnseenAnswer({ state }: SessionSnapshot, ended: EndedAnswer | undefined): boolean {
  if (!isTurn(state) || state.attempt === 0 || state.stopping) return false;
  return ended?.epoch !== state.epoch || ended.attempt !== state.attempt;
}

/** Stored messages carry their position in their metadata. */
function isStored({ metadata }: UIMessage): boolean {
  return typeof metadata === "object" && metadata !== null && "flotilla" in metadata;
}
