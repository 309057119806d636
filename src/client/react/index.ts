"use client";

export { FlotillaProvider, useClient } from "./provider.ts";
export { type UsedSession, useSession } from "./hooks.ts";
export { type Shared, useSharedChat } from "./use-shared-chat.ts";
export { type HookOptions, useConnection, useInbox, useRun, useTask } from "./watching.ts";
