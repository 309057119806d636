import type { Dialect } from "../../src/store/sql.ts";
import { inputHash } from "../../src/steps/key.ts";
import { plainInsert } from "./plain.ts";

const longAgoMs = 1_700_000_000_000;
const farAwayMs = 4_102_444_800_000;

/**
 * What a store of a version holds when a newer release opens it: tasks in every state that there is,
 * and pods that are gone. A version that brings something adds rows that use it.
 */
export function rowsOf(dialect: Dialect, version: number): string {
  const insert = (name: string, row: Columns) => plainInsert(dialect.table(name), row);
  const task = (taskId: string, status: string, more: Columns = {}) =>
    insert("task", {
      task_id: taskId,
      name: "old",
      status,
      payload: "1",
      run_at: longAgoMs,
      created_at: longAgoMs,
      last_update: longAgoMs,
      ...more,
    });
  const pod = (podId: string, status: string, more: Columns) =>
    insert("pod", {
      pod_id: podId,
      started_at: longAgoMs,
      last_heartbeat: longAgoMs,
      status,
      metadata: "{}",
      ...more,
    });
  const event = (seq: number, type: string) =>
    insert("task_event", {
      task_id: "failed",
      seq,
      at: longAgoMs,
      type,
      attempt: seq,
      pod_id: "left-pod",
      detail: failure,
    });
  const throttle = insert("throttle", {
    name: "api",
    bound: 5,
    epoch: 3,
    shares: '{"old-pod":{"share":2,"renewal":7,"leaseMs":60000,"longestMs":605000}}',
    created_at: longAgoMs,
    last_update: longAgoMs,
  });
  const at = { created_at: longAgoMs, active_at: longAgoMs };
  const session = [
    insert("session_log", { log_id: 0, incarnation: "old", record_id: "r1", log_offset: 1 }),
    insert("session", {
      session_id: "talk",
      log_id: 0,
      last_offset: 1,
      last_seq: 1,
      header: JSON.stringify(talk),
      ...at,
    }),
    insert("session_user", { session_id: "talk", user_id: "ada" }),
    insert("message", {
      session_id: "talk",
      seq: 1,
      role: "user",
      author: "ada",
      message_id: "said-1",
      body: '{"tokens":1,"parts":[{"type":"text","text":"hello"}]}',
      at: longAgoMs,
    }),
  ];
  const stepped = [
    task("stepped", "pending", { name: "steps", claim_token: 2 }),
    ...["first", "loop", "outer/inner", "each[a]]b]", "once"].map((key, at) =>
      insert("step_journal", {
        owner_id: "stepped",
        key,
        seq: at + 1,
        token: 1,
        ...steps[at]!,
        started_at: longAgoMs,
        at: longAgoMs,
      }),
    ),
  ];
  const linksAndTurns = [
    insert("link", { from_id: "talk", to_id: "completed", what: "session", at: longAgoMs }),
    insert("turn", {
      session_id: "talk",
      epoch: 1,
      attempt: 1,
      agent: "helper",
      pod_id: "left-pod",
      began_at: longAgoMs,
      ended_at: longAgoMs,
      outcome: "completed",
      input_tokens: 10,
      output_tokens: 2,
      cached_tokens: 0,
      model: "small",
      cost_millionths: 1_500_000,
    }),
  ];
  const versioned = [
    task("versioned", "pending", {
      name: "versions",
      claim_token: 2,
      task_version: 2,
      begun_version: 1,
    }),
  ];
  const access = [
    insert("credential_version", { id: 1, version: 3 }),
    insert("api_key", {
      key_id: "key-1",
      name: "web",
      hash: "0".repeat(64),
      role: "operator",
      payloads: 1,
      created_at: longAgoMs,
      version: 1,
    }),
    insert("token_revocation", {
      kind: "jti",
      subject: "token-1",
      before_at: longAgoMs,
      expires_at: farAwayMs,
      version: 2,
    }),
    insert("sign_in", {
      sign_in_id: "browser-1",
      hash: "1".repeat(64),
      key_id: "key-1",
      key_name: "web",
      role: "operator",
      verbs: '["fleet:read","fleet:operate"]',
      origin: "https://ops.example",
      created_at: longAgoMs,
      last_used_at: longAgoMs,
      expires_at: farAwayMs,
      version: 3,
    }),
    insert("tenant_count", { tenant: "default", log_id: 0, sessions: 1, turns: 0, bytes: 60 }),
    insert("audit", {
      id: "act-1",
      // What is old is pruned by the first leader.
      at: farAwayMs,
      actor: "key/web",
      key_name: "web",
      role: "operator",
      action: "tasks.retry",
      subject: "failed",
      count: 1,
      outcome: "done",
    }),
  ];
  const facts = [
    pod("drained-pod", "down", { beat: 3, drain: 1, pulse: '{"claimed":7,"held":0}' }),
    insert("series_fold", { id: 1, closed_to: longAgoMs, last_fold: "fold-1" }),
    // A day of minutes is kept, so that only one to come stays as it is.
    insert("series", {
      span: 60_000,
      at: farAwayMs - (farAwayMs % 60_000),
      subject: "task:work",
      pod: "",
      counts: '{"counts":{"completed":7}}',
    }),
    insert("failure_group", {
      group_id: "group-1",
      state: "ignored",
      state_at: longAgoMs,
      until_at: farAwayMs,
      first_at: longAgoMs,
      last_update: farAwayMs,
    }),
    insert("throttle_event", { name: "api", seq: 1, cause: "first_use", bound: 5, epoch: 3 }),
    insert("bulk", {
      bulk_id: "bulk-1",
      action: "cancel",
      filter: '{"name":"outdated"}',
      state: "stopped",
      cursor_id: "task-1",
      until_id: "task-9",
      matched: 9,
      is_exact: 1,
      done: 1,
      created_by: "key/web",
      created_at: farAwayMs,
      last_update: farAwayMs,
    }),
  ];
  const logs = [
    insert("task_alias", { alias_id: "promised", task_id: "completed" }),
    insert("archive_aside", {
      log_id: 0,
      incarnation: "old",
      log_offset: 1,
      place: 0,
      session_id: "talk",
      seq: 1,
      body: '{"text":"refused"}',
      reason: "a character that the database doesn't take",
      at: farAwayMs,
    }),
  ];
  const claim = { claimed_by: "old-pod", claim_token: 1, claim_call: 9 };
  return [
    pod("old-pod", "up", { beat: 41, claim_floor: 3 }),
    pod("left-pod", "down", { beat: 7 }),
    task("pending", "pending"),
    task("waiting", "pending", { run_at: farAwayMs, parked: 1 }),
    task("overdue", "pending", { parked: 1 }),
    task("retrying", "pending", { parked: 1, retry_count: 1, claim_token: 2, error: failure }),
    task("poison", "pending", { deaths: 2, claim_token: 2 }),
    task("claimed", "claimed", claim),
    task("cancelling", "claimed", { ...claim, cancel_requested: 1, wake: 1 }),
    task("orphaned", "claimed", { claimed_by: "unknown-pod", claim_token: 4, claim_call: 2 }),
    task("completed", "completed", {
      claimed_by: "left-pod",
      claim_token: 1,
      progress: '"half"',
      result: '{"doubled":2}',
      unique_key: "once",
    }),
    task("failed", "failed", {
      claimed_by: "left-pod",
      claim_token: 3,
      retry_count: 2,
      max_attempts: 2,
      error: failure,
    }),
    task("cancelled", "cancelled", { claim_token: 1, cancel_requested: 1, wake: 1 }),
    event(1, "retry"),
    event(2, "failed"),
    task("traced", "pending", { trace: traceparent }),
    ...(version >= 2 ? stepped : []),
    throttle,
    ...session,
    ...(version >= 3 ? linksAndTurns : []),
    ...(version >= 4 ? versioned : []),
    ...(version >= 5 ? access : []),
    ...(version >= 6 ? facts : []),
    ...(version >= 7 ? logs : []),
  ].join("\n");
}

type Columns = Readonly<Record<string, string | number>>;

/** A header as it is stored, of a session without an agent in which one message was said. */
const talk = {
  sessionId: "talk",
  tenant: "default",
  agents: [],
  users: ["ada"],
  status: "active",
  lastSeq: 1,
  epoch: 0,
  work: null,
  pending: [],
  summarySeq: 0,
  compactedSeq: 0,
  tokens: 1,
  compactionFailures: 0,
  failedAtTokens: 0,
  needsCompaction: false,
  metadataVersion: 0,
  preview: "hello",
  previewAuthor: "ada",
  createdAtMs: longAgoMs,
  activeAtMs: longAgoMs,
};

const steps: readonly Columns[] = [
  { kind: "done", value: '{"words":3}', input_hash: inputHash({ url: "a" }) },
  { kind: "round", value: '{"at":3,"state":{"n":2}}' },
  { kind: "done", value: '"inner"' },
  { kind: "failed", value: '{"code":"aborted","message":"no such page"}' },
  { kind: "begun", value: "null" },
];

const failure = '{"code":"task_failed","message":"it didn\'t work"}';
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
