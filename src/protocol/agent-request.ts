import type { UIMessage } from "./message.ts";

/** What an agent at a URL is sent: what the AI SDK's own transport sends, and `flotilla`. */
export type AgentRequest = {
  readonly id: string;
  readonly messages: readonly UIMessage[];
  readonly trigger: "submit-message" | "regenerate-message" | "compact";
  readonly messageId?: string;
  readonly flotilla: Envelope;
};

export type Envelope = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agent: string;
  readonly epoch: number;
  readonly attempt: number;
  /** Who wrote the message that is answered. */
  readonly user?: string;
  readonly summary?: string;
  /** The last entry that it is told of. */
  readonly seq: number;
};
