import type { UIMessage } from "@ai-sdk/react";
import { createContext } from "react";

/** What the parts of a message may do in its chat. */
export type Deciding = {
  /** Says whether a call that was asked about may be made. */
  approve(approvalId: string, approved: boolean): void;
  /** Brings what a tool gave that ran in this browser. */
  answer(tool: string, toolCallId: string, output: unknown): void;
  /** Has an answer made anew. */
  again(messageId: string): void;
  /** Says a message anew, in a branch of its own. */
  edit(message: UIMessage, text: string): void;
};

const nothing = () => {};

export const DecidingContext = createContext<Deciding>({
  approve: nothing,
  answer: nothing,
  again: nothing,
  edit: nothing,
});
