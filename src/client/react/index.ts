"use client";

export { FlotillaProvider, useClient } from "./provider.ts";
export {
  type HookOptions,
  useConnection,
  type UsedSession,
  type UsedPresence,
  useInbox,
  usePresence,
  useRun,
  useSession,
  useTask,
} from "./hooks.ts";
export { type Shared, useSharedChat } from "./use-shared-chat.ts";
