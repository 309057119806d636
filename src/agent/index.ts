export { abort, FlotillaError } from "../base/errors.ts";
export type { AgentAnswer, AgentRequest } from "../protocol/agent-http.ts";
export type { Chunk } from "../protocol/chunk.ts";
export { type Part, textOf, type UIMessage } from "../protocol/message.ts";
export { type AgUiHandlerOptions, type AgUiUser, createAgUiHandler } from "./ag-ui-handler.ts";
export {
  type AgentHandler,
  type AgentHandlerOptions,
  type AnswerContext,
  createAgentHandler,
} from "./handler.ts";
export type { Fetch } from "./network.ts";
export { type NodeRequest, type NodeResponse, toNode } from "./node.ts";
export { type Refusal, refuse } from "./refusal.ts";
export { resumingFetch, type ResumingOptions } from "./resuming-fetch.ts";
export { type SignedRequest, type Verified, verify, type VerifyOptions } from "./verify.ts";
