import { FlotillaError } from "../../base/errors.ts";
import type { FrameMessage } from "../../protocol/frames.ts";
import { isTurn, type Part } from "../../protocol/message.ts";
import { errorOf } from "../http.ts";
import type { Exchange } from "../socket/send-queue.ts";
import type { Followed } from "./feed.ts";
import type { SendOptions, Sent, Session, SessionEvent } from "./session.ts";
import { loadBeside } from "./view.ts";

type SessionParts = {
  followed: Followed;
  exchange: Pick<Exchange, "ask">;
  newId: () => string;
};

/** The handle that programs have of a session. */
export function openSession(sessionId: string, parts: SessionParts): Session {
  const { followed, exchange, newId } = parts;
  const { shown, subscription } = followed;
  let readSeq = 0;
  let askedSeq = 0;
  let reading: Promise<void> | undefined;

  const send = async (
    message: string | readonly Part[],
    { id = newId(), metadata, to, signal }: SendOptions,
  ): Promise<Sent> => {
    const given = typeof message === "string" ? [{ type: "text", text: message }] : message;
    const unsent = { id, parts: given, ...(metadata !== undefined && { metadata }) };
    const frame: FrameMessage = { ...unsent, ...(to !== undefined && { to }) };
    const show = (tell: () => void) => {
      tell();
      subscription.change();
      subscription.flush();
    };
    show(() => shown.unsent(unsent));
    try {
      const ack = await exchange.ask({ type: "send", session: sessionId, message: frame }, signal);
      const { seq = 0, messageId = id, duplicate = false } = ack;
      // Where it is followed, the entry itself comes in a moment.
      show(() => shown.stored(id, subscription.isFollowed ? seq : undefined));
      subscription.revive();
      return { seq, messageId, duplicate };
    } catch (error) {
      show(() => {
        if (error instanceof FlotillaError) shown.unsent({ ...unsent, error });
        else shown.stored(id);
      });
      throw error;
    }
  };

  /** However often it is asked for, one is on its way at a time. */
  const readUpTo = async (): Promise<void> => {
    while (readSeq < askedSeq) {
      const seq = askedSeq;
      await exchange.ask({ type: "read", session: sessionId, seq });
      readSeq = seq;
    }
  };

  return {
    sessionId,
    get: subscription.get,
    subscribe: subscription.subscribe,
    on: followed.on,
    events(options = {}) {
      let reader: AsyncIterableIterator<SessionEvent> | undefined;
      // It begins with the first `next`, and so may as well be loaded then.
      const begun = async () => {
        const { readEvents } = await loadBeside();
        return (reader ??= readEvents(followed, options, errorOf));
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
      const { state } = followed.place;
      // Named, the turn can be asked for again without ending another one.
      const turn = epoch ?? (isTurn(state) ? state.epoch : undefined);
      const asked = exchange.ask({ type: "stop", session: sessionId, epoch: turn });
      return handled(asked.then(({ done = false }) => done));
    },
    regenerate({ messageId, id = newId() } = {}) {
      const asked = exchange.ask({ type: "regenerate", session: sessionId, id, messageId });
      return handled(asked.then(({ seq }) => (seq === undefined ? {} : { seq })));
    },
    toolResult(messageId, results, { id = newId() } = {}) {
      const frame = { type: "tool_result", session: sessionId, id, messageId, results } as const;
      return handled(exchange.ask(frame).then(({ seq = 0 }) => ({ seq })));
    },
    read(seq = followed.place.lastSeq) {
      askedSeq = Math.max(askedSeq, seq);
      reading ??= readUpTo().finally(() => {
        reading = undefined;
        // One that was refused isn't asked for again by the next.
        askedSeq = readSeq;
      });
      return handled(reading);
    },
  };
}

/** Who doesn't wait for the outcome isn't ended by it. Who does is told all the same. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
