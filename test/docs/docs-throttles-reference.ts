import type { wrapLanguageModel } from "ai";

export { wrapLanguageModel } from "ai";
export { throttle } from "flotilla";
export { default as OpenAI } from "openai";
export declare const gpt: Parameters<typeof wrapLanguageModel>[0]["model"];
export { baseURL, client, command, request } from "./docs-throttles.ts";
