export { type ErrorCode, FlotillaError } from "../base/errors.ts";
export type { Json } from "../base/json.ts";
export type { Chunk } from "../protocol/chunk.ts";
export type { Waiting } from "../protocol/waiting.ts";
export type {
  Entry,
  EntryError,
  InboxItem,
  Part,
  ReplyOutcome,
  SessionState,
  SessionView,
  ToolResult,
  UIMessage,
} from "../protocol/message.ts";
export type { Person } from "../protocol/frames.ts";
export type { FilePart } from "../protocol/file.ts";
export type { EntryNote } from "../protocol/view.ts";
export type {
  AgentCalls,
  AgentPage,
  CreateSessionOptions,
  EditedMessage,
  EditMessageOptions,
  Enqueued,
  EnqueueOptions,
  EntryPage,
  ForkOptions,
  ForksOptions,
  ForkPage,
  ListRunsOptions,
  ListSessionsOptions,
  ListTasksOptions,
  MembersChange,
  NewWake,
  OpenedFiles,
  PageOptions,
  RunCalls,
  RunPage,
  SessionCalls,
  SessionPage,
  StartedRun,
  StartRunOptions,
  TaskCalls,
  TaskPage,
  UploadOptions,
} from "./calls.ts";
export { type Client, createClient } from "./client.ts";
export type { ConnectionState, ErrorLike } from "./socket/status.ts";
export type { Inbox, InboxSnapshot } from "./inbox.ts";
export type { ClientOptions, Fetch, Network, SocketClass, SocketLike } from "./options.ts";
export type {
  LiveAnswer,
  RegenerateOptions,
  SendOptions,
  Sent,
  Session,
  SessionEvent,
  SessionEventsOptions,
  SessionSignalOptions,
  SessionSnapshot,
  StopOptions,
  ToolResultOptions,
  Unsent,
} from "./session/session.ts";
export type { SessionPresence } from "./session/presence.ts";
export type { Store } from "./observable.ts";
export type { AgentView, ErrorView, RunDoing, RunView, TaskView } from "./views.ts";
export type { Watched, WatchedSnapshot } from "./watch.ts";
