"use client";

export { FlotillaProvider, useClient } from "./provider.ts";
export {
  type HookOptions,
  useConnection,
  type UsedSession,
  useInbox,
  useRun,
  useSession,
  useTask,
} from "./hooks.ts";
export { type Shared, useSharedChat } from "./use-shared-chat.ts";
