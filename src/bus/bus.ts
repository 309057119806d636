import type { Json } from "../base/json.ts";

/**
 * Messages between pods, and from other programs. An envelope may be lost, late or duplicated;
 * those of one sender to one address arrive in the order in which they were sent. A caller that
 * needs an answer repeats the request with the same id. Every implementation passes the suite in
 * `contract/bus.ts`.
 */
export type Bus = {
  /** The address of this process: its pod's id, or one that expires with the process. */
  readonly address: string;
  /** Sends a message without an answer. Never throws: a message that cannot be sent is lost. */
  send(to: string, topic: string, body: Json): void;
  /**
   * Sends a request and waits for the answer. Rejects with `timeout` if none came, and with the
   * other side's error if that is a `FlotillaError`.
   */
  request(to: string, topic: string, body: Json, options: { timeoutMs: number }): Promise<Json>;
  /** Registers the handler of a topic. Its result, or its error, is sent back to the requester. */
  serve(topic: string, handle: (body: Json, from: string) => Promise<Json> | Json): () => void;
  close(): Promise<void>;
};
