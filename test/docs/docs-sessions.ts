import type { AgentFunction } from "flotilla";

type Messages = Parameters<AgentFunction>[0]["messages"];

export declare const model: {
  stream(messages: Messages, options: { signal: AbortSignal }): AsyncGenerator<string>;
};
export declare const reply: AgentFunction;
export declare function summarize(summary: unknown, messages: Messages): Promise<string>;
export declare function show(sessions: readonly object[]): void;
export declare function update(sessions: readonly object[]): void;
export declare function drop(sessionIds: readonly string[]): void;
export declare function myToken(): Promise<string>;
export declare function search(words: string): Promise<{ title: string }>;
export declare function order(
  found: { title: string },
  options: { idempotencyKey: string },
): Promise<{ id: string }>;

export declare function research(topic: string, wishes: readonly string[]): Promise<string>;

export declare const messageId: string;

export async function findLateOrders(): Promise<string[]> {
  return [];
}
