import { FlotillaError } from "../../base/errors.ts";
import type { FrameMessage } from "../../protocol/frames.ts";
import { isTurn, type Part } from "../../protocol/message.ts";
import { errorFromWire } from "../http.ts";
import type { SendQueue } from "../socket/send-queue.ts";
import type { SessionFeed } from "./feed.ts";
import type { SendOptions, Sent, Session, SessionEvent } from "./session.ts";
import { loadLazyModule } from "./view.ts";

type SessionParts = {
  feed: SessionFeed;
  queue: Pick<SendQueue, "submit">;
  newId: () => string;
};

/** The application's handle of a session. */
export function openSession(sessionId: string, parts: SessionParts): Session {
  const { feed, queue, newId } = parts;
  const { view, subscription } = feed;
  let readSeq = 0;
  let requestedSeq = 0;
  let reading: Promise<void> | undefined;

  const send = async (
    message: string | readonly Part[],
    { id = newId(), metadata, to, signal }: SendOptions,
  ): Promise<Sent> => {
    const messageParts = typeof message === "string" ? [{ type: "text", text: message }] : message;
    const unsent = { id, parts: messageParts, ...(metadata !== undefined && { metadata }) };
    const frame: FrameMessage = { ...unsent, ...(to !== undefined && { to }) };
    const apply = (change: () => void) => {
      change();
      subscription.invalidate();
      subscription.flush();
    };
    apply(() => view.unsent(unsent));
    feed.presence.typing(false);
    try {
      const ack = await queue.submit({ type: "send", session: sessionId, message: frame }, signal);
      const { seq = 0, messageId = id, duplicate = false } = ack;
      // Where the session is followed, the entry itself arrives in a moment.
      apply(() => view.stored(id, subscription.isActive ? seq : undefined));
      subscription.revive();
      return { seq, messageId, duplicate };
    } catch (error) {
      apply(() => {
        if (error instanceof FlotillaError) view.unsent({ ...unsent, error });
        else view.stored(id);
      });
      throw error;
    }
  };

  /** Sends the latest read mark, one at a time however many are requested. */
  const sendRead = async (): Promise<void> => {
    while (readSeq < requestedSeq) {
      const seq = requestedSeq;
      await queue.submit({ type: "read", session: sessionId, seq });
      readSeq = seq;
    }
  };

  return {
    sessionId,
    get: subscription.get,
    subscribe: subscription.subscribe,
    presence: feed.presence,
    on: feed.on,
    events(options = {}) {
      let reader: AsyncIterableIterator<SessionEvent> | undefined;
      // Reading begins with the first `next`, so load the module then.
      const begun = async () => {
        const { readEvents } = await loadLazyModule();
        return (reader ??= readEvents(feed, options, errorFromWire));
      };
      return {
        next: async () => (await begun()).next(),
        return: async () => (await begun()).return!(),
        [Symbol.asyncIterator]() {
          return this;
        },
      };
    },
    send: (message, options = {}) => handled(send(message, options)),
    stop({ epoch } = {}) {
      const { state } = feed.position;
      // Naming the turn makes a repeated stop safe: it can't end a later turn.
      const turn = epoch ?? (isTurn(state) ? state.epoch : undefined);
      const ack = queue.submit({ type: "stop", session: sessionId, epoch: turn });
      return handled(ack.then(({ done = false }) => done));
    },
    regenerate({ messageId, id = newId() } = {}) {
      const ack = queue.submit({ type: "regenerate", session: sessionId, id, messageId });
      return handled(ack.then(({ seq }) => (seq === undefined ? {} : { seq })));
    },
    toolResult(messageId, results, { id = newId() } = {}) {
      const ack = queue.submit({ type: "tool_result", session: sessionId, id, messageId, results });
      return handled(ack.then(placeOf));
    },
    signal(name, payload, { id = newId() } = {}) {
      const ack = queue.submit({ type: "signal", session: sessionId, id, name, payload });
      return handled(ack.then(placeOf));
    },
    read(seq = feed.position.lastSeq) {
      requestedSeq = Math.max(requestedSeq, seq);
      reading ??= sendRead().finally(() => {
        reading = undefined;
        // The next call must not repeat one that was refused.
        requestedSeq = readSeq;
      });
      return handled(reading);
    },
  };
}

function placeOf({ seq = 0 }: { readonly seq?: number }): { seq: number } {
  return { seq };
}

/** Marks a rejection as handled, so that a caller that ignores the promise isn't ended by it. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
