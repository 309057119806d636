import { createClient } from "flotilla/client";

export { useChat } from "@ai-sdk/react";
export { createChatTransport } from "flotilla/ai-sdk";
export { useSharedChat } from "flotilla/react";
export const client = createClient();
export declare const id: string;
