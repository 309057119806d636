export { abort, type ErrorCode, FlotillaError, retryAfter, snooze } from "./base/errors.ts";
export { actAs, type Actor } from "./audit/actor.ts";
export type { Audit, AuditEntry, AuditListOptions, AuditPage } from "./audit/audit.ts";
export type { AuditConfig } from "./audit/leader.ts";
export type { Backoff } from "./base/backoff.ts";
export type { Bulk, BulkAction, BulkRequest, BulkState } from "./bulk/bulk.ts";
export type {
  BulkListOptions,
  BulkOutcome,
  BulkPage,
  BulkPreview,
  Bulks,
  FollowBulkOptions,
} from "./bulk/bulks.ts";
export type { ChangeKind, ChangeType, RecordedChange } from "./changes/change.ts";
export type {
  ChangeFilter,
  ChangePage,
  ChangePageOptions,
  ChangesOptions,
  ChangesReader,
} from "./changes/changes.ts";
export type { ChangesConfig } from "./changes/recording.ts";
export type { PayloadCodec } from "./store/codec/codec.ts";
export { encryption, type EncryptionOptions } from "./store/codec/encryption.ts";
export type {
  DeadLetterPage,
  DeadLetters,
  DeadLettersOptions,
  DiscardOptions,
  FollowOptions,
  RedriveOptions,
  RedrivePage,
  RedrivesOptions,
} from "./dead-letters/dead-letters.ts";
export type { DeadLetter } from "./dead-letters/dead-letter.ts";
export type {
  ChangedGroup,
  ErrorGroup,
  ErrorGroups,
  GroupsOptions,
  IgnoreOptions,
} from "./dead-letters/error-groups.ts";
export type { GroupStanding, GroupState } from "./dead-letters/groups.ts";
export type { Redrive, RedriveReason, RedriveState, Selection } from "./dead-letters/redrive.ts";
// Of a chain's types, those too that declarations of exported flows name.
export {
  type ChildOutcome,
  type ChildRow,
  type Declared,
  type Finalizing,
  type Flat,
  type Flow,
  flow,
  type FlowStart,
  type Initializing,
  type StateIsOutput,
  type Transitions,
} from "./flows/flow.ts";
export type { SignalOptions, TriesOptions } from "./flows/declare.ts";
export type { Outcome } from "./flows/drive/attempt.ts";
export type { Interceptor } from "./flows/machine.ts";
export type { RunError } from "./flows/decide/run.ts";
export type {
  HistoryOptions,
  OpenSignal,
  Runs,
  SignalSendOptions,
  StartedRun,
  StartOptions,
} from "./flows/runs.ts";
export type { RunFilter, RunListOptions, RunPage } from "./flows/list.ts";
export type { FlowCount, FlowCountOptions } from "./flows/counts.ts";
export type { Doing, HistoryEntry, RunView } from "./flows/rows.ts";
export type { StuckOptions, StuckRuns } from "./flows/stuck.ts";
export { cancel, unrecoverable, type UnrecoverableOptions } from "./flows/decide/thrown.ts";
export type { FlowOptions } from "./flows/declare.ts";
export type {
  ForEachOptions,
  LoopDone,
  RoundContext,
  Step,
  StepContext,
  StepOptions,
  StepSignalOptions,
  StepWaits,
  TaskSteps,
} from "./steps/model.ts";
export {
  hook,
  type Hook,
  type HookDelivery,
  type HookMessage,
  type HookSettings,
} from "./runtime/hooks/hook.ts";
export {
  githubSignature,
  type HookVerifier,
  type SignatureOptions,
  type SignedDelivery,
  slackSignature,
  standardWebhooks,
  stripeSignature,
  type TimedSignatureOptions,
  type KnownDelivery,
} from "./runtime/hooks/signatures.ts";
export type { Json, Jsonify } from "./base/json.ts";
export type { Logger } from "./base/log.ts";
export type { Schema } from "./base/schema.ts";
export type { Redact } from "./redaction/redactor.ts";
export { sensitive } from "./redaction/sensitive.ts";
export type { TraceHeaders } from "./base/trace-context.ts";
export type { ClaimedTask, Claimer, LostReason, ClaimResult } from "./tasks/claim/claimer.ts";
export type { Retried, TaskRetryOptions, TaskSignalOptions } from "./tasks/acts.ts";
export type {
  ListOptions,
  Stats,
  StatsOptions,
  TaskEvent,
  StepEntry,
  TaskEventsOptions,
  TaskPage,
  Tasks,
  TaskShortcuts,
} from "./tasks/tasks.ts";
export type { ListSpan, PayloadValue, TaskFilter } from "./tasks/inspect/filter.ts";
export type { ListPageOptions, ListProgress } from "./tasks/inspect/list.ts";
export type { Concurrency, Limits, LimitState, TenantState } from "./tasks/concurrency/limits.ts";
export type { SessionCounts } from "./sessions/list.ts";
export type { Depth, DepthState, NameDepth } from "./tasks/inspect/depth.ts";
export type {
  EachCounts,
  EachResult,
  EnqueueEachOptions,
  EnqueueRow,
  EnqueueRows,
  RowOutcome,
} from "./tasks/enqueue/each.ts";
export type {
  Enqueued,
  EnqueueManyOptions,
  EnqueueOptions,
  KeyOptions,
  OnDuplicate,
} from "./tasks/enqueue/options.ts";
export { type ContextValue, contextValue } from "./tasks/run/context.ts";
export type { Middleware, Next } from "./tasks/model.ts";
export {
  type HandleOptions,
  type InputOf,
  type ResultOf,
  task,
  type TaskFailure,
} from "./tasks/task.ts";
export type { FlowContract, TaskContext, TaskContract, TaskHandler } from "./tasks/model.ts";
export type { Pruned, PruneOptions } from "./tasks/leader/prune.ts";
export type { Retention } from "./tasks/rows.ts";
export type { DrainState, PodState, Reason, ReasonCode } from "./tasks/run/pod-status.ts";
export type { GraphEnqueued, GraphOptions, GraphRow } from "./tasks/enqueue/graph.ts";
export type { StartedTaskOptions, TaskToStart } from "./tasks/enqueue/logged-tasks.ts";
export type { Paused, PauseOptions } from "./tasks/claim/pauses.ts";
export type { Task, TaskError, TaskState, TaskStatus } from "./tasks/rows.ts";
export type { ThrottleOfHandler } from "./tasks/claim/throttle.ts";
export type { HeldByThrottle } from "./tasks/rows.ts";
export type {
  BusyPod,
  DependencyFacts,
  DependencyState,
  EndedFacts,
  LimitFacts,
  NotDueCause,
  NotDueFacts,
  NoWorkerFacts,
  PauseFacts,
  QueuedFacts,
  RunningFacts,
  SeenPod,
  SetAsideFacts,
  SignalFacts,
  SlotHolder,
  Verdict,
  WhyCode,
  WhyFacts,
  WhyLink,
  WhyReason,
} from "./tasks/inspect/evidence.ts";
export type { WaitOptions } from "./tasks/inspect/wait-for.ts";
export type { WhyOptions } from "./tasks/inspect/why.ts";
export type { Pod, PodEvent } from "./runtime/pod.ts";
export { type Config, defineConfig } from "./runtime/config.ts";
export type { NatsConfig, NatsCredentials, NatsDurability, NatsTls } from "./bus/nats/config.ts";
export {
  type ApiKey,
  type Login,
  type LoginHook,
  type ServerConfig,
  type TokenConfig,
} from "./runtime/server-config.ts";
export type { QuotaConfig, TenantQuota } from "./runtime/quota-config.ts";
export { type Role, type Verb } from "./protocol/verbs.ts";
export { type ClaimerConfig, startClaimer } from "./runtime/claimer.ts";
export { connect, type ConnectOptions, type Flotilla } from "./runtime/connect.ts";
export type { MachineView, PodActs, PodInfo } from "./runtime/pods.ts";
export type { PodPulse } from "./pods/pulse.ts";
export type {
  ListSubjectsOptions,
  ReadSeriesOptions,
  Series,
  SeriesDurations,
  SeriesPoint,
  SeriesReader,
  SeriesTotal,
  SeriesTotalsOptions,
  SubjectPage,
} from "./series/series.ts";
export type {
  FiringPage,
  ScheduleFiring,
  ScheduleListOptions,
  SchedulePage,
  Schedules,
} from "./schedules/schedules.ts";
export type { Missed } from "./schedules/plan.ts";
export type { Schedule } from "./schedules/rows.ts";
export { schedule, type ScheduleDeclaration, type ScheduledOptions } from "./schedules/schedule.ts";
export type {
  CreatedKey,
  Grant,
  KeyListOptions,
  KeyPage,
  Keys,
  NewKey,
  Rights,
  RotatedKey,
  RotateOptions,
} from "./keys/keys.ts";
export type { Credential, Credentials, KnownKey, KnownSignIn } from "./keys/credentials.ts";
export type { KeyView, SignInOwner } from "./keys/key.ts";
export type {
  CreatedSignIn,
  EndSignInOptions,
  NewSignIn,
  SignInListOptions,
  SignInPage,
  SignIns,
  SignInView,
} from "./keys/sign-ins.ts";
export type {
  Revocation,
  RevocationPage,
  RevokeTokens,
  TokenRevocations,
} from "./keys/revocations.ts";
export type { LinkedTask, Links, Started, StartedBy } from "./links/links.ts";
export type {
  CountedListOptions,
  CountedPage,
  CountedTenant,
  TenantCounter,
  TenantCounts,
} from "./quotas/counts.ts";
export type { ModelPrice, ModelUsage, Prices } from "./base/usage.ts";
export { agent, type UrlAgentOptions } from "./sessions/agents/agent.ts";
export type {
  AgentContext,
  AgentFunction,
  AgentSpec,
  CompactorContext,
  CompactorFunction,
  TurnCall,
} from "./sessions/agents/spec.ts";
export type {
  AgentHistory,
  AgentOptions,
  CompactionOptions,
  UrlOptions,
} from "./sessions/agents/options.ts";
export type {
  AgentGiven,
  AgentPage,
  AgentReplaced,
  AgentView,
  StoredAgents,
} from "./sessions/agents/stored-agents.ts";
export type { AgentAnswer } from "./protocol/agent-http.ts";
export type { Chunk } from "./protocol/chunk.ts";
export type { FilePart, FileRef } from "./protocol/file.ts";
export { file, type NewFileOptions, type FileSource, isFile } from "./files/new-file.ts";
export type { HandlerFiles, TaskFilesClient } from "./tasks/files/task-files.ts";
export type { Person } from "./protocol/frames.ts";
export {
  type Entry,
  type EntryError,
  type Part,
  type ReplyOutcome,
  type SessionState,
  textOf,
  type ToolResult,
  type ToolResults,
  type TurnOutcome,
  type TurnView,
  type UIMessage,
  type Usage,
} from "./protocol/message.ts";
export { type EntryNote, viewOf, type ViewOptions } from "./protocol/view.ts";
export type { ChatEvent, EventsOptions } from "./sessions/events.ts";
export type {
  ChangeMembers,
  EntriesQuery,
  EntriesPage,
  InboxEvent,
  InboxItem,
  ListSessions,
  Sent,
  SignalSent,
  SessionPage,
  SessionService,
  SessionView,
  StartedTasks,
  TurnPage,
  TurnsQuery,
} from "./sessions/service.ts";
export type {
  AgentNamed,
  AgentsNamed,
  AskOptions,
  Chat,
  CreateOptions,
  UploadedContent,
  UploadFileOptions,
  InboxOptions,
  OpenOptions,
  SendOptions,
  Sessions,
} from "./sessions/sessions.ts";
export type { Store } from "./store/open.ts";
export type { PostgresPool, PostgresStore } from "./store/postgres/config.ts";
export type { Classify } from "./throttles/classify.ts";
export type { ThrottleOptions } from "./throttles/declaration.ts";
export type { Fetch, FetchOptions } from "./throttles/fetch.ts";
export type { LimiterSnapshot } from "./throttles/limiter/stats.ts";
export type { MiddlewareOptions, ThrottleMiddleware } from "./throttles/model-middleware.ts";
export type { ThrottledCall, Permit } from "./throttles/limiter/permit.ts";
export type { CallOutcome } from "./throttles/classify.ts";
export type { OutcomeKind } from "./throttles/learning/sample.ts";
export type {
  BoundCause,
  BoundEvent,
  BoundEventOptions,
  BoundEventPage,
  PodView,
  ThrottleKey,
  ThrottleListOptions,
  ThrottlePage,
  ThrottlesClient,
  ThrottleView,
} from "./throttles/shares/admin.ts";
export type { PermitHolder, PermitUser } from "./throttles/holders.ts";
export type { Approval, ApprovalListOptions, ApprovalPage } from "./runtime/approvals.ts";
export type { PendingApproval } from "./sessions/conversation/header.ts";
export type {
  PermitHolders,
  PermitHoldersClient,
  PermitHoldersOptions,
} from "./runtime/permit-holders.ts";
export { type CallOptions, type Throttle, throttle } from "./throttles/throttle.ts";
export type { Priority } from "./throttles/limiter/priority.ts";
export { startPod, type StartPodOptions } from "./runtime/start-pod.ts";
export type { ContentionCause, StoreEvent } from "./store/database.ts";
