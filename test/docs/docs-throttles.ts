import { task } from "flotilla";

export declare const prompt: string;
export declare function callIt(prompt: string, options: { signal: AbortSignal }): Promise<string>;
type Asked = { text: string; model: string };
export const summarize = task<Asked, Asked, { summary: string }>("summarize", {});
export declare const command: object;
export declare const client: {
  send(
    command: object,
    options: { abortSignal: AbortSignal },
  ): Promise<{ usage: { totalTokens: number } }>;
};
export declare const request: Request;
export declare const baseURL: string;
export declare function call(): Promise<string>;
export declare function isBusy(thing: unknown): boolean;
export declare function run(): Promise<{ summary: string }>;
