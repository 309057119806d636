export type { ChatLike } from "./follow.ts";
export {
  type ChatTransportOptions,
  createChatTransport,
  type FlotillaTransport,
} from "./transport.ts";
