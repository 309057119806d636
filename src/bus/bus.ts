import type { Json } from "../base/json.ts";

/**
 * Letters between pods, and from programs that are none. A letter may be lost, late or come twice;
 * those of one sender to one address come in the order in which they were sent. Whoever needs an answer
 * asks again with the same id. Every implementation passes the suite in `contract/bus.ts`.
 */
export type Bus = {
  /** Where letters to this process go: its pod's id, or an address that expires with the process. */
  readonly address: string;
  /** Sends a letter that nobody answers. Never throws: it is lost where it can't be sent. */
  send(to: string, topic: string, body: Json): void;
  /**
   * Asks and waits for the answer. Rejects with `timeout` where none came, and with the error that the
   * other side has thrown, if it is one of ours.
   */
  request(to: string, topic: string, body: Json, options: { timeoutMs: number }): Promise<Json>;
  /** What is done with letters on a topic. What it gives, or throws, goes back to whoever asked. */
  serve(topic: string, handle: (body: Json, from: string) => Promise<Json> | Json): () => void;
  close(): Promise<void>;
};
