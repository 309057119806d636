import type { wrapLanguageModel } from "ai";
import type { AgentFunction } from "flotilla";

export declare const gpt: Parameters<typeof wrapLanguageModel>[0]["model"];
export declare function countWords(url: string): Promise<{ words: number }>;
export declare function answerTo(
  messages: Parameters<AgentFunction>[0]["messages"],
  signal: AbortSignal,
): AsyncGenerator<string>;
export declare function show(event: object): void;

export declare const stock: { reserve(item: string, key: string): Promise<number> };
export declare function ship(shelf: number): Promise<string>;
export declare function report(outcome: unknown): Promise<void>;
