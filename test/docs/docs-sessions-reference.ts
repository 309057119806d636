import { type Chat, type Flotilla, task } from "flotilla";
import { createClient } from "flotilla/client";
import { createChatTransport } from "flotilla/ai-sdk";

export { createChatTransport } from "flotilla/ai-sdk";
export { useChat } from "@ai-sdk/react";
export { useSharedChat } from "flotilla/react";
export declare const id: string;
export declare const messageId: string;
export declare function show(sessionId: string): void;
export const client = createClient();
export declare const part: { approval: { id: string } };
export const transport = createChatTransport({ client, agent: "helper" });
export declare const chat: Chat;
export declare const flotilla: Flotilla;
export const render = task("render", {}, async ({ input }: { input: { scene: string } }) => input);
