export type { ChatLike } from "./sync.ts";
export {
  type ChatTransportOptions,
  createChatTransport,
  type FlotillaTransport,
} from "./transport.ts";
