import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { Bus } from "./bus.ts";
import {
  decodeEnvelopes,
  encodeEnvelope,
  type Envelope,
  receivedError,
  sentError,
} from "./envelope.ts";

export type EndpointParts = {
  address: string;
  clock: Clock;
  log: Logger;
  /**
   * Sends an envelope to another address. It may be lost, and must not throw. A request comes with its
   * number, by which it can be refused.
   */
  transmit: (to: string, text: string, ask?: number) => void;
};

export type Endpoint = Omit<Bus, "close"> & {
  /** Handles an envelope, or several in an array. Never throws. */
  receive(from: string, text: string): void;
  /** Rejects a pending request that was certainly not delivered. */
  refuse(ask: number, error: FlotillaError): void;
  /** Rejects all pending requests. */
  close(): void;
};

type Handle = Parameters<Bus["serve"]>[1];

/**
 * One process's end of the bus, independent of the transport: it calls the handler of a topic,
 * sends back the result, and matches answers to requests. Envelopes to the own address stay here.
 */
export function createEndpoint({ address, clock, log, transmit }: EndpointParts): Endpoint {
  const handlers = new Map<string, Handle>();
  const waiting = new Map<number, (answer: { body: Json } | { error: FlotillaError }) => void>();
  let lastRequest = 0;
  let closed = false;

  const dispatch = (to: string, text: string, ask?: number) => {
    if (closed) return;
    if (to !== address) return transmit(to, text, ask);
    // Asynchronous, so that a sender is never called back before it continues.
    queueMicrotask(() => receive(address, text));
  };

  const answer = (to: string, envelope: Envelope) => {
    try {
      dispatch(to, encodeEnvelope(envelope));
    } catch (error) {
      if ("answers" in envelope && "body" in envelope) {
        answer(to, { answers: envelope.answers, error: sentError(error) });
      }
    }
  };

  const handle = async (from: string, envelope: Extract<Envelope, { topic: string }>) => {
    const ask = "ask" in envelope ? envelope.ask : undefined;
    const serving = handlers.get(envelope.topic);
    try {
      if (!serving) {
        throw new FlotillaError("unsupported", `${address} has no handler for ${envelope.topic}`);
      }
      const body = await serving(envelope.body, from);
      if (ask !== undefined) answer(from, { answers: ask, body });
    } catch (error) {
      if (!(error instanceof FlotillaError)) {
        log.error({ topic: envelope.topic, error: messageOf(error) }, "bus handler failed");
      }
      if (ask !== undefined) answer(from, { answers: ask, error: sentError(error) });
    }
  };

  const receive = (from: string, text: string) => {
    for (const envelope of decodeEnvelopes(text)) if (!closed) take(from, envelope);
  };

  const take = (from: string, envelope: Envelope | undefined) => {
    if (!envelope) return log.warn({ from }, "invalid envelope dropped");
    if ("topic" in envelope) return void handle(from, envelope);
    // An answer without a request is late or a duplicate.
    const settle = waiting.get(envelope.answers);
    if ("error" in envelope) settle?.({ error: receivedError(envelope.error) });
    else settle?.({ body: envelope.body });
  };

  return {
    address,
    receive,
    refuse: (ask, error) => waiting.get(ask)?.({ error }),
    send(to, topic, body) {
      try {
        dispatch(to, encodeEnvelope({ topic, body }));
      } catch (error) {
        log.error({ topic, error: messageOf(error) }, "envelope could not be sent");
      }
    },
    request: (to, topic, body, { timeoutMs }) =>
      new Promise((resolve, reject) => {
        if (closed) return reject(new FlotillaError("closed", "the bus was closed"));
        const ask = ++lastRequest;
        const text = encodeEnvelope({ topic, body, ask });
        const cancel = clock.after(timeoutMs, () => {
          waiting.delete(ask);
          const message = `${to} hasn't answered ${topic} within ${timeoutMs} ms`;
          reject(new FlotillaError("timeout", message, { details: { to, topic, timeoutMs } }));
        });
        waiting.set(ask, (found) => {
          waiting.delete(ask);
          cancel();
          if ("error" in found) reject(found.error);
          else resolve(found.body);
        });
        dispatch(to, text, ask);
      }),
    serve(topic, handle) {
      if (handlers.has(topic)) {
        throw new FlotillaError("conflict", `the topic ${topic} has a handler already`);
      }
      handlers.set(topic, handle);
      return () => {
        if (handlers.get(topic) === handle) handlers.delete(topic);
      };
    },
    close() {
      closed = true;
      const error = new FlotillaError("closed", "the bus was closed");
      for (const settle of waiting.values()) settle({ error });
    },
  };
}
